"""A released wheel carries the provider, so that nothing is compiled on a user's machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import ckpt.spark

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel as `make wheel` builds it for the installed Spark, unpacked as pip does."""
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, checkout)
    without = shutil.ignore_patterns("__pycache__", "jars")
    for name in ("ckpt", "backends", "bench", "configs"):
        shutil.copytree(ROOT / name, checkout / name, ignore=without)
    jars = checkout / "ckpt" / "spark" / "jars"
    jars.mkdir()
    shutil.copy(ckpt.spark.provider_jar(), jars)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(checkout / "dist")],
        cwd=checkout,
        check=True,
        capture_output=True,
    )
    [built] = (checkout / "dist").glob("*.whl")
    site = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(built).extractall(site)
    return site


def test_the_provider_of_the_wheel_is_used_and_nothing_compiled(unpacked: Path, tmp_path: Path) -> None:
    # -S leaves .pth files unread, which is what makes an editable install visible.
    roots = [str(unpacked), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    done = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            f"import sys; sys.path[:0] = {roots!r}; from ckpt.cli import main; main(['spark', 'jar'])",
        ],
        env={"PATH": os.devnull, "CKPT_CACHE": str(tmp_path / "cache")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = unpacked / "ckpt" / "spark" / "jars" / os.path.basename(ckpt.spark.provider_jar())
    assert done.stdout.strip() == str(expected)
    assert done.stderr == ""
    assert not (tmp_path / "cache").exists()
    assert expected.read_bytes() == Path(ckpt.spark.provider_jar()).read_bytes()
