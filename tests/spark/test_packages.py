"""The Scala packages of the provider know each other in one direction only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ckpt.spark import jar

SOURCES = Path(jar._SOURCES)
PUBLIC = "ckpt.spark"
"""Files of this package have names that Spark, settings or Python know; they may use every other package."""
MAY_KNOW = {
    "wire": set[str](),
    "state": {"wire"},
    "spill": {"state", "wire"},
    "reading": {"state", "wire"},
    "moving": {"state"},
    "plan": {"routing", "wire"},
    "routing": {"state", "wire"},
}
OF_SPARK = {"reading/ChangeIterator.scala"}
"""In a package of Spark's, whose classes are closed to others."""
FILES = sorted(path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.scala"))


@pytest.mark.parametrize("name", FILES)
def test_a_file_imports_only_what_its_package_may_know(name: str) -> None:
    source = (SOURCES / name).read_text()
    found = re.match(r"package ([\w.]+)\n", source)
    assert found is not None
    package, folder = found[1].removeprefix(f"{PUBLIC}."), name.partition("/")[0]
    if name in OF_SPARK or package == PUBLIC:
        return
    assert package == folder or folder.startswith("spark-")
    imported = set(re.findall(r"\bckpt\.spark\.([a-z]\w*)\.", source.replace(found[0], "")))
    assert imported <= MAY_KNOW[package]


def test_every_folder_is_a_package_or_a_line_of_spark() -> None:
    folders = {name.partition("/")[0] for name in FILES}
    assert folders == {*MAY_KNOW, *(f"spark-{line}" for line in jar.supported_lines())}
