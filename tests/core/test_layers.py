"""Dependencies point inwards: the core knows no driver, backends know only the core, the tests know all."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE, BACKENDS, BENCH = ROOT / "ckpt", ROOT / "backends" / "ckpt_backends", ROOT / "bench" / "ckpt_bench"

CORE_LIBRARIES = {"click", "cryptography", "msgspec", "numpy", "pyarrow", "rich", "xxhash", "zstandard"}
TEST_LIBRARIES = {"hypothesis", "pytest"}
DRIVERS = {
    "fsspec": {"fsspec", "s3fs", "aiobotocore"},
    "redis": {"redis"},
    "hbase": {"happybase", "thriftpy2"},
    "cassandra": {"cassandra"},
}
"""Which backend may import which driver; the others need none beyond what the core uses."""
INNER_ROOMS = ("rebalance", "sidecar", "spark", "cli")
"""Rooms of the core that stand on the rest of it, so the rest must not import them."""


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every absolute module name that a file imports, wherever the import stands, with its line."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            yield node.lineno, node.module or ""


def modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def wrong(folder: Path, allowed: set[str], skip: tuple[str, ...] = ()) -> list[str]:
    found = []
    for path in modules(folder):
        if path.relative_to(folder).parts[0] in skip:
            continue
        for line, name in imports(path):
            top = name.partition(".")[0]
            if top not in allowed and top not in sys.stdlib_module_names:
                found.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    return found


def test_the_core_knows_no_backend_and_no_driver() -> None:
    assert wrong(CORE, {"ckpt"} | CORE_LIBRARIES, skip=("testing", "spark")) == []


def test_the_test_instruments_know_only_the_core() -> None:
    assert wrong(CORE / "testing", {"ckpt"} | CORE_LIBRARIES | TEST_LIBRARIES) == []


def test_pytest_and_hypothesis_are_needed_by_the_conformance_suites_only() -> None:
    needs = {p.stem for p in modules(CORE / "testing") for _, name in imports(p) if name in TEST_LIBRARIES}
    assert needs <= {"harness", "plain", "versions", "owners", "life", "stateful", "network", "kills"}


def test_backends_know_the_core_and_their_own_driver() -> None:
    drivers = set().union(*DRIVERS.values())
    assert wrong(BACKENDS, {"ckpt", "ckpt_backends"} | CORE_LIBRARIES | drivers) == []
    for path in modules(BACKENDS):
        room = path.relative_to(BACKENDS).parts[0].removesuffix(".py").partition("_")[0]
        used = {name.partition(".")[0] for _, name in imports(path)} & drivers
        assert used <= DRIVERS.get(room, set()), f"{path.relative_to(ROOT)} imports {used}"


def test_backends_know_the_contract_and_not_what_stands_on_it() -> None:
    inner = {
        f"ckpt.{room}" for room in (*INNER_ROOMS, "safekeeper", "queue", "triggers", "testing", "registry")
    }
    for path in modules(BACKENDS):
        for line, name in imports(path):
            known = ".".join(name.split(".")[:2])
            assert known not in inner, f"{path.relative_to(ROOT)}:{line} imports {name}"


def test_the_foundation_of_the_core_knows_nothing_above_it() -> None:
    """Each of these modules may import only those before it."""
    order = ["errors", "types", "versions", "disk", "backend", "config", "registry"]
    for number, module in enumerate(order):
        used = {name for _, name in imports(CORE / f"{module}.py") if name.startswith("ckpt")}
        assert used <= {f"ckpt.{below}" for below in order[:number]}, f"ckpt/{module}.py imports {used}"


@pytest.mark.parametrize("room", INNER_ROOMS)
def test_the_core_stands_without_its_outer_rooms(room: str) -> None:
    for path in modules(CORE):
        parts = path.relative_to(CORE).with_suffix("").parts
        if parts[0] in INNER_ROOMS or parts[0] == "__main__":
            continue
        for line, name in imports(path):
            assert not f"{name}.".startswith(f"ckpt.{room}."), (
                f"{path.relative_to(ROOT)}:{line} imports {name}"
            )


def test_nothing_imports_the_bench() -> None:
    for path in [*modules(CORE), *modules(BACKENDS)]:
        for line, name in imports(path):
            assert not name.startswith("ckpt_bench"), f"{path.relative_to(ROOT)}:{line}"
