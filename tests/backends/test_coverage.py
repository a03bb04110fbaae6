"""The meta-test: every scheme that can be opened has a conformance subclass and a state machine here."""

from __future__ import annotations

import ast
from pathlib import Path

from ckpt.contract import registry

HERE = Path(__file__).parent


def schemes_under_test() -> set[str]:
    """The schemes of all classes below this folder that derive from BackendConformance."""
    found = set()
    for path in HERE.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if not isinstance(node, ast.ClassDef):
                continue
            if "BackendConformance" not in {ast.unparse(base).rpartition(".")[2] for base in node.bases}:
                continue
            for statement in node.body:
                match statement:
                    case ast.Assign(targets=[ast.Name("scheme")], value=ast.Constant(str(scheme))):
                        found.add(scheme)
    return found


def modules_with_a_machine() -> set[str]:
    return {
        path.stem
        for path in HERE.rglob("test_*.py")
        if path.stem != "test_coverage" and "backend_machine(" in path.read_text()
    }


def test_every_scheme_has_a_conformance_subclass() -> None:
    assert set(registry._BUILTIN) - schemes_under_test() == set()


def test_every_scheme_has_a_machine() -> None:
    for scheme in registry._BUILTIN:
        assert any(scheme in module for module in modules_with_a_machine()), scheme


def test_every_tested_scheme_is_one_that_can_be_opened() -> None:
    assert schemes_under_test() <= set(registry._BUILTIN)
