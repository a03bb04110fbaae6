"""One import name per package in a raw checkout, an editable install and a wheel; the wheel has no tests."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"ckpt": ROOT, "ckpt_backends": ROOT / "backends", "ckpt_bench": ROOT / "bench"}
DISCOVERED = {"pyspark_ckpt"}
"""What PySpark finds by its name: it only names what is in `ckpt`."""
DRIVERS = {"redis", "happybase", "cassandra", "pyspark", "lmdb", "rocksdict", "s3fs"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def pure_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that is built where there is no compiler."""
    folder = tmp_path_factory.mktemp("pure")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, "CC": "no-such-compiler"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert "no-such-compiler is missing or fails" in done.stdout + done.stderr
    [built] = folder.glob("*.whl")
    return built


def run_isolated(code: str, *path: Path) -> str:
    """Run code with these import roots and the installed dependencies, but without the editable install."""
    # -S leaves .pth files unread, which is what makes an editable install visible.
    roots = [*map(str, path), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {roots!r}\n{code}"],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_the_three_packages_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for package in PACKAGES:
        assert f"{package}/__init__.py" in names
        assert f"{package}/py.typed" in names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES) | DISCOVERED


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    fields = Parser().parsestr(archive.read(metadata).decode())
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["Requires-Python"] == ">=3.11"
    extras = {"redis", "hbase", "cassandra", "s3", "spark", "bench", "all"}
    assert extras <= set(fields.get_all("Provides-Extra") or [])
    scripts = archive.read(metadata.replace("METADATA", "entry_points.txt")).decode()
    assert "ckpt = ckpt.cli:main" in scripts
    [licence] = [name for name in archive.namelist() if name.endswith("LICENSE")]
    assert b"Apache License" in archive.read(licence)


def test_a_wheel_is_compiled_for_what_it_runs_on_and_one_without_a_compiler_for_everything(
    wheel: Path, pure_wheel: Path
) -> None:
    compiled = "ckpt_backends/engine/_native.abi3.so"
    assert "-cp311-abi3-manylinux_" in wheel.name
    assert compiled in zipfile.ZipFile(wheel).namelist()
    assert pure_wheel.name.endswith("-py3-none-any.whl")
    assert compiled not in zipfile.ZipFile(pure_wheel).namelist()


@pytest.mark.parametrize(("kind", "is_compiled"), [("wheel", True), ("pure_wheel", False)])
def test_a_log_is_the_same_with_and_without_its_compiled_half(
    kind: str, is_compiled: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    zipfile.ZipFile(request.getfixturevalue(kind)).extractall(tmp_path / "site")
    code = (
        "import ckpt; from ckpt_backends.engine.native import native; print(native is not None)\n"
        f"address = 'log://{tmp_path}/log'\n"
        "with ckpt.open_backend(address) as log: log.put_many('words', {b'be': b'2'})\n"
        "with ckpt.open_backend(address) as log: print(log.get_many('words', [b'be', b'or']))"
    )
    printed = run_isolated(code, tmp_path / "site").splitlines()
    assert printed == [str(is_compiled), "{b'be': b'2'}"]


@pytest.mark.parametrize("kind", ["wheel", "checkout"])
def test_imports_work_without_an_editable_install(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "wheel":
        zipfile.ZipFile(request.getfixturevalue("wheel")).extractall(tmp_path)
        roots = [tmp_path]
    else:
        roots = list(PACKAGES.values())
    code = "import ckpt, ckpt_backends, ckpt_bench\nprint(ckpt.open_backend('memory://'), ckpt.__file__)"
    printed = run_isolated(code, *roots)
    assert "<MemoryBackend memory://>" in printed
    assert str(roots[0]) in printed


def imports_of(package: str) -> Iterator[tuple[Path, str]]:
    """Every absolute import in a package, wherever it stands in a module."""
    for path in (PACKAGES[package] / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((path, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield path, node.module


def test_dependencies_point_inwards() -> None:
    outwards = {"ckpt_backends", "ckpt_bench", *DRIVERS}
    core = [
        (path.name, name)
        for path, name in imports_of("ckpt")
        if name.split(".")[0] in outwards and not path.is_relative_to(ROOT / "ckpt" / "spark")
    ]
    assert core == []
    facade = ("ckpt.keeper.safekeeper", "ckpt.cli", "ckpt.spark", "ckpt.moving.copying", "ckpt_bench")
    assert [(path.name, name) for path, name in imports_of("ckpt_backends") if name.startswith(facade)] == []


def test_importing_ckpt_loads_no_backend_and_no_driver() -> None:
    code = "import ckpt, ckpt.cli, sys; print(*sorted(n for n in sys.modules if '.' not in n))"
    loaded = set(run_isolated(code, *PACKAGES.values()).split())
    assert loaded & {"ckpt_backends", "ckpt_bench", *DRIVERS} == set()
