"""A Hypothesis state machine: whatever the order of calls, a backend answers what a dict would.

Plain and versioned namespaces, branches, retries, truncation, drop, compaction and reopening are mixed at
random and compared with `ckpt.testing.model`. A failing run is shrunk to the shortest sequence of calls.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import unittest
from collections.abc import Callable
from typing import Any, ClassVar, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ckpt.contract.backend import Backend, Compacts
from ckpt.errors import ConfigError, UnsupportedError, VersionNotFoundError
from ckpt.testing.model import ModelNamespace
from ckpt.types import Changes

NAMESPACES = ("a", "b/../é")
_POOL = (b"", b"\0", b"a", b"A", b"ab", b"b/../c", b"\xff", b"k" * 300)

keys = st.sampled_from(_POOL) | st.binary(max_size=6)
values = st.binary(max_size=40)
items = st.dictionaries(keys, values, max_size=6)
some_keys = st.lists(keys, max_size=4)
names = st.sampled_from(NAMESPACES)


class BackendMachine(RuleBasedStateMachine):
    """Compares one backend with the model; `backend_machine` makes a test of it."""

    open_store: ClassVar[Callable[[str], Backend]]
    reopens: ClassVar[bool]

    backend: Backend

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="ckpt-machine-")
        self.model = {name: ModelNamespace() for name in NAMESPACES}
        self.store = os.path.join(self.directory, "store")
        os.mkdir(self.store)
        self.backend = type(self).open_store(self.store)

    def teardown(self) -> None:
        if hasattr(self, "backend"):
            self.backend.close()
            shutil.rmtree(self.directory, ignore_errors=True)

    # -- plain -----------------------------------------------------------------------------------

    @rule(name=names, puts=items)
    def put(self, name: str, puts: dict[bytes, bytes]) -> None:
        if self.model[name].commits:
            with pytest.raises(UnsupportedError):
                self.backend.put_many(name, puts)
        else:
            self.backend.put_many(name, puts)
            self.model[name].plain.update(puts)

    @rule(name=names, gone=some_keys)
    def delete(self, name: str, gone: list[bytes]) -> None:
        if self.model[name].commits:
            with pytest.raises(UnsupportedError):
                self.backend.delete_many(name, gone)
        else:
            self.backend.delete_many(name, gone)
            for key in gone:
                self.model[name].plain.pop(key, None)

    @precondition(lambda self: not any(space.commits for space in self.model.values()))
    @rule(first=items, second=items, gone=some_keys)
    def write_several(self, first: dict[bytes, bytes], second: dict[bytes, bytes], gone: list[bytes]) -> None:
        gone = [key for key in gone if key not in first]
        one, other = NAMESPACES
        self.backend.write_many({one: Changes(first, gone), other: Changes(second)})
        for key in gone:
            self.model[one].plain.pop(key, None)
        self.model[one].plain.update(first)
        self.model[other].plain.update(second)

    # -- versioned -------------------------------------------------------------------------------

    @rule(name=names, puts=items, gone=some_keys, step=st.integers(-3, 2), data=st.data())
    def commit(
        self, name: str, puts: dict[bytes, bytes], gone: list[bytes], step: int, data: st.DataObject
    ) -> None:
        space = self.model[name]
        version = max(1, space.tip_version + step)
        base = data.draw(st.none() | st.sampled_from(space.named()), "base") if space.named() else None
        gone = [key for key in gone if key not in puts]
        refusal: type[Exception] | None = None
        if space.plain:
            refusal = UnsupportedError
        elif version < space.truncated_below:
            refusal = VersionNotFoundError
        elif base is not None and space.commits[base].version >= version:
            refusal = ConfigError
        elif base is None and space.tip and version <= space.tip_version and not space.can_replace(version):
            refusal = VersionNotFoundError
        if refusal is not None:
            with pytest.raises(refusal):
                self.backend.commit(name, version, puts, gone, base=base)
            return
        commit_id = self.backend.commit(name, version, puts, gone, base=base)
        assert commit_id not in space.commits
        space.commit(commit_id, version, base, puts, gone)

    @precondition(lambda self: any(space.commits for space in self.model.values()))
    @rule(name=names, keep_from=st.integers(0, 12))
    def truncate(self, name: str, keep_from: int) -> None:
        space = self.model[name]
        if not space.commits:
            with pytest.raises((UnsupportedError, VersionNotFoundError)):
                self.backend.truncate(name, keep_from)
        elif max(keep_from, space.truncated_below) > space.tip_version:
            with pytest.raises(VersionNotFoundError):
                self.backend.truncate(name, keep_from)
        else:
            self.backend.truncate(name, keep_from)
            space.truncate(keep_from)

    @precondition(lambda self: any(space.commits for space in self.model.values()))
    @rule(name=names, version=st.integers(0, 12), data=st.data())
    def read_as_of(self, name: str, version: int, data: st.DataObject) -> None:
        space = self.model[name]
        if not space.commits:
            return
        commit_id = data.draw(st.none() | st.sampled_from(space.named()), "commit")
        if not space.readable(version, commit_id):
            with pytest.raises(VersionNotFoundError):
                self.backend.scan(name, version=version, commit_id=commit_id)
            return
        self._check(name, version, commit_id)

    # -- both ------------------------------------------------------------------------------------

    @rule(name=names, prefix=st.sampled_from([b"", b"a", b"\xff", b"k"]))
    def scan(self, name: str, prefix: bytes) -> None:
        space = self.model[name]
        expected = space.as_of(None, None) if space.commits else space.plain
        scanned = list(self.backend.scan(name, prefix=prefix))
        assert sorted(scanned) == sorted(i for i in expected.items() if i[0].startswith(prefix))
        if self.backend.capabilities.ordered_scan:
            assert scanned == sorted(scanned)

    @rule(name=names)
    def drop(self, name: str) -> None:
        self.backend.drop(name)
        self.model[name] = ModelNamespace()

    @rule()
    def flush(self) -> None:
        self.backend.flush()

    @rule()
    def compact(self) -> None:
        if isinstance(self.backend, Compacts):
            self.backend.compact()
            self.check_everything()

    @rule()
    def reopen(self) -> None:
        if type(self).reopens:
            self.backend.close()
            self.backend = type(self).open_store(self.store)
            self.check_everything()

    @rule()
    def verify(self) -> None:
        assert list(self.backend.verify()) == []

    @rule()
    def check_everything(self) -> None:
        for name, space in self.model.items():
            self._check(name)
            for commit_id in space.named():
                self._check(name, None, commit_id)

    @invariant()
    def lists_agree(self) -> None:
        if not hasattr(self, "backend"):
            return
        assert self.backend.namespaces() == sorted(n for n, s in self.model.items() if s.plain or s.commits)
        for name, space in self.model.items():
            order = {commit_id: number for number, commit_id in enumerate(space.commits)}
            expected = sorted(space.named(), key=lambda i: (space.commits[i].version, order[i]))
            assert [commit.id for commit in self.backend.versions(name)] == expected

    def _check(self, name: str, version: int | None = None, commit_id: str | None = None) -> None:
        space = self.model[name]
        expected = space.as_of(version, commit_id) if space.commits else space.plain
        asked = [*expected, *_POOL]
        assert dict(self.backend.scan(name, version=version, commit_id=commit_id)) == expected
        assert self.backend.get_many(name, asked, version=version, commit_id=commit_id) == expected


def backend_machine(
    open_store: Callable[[str], Backend], *, reopens: bool = True, max_examples: int = 25, steps: int = 30
) -> type[unittest.TestCase]:
    """A test case that compares the store which `open_store(directory)` opens with the model.

    Subclass the result, or assign it to a name that pytest collects. With `reopens`, the same directory is
    opened again after a close and must hold everything.
    """

    class Machine(BackendMachine):
        pass

    Machine.open_store = staticmethod(open_store)
    Machine.reopens = reopens
    case: Any = Machine.TestCase
    case.settings = settings(
        max_examples=max_examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return cast("type[unittest.TestCase]", case)
