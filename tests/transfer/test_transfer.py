"""Copy ends with equal stores, whatever was there before and wherever it was interrupted; diff proves it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ckpt
from ckpt.errors import CkptError, ConfigError, CorruptRecordError, UnsupportedError, VersionNotFoundError
from ckpt.moving.copying import DifferenceKind, Progress, copy, diff
from ckpt_backends.memory import MemoryBackend
from tests.effort import effort

keys = st.binary(max_size=3)
values = st.binary(max_size=4)
states = st.dictionaries(keys, values, max_size=6)


@pytest.fixture
def source() -> Iterator[MemoryBackend]:
    with MemoryBackend() as backend:
        yield backend


@pytest.fixture
def target() -> Iterator[MemoryBackend]:
    with MemoryBackend() as backend:
        yield backend


class Killed(BaseException):
    """Stands for kill -9: no handler of the code under test may catch it."""


class Dies(MemoryBackend):
    """A target that dies at its n-th write, before or after the write took effect."""

    def __init__(self, name: str, writes: int, *, after: bool) -> None:
        super().__init__(name)
        self.writes, self.after = writes, after

    def _count(self) -> bool:
        self.writes -= 1
        if self.writes == 0 and not self.after:
            raise Killed
        return self.writes == 0

    def put_many(self, namespace: str, items: Mapping[bytes, bytes], *, ttl_s: float | None = None) -> None:
        dies = self._count()
        super().put_many(namespace, items, ttl_s=ttl_s)
        if dies:
            raise Killed

    def commit(self, *args: Any, **named: Any) -> ckpt.CommitId:
        dies = self._count()
        commit_id = super().commit(*args, **named)
        if dies:
            raise Killed
        return commit_id

    def truncate(self, namespace: str, keep_from: int) -> None:
        dies = self._count()
        super().truncate(namespace, keep_from)
        if dies:
            raise Killed


def grow(backend: MemoryBackend, choices: list[tuple[int, int, dict[bytes, bytes], int]]) -> None:
    """A random history: commits on the tip, again at old versions, as branches, and truncations."""
    for kind, version, state, pick in choices:
        listed = backend.versions("s")
        base = listed[pick % len(listed)].id if listed and kind == 1 else None
        try:
            if kind == 3:
                backend.truncate("s", version)
                continue
            seen = dict(backend.scan("s", commit_id=base)) if listed else {}
            gone = sorted(seen.keys() - state.keys())[:2]
            backend.commit("s", version, state, gone, base=base)
        except (VersionNotFoundError, ConfigError):
            continue


histories = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 6), states, st.integers(0, 20)), min_size=1, max_size=12
)


def same_reads(source: MemoryBackend, target: MemoryBackend) -> None:
    """What a reader sees without naming a commit, at every version: the same state or the same refusal."""
    for version in [None, *range(8)]:
        seen: list[object] = []
        for backend in (source, target):
            try:
                seen.append(dict(backend.scan("s", version=version)))
            except VersionNotFoundError:
                seen.append("refused")
        assert seen[0] == seen[1]


class TestPlain:
    def test_everything_arrives_and_nothing_else(self, source: MemoryBackend, target: MemoryBackend) -> None:
        source.put_many("words", {b"be": b"2", b"\x00\xff": b""})
        source.put_many("über", {b"": b"x" * 100_000})
        target.put_many("mine", {b"k": b"v"})
        done = copy(source, target)
        assert [(p.namespace, p.copied_keys) for p in done] == [("words", 2), ("über", 1)]
        assert dict(target.scan("mine")) == {b"k": b"v"}
        assert dict(target.scan("words")) == dict(source.scan("words"))
        assert [str(d) for d in diff(source, target)] == ["namespace 'mine': only in target"]

    def test_only_the_chosen_namespaces(self, source: MemoryBackend, target: MemoryBackend) -> None:
        source.put_many("a", {b"k": b"1"})
        source.put_many("b", {b"k": b"1"})
        copy(source, target, namespaces=["b"])
        assert target.namespaces() == ["b"]

    def test_an_unknown_namespace_is_named_with_the_nearest(
        self, source: MemoryBackend, target: MemoryBackend
    ) -> None:
        source.put_many("words", {b"k": b"1"})
        with pytest.raises(ConfigError, match=r"no namespace 'wrods'.*did you mean 'words'"):
            copy(source, target, namespaces=["wrods"])
        with pytest.raises(ConfigError, match="no namespace 'wrods'"):
            list(diff(source, target, namespaces=["wrods"]))

    @pytest.mark.parametrize("held", [{b"be": b"9"}, {b"other": b"1"}])
    def test_other_data_is_refused_before_a_write(
        self, source: MemoryBackend, target: MemoryBackend, held: dict[bytes, bytes]
    ) -> None:
        source.put_many("words", {b"be": b"2", b"or": b"1"})
        target.put_many("words", held)
        with pytest.raises(ConfigError, match=r"holds other data .*--overwrite"):
            copy(source, target)
        assert dict(target.scan("words")) == held
        [done] = copy(source, target, overwrite=True)
        assert list(diff(source, target)) == []
        assert done.removed_keys == (b"other" in held)

    def test_a_second_run_writes_nothing(self, source: MemoryBackend, target: MemoryBackend) -> None:
        source.put_many("words", {b"%d" % i: b"v" for i in range(3000)})
        copy(source, target)
        [again] = copy(source, target)
        assert (again.copied_keys, again.present_keys) == (0, 3000)

    def test_progress_grows_in_batches(self, source: MemoryBackend, target: MemoryBackend) -> None:
        source.put_many("words", {b"%d" % i: b"v" for i in range(3000)})
        seen: list[int] = []
        copy(source, target, on_progress=lambda p: seen.append(p.copied_keys))
        assert seen == sorted(seen)
        assert len(seen) >= 3
        assert seen[-1] == 3000

    def test_a_target_that_forgets_is_caught(self, source: MemoryBackend) -> None:
        class Forgets(MemoryBackend):
            def put_many(self, namespace: str, items: Mapping[bytes, bytes], **named: Any) -> None:
                super().put_many(namespace, dict(list(items.items())[1:]), **named)

        source.put_many("words", {b"be": b"secret", b"or": b"1"})
        with Forgets() as target, pytest.raises(CorruptRecordError, match="did not give back") as caught:
            copy(source, target)
        assert "secret" not in str(caught.value)

    @given(ours=states, theirs=states)
    def test_diff_finds_exactly_what_differs(
        self, ours: dict[bytes, bytes], theirs: dict[bytes, bytes]
    ) -> None:
        with MemoryBackend() as source, MemoryBackend() as target:
            for backend, state in ((source, ours), (target, theirs)):
                backend.put_many("n", {b"always there": b"", **state})
            found = {(d.key, d.found) for d in diff(source, target)}
        expected = {(k, DifferenceKind.ONLY_IN_SOURCE) for k in ours.keys() - theirs.keys()}
        expected |= {(k, DifferenceKind.ONLY_IN_TARGET) for k in theirs.keys() - ours.keys()}
        expected |= {(k, DifferenceKind.DIFFERS) for k in ours.keys() & theirs.keys() if ours[k] != theirs[k]}
        assert found == expected


class TestVersioned:
    def test_ids_chains_branches_and_tip_are_kept(self, source: MemoryBackend, target: MemoryBackend) -> None:
        a = source.commit("s", 1, {b"k": b"1", b"x": b"1"})
        source.commit("s", 2, {b"k": b"2"}, [b"x"], commit_id="attempt-1")
        e = source.commit("s", 2, {b"k": b"other"}, base=a, commit_id="attempt-2")
        source.commit("s", 3, {b"y": b"3"}, base="attempt-1")
        [done] = copy(source, target)
        assert done.copied_commits == 4
        assert [(c.id, c.version, c.base) for c in target.versions("s")] == [
            (c.id, c.version, c.base) for c in source.versions("s")
        ]
        assert dict(target.scan("s")) == {b"k": b"2", b"y": b"3"}
        assert dict(target.scan("s", commit_id=e)) == {b"k": b"other", b"x": b"1"}
        assert list(diff(source, target)) == []

    def test_a_truncated_version_is_refused_by_the_copy_too(
        self, source: MemoryBackend, target: MemoryBackend
    ) -> None:
        for version in range(1, 7):
            source.commit("s", version, {b"k": b"%d" % version})
        source.truncate("s", 4)
        copy(source, target)
        with pytest.raises(VersionNotFoundError):
            target.get_many("s", [b"k"], version=3)
        assert target.get_many("s", [b"k"], version=4) == {b"k": b"4"}

    def test_new_commits_are_added_to_an_earlier_copy(
        self, source: MemoryBackend, target: MemoryBackend
    ) -> None:
        source.commit("s", 1, {b"k": b"1"})
        copy(source, target)
        source.commit("s", 2, {b"k": b"2"})
        [done] = copy(source, target)
        assert (done.present_commits, done.copied_commits) == (1, 1)
        assert list(diff(source, target)) == []

    def test_a_foreign_history_is_refused_or_replaced(
        self, source: MemoryBackend, target: MemoryBackend
    ) -> None:
        source.commit("s", 1, {b"k": b"1"})
        target.commit("s", 1, {b"k": b"1"})
        with pytest.raises(ConfigError, match="holds other data"):
            copy(source, target)
        copy(source, target, overwrite=True)
        assert list(diff(source, target)) == []

    def test_an_equal_id_with_another_state_is_refused(
        self, source: MemoryBackend, target: MemoryBackend
    ) -> None:
        source.commit("s", 1, {b"k": b"1"}, commit_id="a")
        target.commit("s", 1, {b"k": b"2"}, commit_id="a")
        assert [(d.what, d.found) for d in diff(source, target)] == [("key", DifferenceKind.DIFFERS)]
        with pytest.raises(ConfigError, match="holds other data"):
            copy(source, target)

    @pytest.mark.parametrize("versioned", ["source", "target"])
    def test_plain_against_versioned(
        self, source: MemoryBackend, target: MemoryBackend, versioned: str
    ) -> None:
        one, other = (source, target) if versioned == "source" else (target, source)
        one.commit("s", 1, {b"k": b"1"})
        other.put_many("s", {b"k": b"1"})
        assert [d.what for d in diff(source, target)] == ["kind (plain or versioned)"]
        with pytest.raises(ConfigError, match="holds other data"):
            copy(source, target)
        copy(source, target, overwrite=True)
        assert list(diff(source, target)) == []

    @given(choices=histories)
    @settings(max_examples=effort(60, 300), deadline=None)
    def test_any_history_is_copied_or_refused(
        self, choices: list[tuple[int, int, dict[bytes, bytes], int]]
    ) -> None:
        with MemoryBackend() as source, MemoryBackend() as target:
            grow(source, choices)
            try:
                copy(source, target)
            except UnsupportedError:
                return
            assert list(diff(source, target)) == []
            same_reads(source, target)


class TestResume:
    @given(
        choices=histories,
        plain=st.dictionaries(keys, values, max_size=6),
        deaths=st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=4),
    )
    @settings(max_examples=effort(40, 300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_a_killed_copy_goes_on_where_it_was(
        self,
        choices: list[tuple[int, int, dict[bytes, bytes], int]],
        plain: dict[bytes, bytes],
        deaths: list[tuple[int, bool]],
    ) -> None:
        name = "resume-target"
        with MemoryBackend() as source, MemoryBackend(name) as target:
            for left_over in target.namespaces():
                target.drop(left_over)
            if plain:
                source.put_many("plain", plain)
            grow(source, choices)
            try:
                for writes, after in deaths:
                    try:
                        copy(source, Dies(name, writes, after=after))
                    except Killed:
                        continue
                copy(source, target)
            except UnsupportedError:
                return
            assert list(diff(source, target)) == []

    def test_what_was_copied_is_not_copied_again(self, source: MemoryBackend, target: MemoryBackend) -> None:
        source.put_many("words", {b"%d" % i: b"v" for i in range(5000)})

        def stop(progress: Progress) -> None:
            if progress.copied_keys >= 2000:
                raise Killed

        with pytest.raises(Killed):
            copy(source, target, on_progress=stop)
        [done] = copy(source, target)
        assert done.present_keys >= 2000
        assert done.copied_keys + done.present_keys == 5000


def test_the_source_is_never_written(source: MemoryBackend, target: MemoryBackend) -> None:
    class ReadOnly(MemoryBackend):
        def write_many(self, *args: Any, **named: Any) -> None:
            raise CkptError("the source was written")

        commit = delete_many = truncate = drop = claim = write_many  # type: ignore[assignment]

    with MemoryBackend("never-written") as writer, ReadOnly("never-written") as reader:
        writer.put_many("words", {b"be": b"2"})
        writer.commit("s", 1, {b"k": b"v"})
        copy(reader, target, overwrite=True)
        assert list(diff(reader, target)) == []
