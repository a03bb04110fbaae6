"""One import name per package in a raw checkout, an editable install and a wheel; the wheel has no tests."""

from __future__ import annotations

import ast
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
    facade = ("ckpt.safekeeper", "ckpt.cli", "ckpt.spark", "ckpt.transfer", "ckpt_bench")
    assert [(path.name, name) for path, name in imports_of("ckpt_backends") if name.startswith(facade)] == []


def test_importing_ckpt_loads_no_backend_and_no_driver() -> None:
    code = "import ckpt, ckpt.cli, sys; print(*sorted(n for n in sys.modules if '.' not in n))"
    loaded = set(run_isolated(code, *PACKAGES.values()).split())
    assert loaded & {"ckpt_backends", "ckpt_bench", *DRIVERS} == set()
