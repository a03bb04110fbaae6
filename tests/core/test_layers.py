"""Dependencies point inwards: the core knows no driver, backends know only the core, the tests know all."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE, BACKENDS, BENCH = ROOT / "ckpt", ROOT / "backends" / "ckpt_backends", ROOT / "bench" / "ckpt_bench"

CORE_LIBRARIES = {"click", "cryptography", "msgspec", "numpy", "pyarrow", "rich", "xxhash", "zstandard"}
TEST_LIBRARIES = {"hypothesis", "pytest"}
DRIVERS = {
    "objects": {"fsspec", "s3fs", "aiobotocore"},
    "redis": {"redis"},
    "hbase": {"happybase", "thriftpy2"},
    "cassandra": {"cassandra"},
}
"""Which backend may import which driver; the others need none beyond what the core uses."""
BENEATH = {
    "errors": set(),
    "types": {"errors"},
    "contract": {"errors", "types"},
    "values": {"errors", "types", "contract"},
    "keeper": {"errors", "types", "contract", "values"},
    "moving": {"errors", "types", "contract"},
    "rebalance": {"errors", "types", "contract"},
    "sidecar": {"errors", "types", "contract", "keeper"},
    "dev": {"errors", "contract"},
    "testing": {"errors", "types", "contract", "values", "keeper", "dev"},
    "demo": {"errors", "contract", "values", "keeper"},
    "plot": set(),
    "spark": {"errors", "types", "contract", "sidecar", "rebalance", "dev", "demo"},
    "cli": {
        *("errors", "types", "contract", "values", "keeper", "moving", "rebalance", "sidecar", "dev"),
        *("demo", "spark", "plot"),
    },
}
"""Which rooms of the core each room may import: those it stands on."""
ENDS = {"__init__", "__main__"}
"""What re-exports the public names, and what starts the command."""


@functools.cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Every absolute module name that a file imports, wherever the import stands, with its line."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
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
        room = path.relative_to(BACKENDS).parts[0].removesuffix(".py")
        used = {name.partition(".")[0] for _, name in imports(path)} & drivers
        assert used <= DRIVERS.get(room, set()), f"{path.relative_to(ROOT)} imports {used}"


def test_backends_know_the_contract_and_not_what_stands_on_it() -> None:
    for path in modules(BACKENDS):
        for line, name in imports(path):
            if name.startswith("ckpt."):
                room = name.split(".")[1]
                assert room in {"errors", "types", "contract", "dev"}, f"{path}:{line} imports {name}"


def test_each_room_of_the_core_knows_only_those_it_stands_on() -> None:
    rooms = {path.relative_to(CORE).parts[0].removesuffix(".py") for path in modules(CORE)}
    assert rooms - ENDS <= BENEATH.keys(), "say on which rooms the new one stands"
    for path in modules(CORE):
        room = path.relative_to(CORE).parts[0].removesuffix(".py")
        for line, name in imports(path):
            top, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if top == "ckpt" and other and room not in ENDS | {other}:
                assert other in BENEATH[room], f"{path.relative_to(ROOT)}:{line} imports {name}"


def test_the_contract_knows_nothing_above_it() -> None:
    """Each of these modules may import only those before it."""
    order = ["versions", "disk", "backend", "addresses", "registry"]
    for number, module in enumerate(order):
        used = {name for _, name in imports(CORE / "contract" / f"{module}.py") if name.startswith("ckpt.")}
        known = {f"ckpt.contract.{below}" for below in order[:number]} | {"ckpt.errors", "ckpt.types"}
        assert used <= known, f"ckpt/contract/{module}.py imports {used}"


def test_nothing_imports_the_bench() -> None:
    for path in [*modules(CORE), *modules(BACKENDS)]:
        for line, name in imports(path):
            assert not name.startswith("ckpt_bench"), f"{path.relative_to(ROOT)}:{line}"
