"""Copy between any two backends so that both end equal, and compare them; the source is never written.

A copy reads every value back before it counts it. It may be killed at any instant and run again: it finds
what is already there, compares it, and goes on. It refuses a target namespace that holds anything which is
not in the source, unless it is told to overwrite; then the target ends equal to the source all the same.

Of a versioned namespace every commit that a reader may name is copied with its id, version, base and the
state it shows, and the truncation of the source is repeated. Garbage is not copied. A commit is written
whole, so its changes are held in memory; everything else goes in bounded batches.

Expiry times are not part of the contract's answers: a copied checkpoint has no time to live.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ckpt.contract.addresses import suggestion
from ckpt.contract.backend import Backend
from ckpt.contract.versions import Commit, History
from ckpt.errors import ConfigError, CorruptRecordError, shown_key
from ckpt.moving.replay import HistoryReplay, ReplayStep, plan_replay
from ckpt.types import CommitId

_BATCH_KEYS = 1024
_BATCH_BYTES = 8 << 20


class DifferenceKind(StrEnum):
    """How one thing differs between two stores."""

    ONLY_IN_SOURCE = "only in source"
    ONLY_IN_TARGET = "only in target"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which two stores differ: a namespace, a commit, a tip or a key."""

    found: DifferenceKind
    namespace: str
    what: str = "namespace"
    key: bytes | None = None
    commit_id: CommitId | None = None

    def __str__(self) -> str:
        name = f" {shown_key(self.key)}" if self.key is not None else ""
        at = f" at commit {self.commit_id}" if self.commit_id is not None and self.what != "commit" else ""
        name = f" {self.commit_id}" if self.what == "commit" else name
        where = "" if self.what == "namespace" else f" of namespace {self.namespace!r}"
        what = f"namespace {self.namespace!r}" if self.what == "namespace" else f"{self.what}{name}"
        return f"{what}{where}{at}: {self.found.value}"


@dataclass(slots=True)
class Progress:
    """What a copy of one namespace has done so far; the same object is shown again and again."""

    namespace: str
    copied_keys: int = 0
    """Keys written and read back; for commits, keys put or deleted."""
    copied_bytes: int = 0
    present_keys: int = 0
    """Keys that the target already held with the same value."""
    copied_commits: int = 0
    present_commits: int = 0
    removed_keys: int = 0
    """Keys that only the target held, removed because the caller asked to overwrite."""


def copy(
    source: Backend,
    target: Backend,
    *,
    namespaces: Iterable[str] | None = None,
    overwrite: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> list[Progress]:
    """Make the target's namespaces equal to the source's, verified; one final Progress per namespace.

    Examples
    --------
    >>> import ckpt
    >>> source, target = ckpt.open_backend("memory://"), ckpt.open_backend("memory://")
    >>> source.put_many("words", {b"be": b"2", b"or": b"1"})
    >>> [done] = copy(source, target)
    >>> done.copied_keys, list(diff(source, target))
    (2, [])
    """
    show = on_progress or (lambda _: None)
    chosen = _chosen(source, namespaces)
    return [_copy_namespace(source, target, name, overwrite, show) for name in chosen]


def diff(
    source: Backend, target: Backend, *, namespaces: Iterable[str] | None = None
) -> Iterator[Difference]:
    """Every difference between two stores, found in bounded memory; none means that they are equal.

    Examples
    --------
    >>> import ckpt
    >>> source, target = ckpt.open_backend("memory://"), ckpt.open_backend("memory://")
    >>> source.put_many("words", {b"be": b"2"})
    >>> target.put_many("words", {b"be": b"3"})
    >>> [str(d) for d in diff(source, target)]
    ["key b'be' of namespace 'words': differs"]
    """
    in_source, in_target = set(source.namespaces()), set(target.namespaces())
    chosen = sorted(in_source | in_target if namespaces is None else set(namespaces))
    for name in chosen:
        if name not in in_source and name not in in_target:
            raise ConfigError(
                f"no namespace {name!r} in {source.address} or {target.address}; "
                f"{suggestion(name, in_source | in_target)}"
            )
        if name not in in_target:
            yield Difference(DifferenceKind.ONLY_IN_SOURCE, name)
        elif name not in in_source:
            yield Difference(DifferenceKind.ONLY_IN_TARGET, name)
        else:
            yield from _diff_namespace(source, target, name)


# -- one consistent state ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _State:
    """What one read sees: a plain namespace, or a versioned one as of a commit."""

    backend: Backend
    namespace: str
    commit_id: CommitId | None = None

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        return self.backend.get_many(self.namespace, keys, commit_id=self.commit_id)

    def batches(self) -> Iterator[dict[bytes, bytes]]:
        batch: dict[bytes, bytes] = {}
        size_bytes = 0
        for key, value in self.backend.scan(self.namespace, commit_id=self.commit_id):
            batch[key] = value
            size_bytes += len(key) + len(value)
            if len(batch) >= _BATCH_KEYS or size_bytes >= _BATCH_BYTES:
                yield batch
                batch, size_bytes = {}, 0
        if batch:
            yield batch


def _diff_states(source: _State, target: _State) -> Iterator[Difference]:
    for batch in source.batches():
        held = target.get(batch)
        for key, value in batch.items():
            if key not in held:
                yield _key_difference(DifferenceKind.ONLY_IN_SOURCE, source, key)
            elif held[key] != value:
                yield _key_difference(DifferenceKind.DIFFERS, source, key)
    for batch in target.batches():
        held = source.get(batch)
        for key in batch:
            if key not in held:
                yield _key_difference(DifferenceKind.ONLY_IN_TARGET, source, key)


def _key_difference(found: DifferenceKind, state: _State, key: bytes) -> Difference:
    return Difference(found, state.namespace, "key", key, state.commit_id)


def _diff_namespace(source: Backend, target: Backend, name: str) -> Iterator[Difference]:
    source_history, target_history = source.history(name), target.history(name)
    ours, theirs = source_history.commits(), target_history.commits()
    if not ours and not theirs:
        yield from _diff_states(_State(source, name), _State(target, name))
        return
    if not ours or not theirs:
        yield Difference(DifferenceKind.DIFFERS, name, "kind (plain or versioned)")
        return
    in_source, in_target = {c.id: c for c in ours}, {c.id: c for c in theirs}
    for commit in ours:
        if commit.id not in in_target:
            yield Difference(DifferenceKind.ONLY_IN_SOURCE, name, "commit", commit_id=commit.id)
        elif not _same_place(commit, in_target[commit.id], in_source):
            yield Difference(DifferenceKind.DIFFERS, name, "version or base", commit_id=commit.id)
    for commit in theirs:
        if commit.id not in in_source:
            yield Difference(DifferenceKind.ONLY_IN_TARGET, name, "commit", commit_id=commit.id)
    if _end(source_history) != _end(target_history):
        yield Difference(DifferenceKind.DIFFERS, name, "tip or truncation")
    for commit in ours:
        if commit.id in in_target:
            yield from _diff_states(_State(source, name, commit.id), _State(target, name, commit.id))


def _end(history: History) -> tuple[int, CommitId]:
    """From which version on a history is kept, and where a read without a commit id starts."""
    assert history.tip is not None
    return history.truncated_below, history.tip.id


def _same_place(ours: Commit, theirs: Commit, listed: Mapping[CommitId, Commit]) -> bool:
    """Same version and same base; a base that is garbage in the source cannot be named, nor compared."""
    is_garbage = ours.base is not None and ours.base not in listed
    return ours.version == theirs.version and (is_garbage or ours.base == theirs.base)


# -- copying -------------------------------------------------------------------------------------


def _chosen(source: Backend, namespaces: Iterable[str] | None) -> list[str]:
    known = source.namespaces()
    if namespaces is None:
        return known
    chosen = list(dict.fromkeys(namespaces))
    for name in chosen:
        if name not in known:
            raise ConfigError(f"no namespace {name!r} in {source.address}; {suggestion(name, known)}")
    return chosen


def _copy_namespace(
    source: Backend, target: Backend, name: str, overwrite: bool, show: Callable[[Progress], None]
) -> Progress:
    progress = Progress(name)
    show(progress)
    history, held = source.history(name), target.versions(name)
    commits = history.commits()
    exists = name in target.namespaces()
    if commits:
        truncated_below, tip_id = _end(history)
        replay = plan_replay(commits, tip_id, truncated_below)
        done = replay.position(held) if held or not exists else None
        other = None if done is None else _first_other(source, target, name, replay.steps[:done])
        if done is None or other is not None:
            _require_overwrite(target, name, overwrite, str(other or "its history is not part of this one"))
            target.drop(name)
            done = 0
        progress.present_commits = sum(not step.is_stand_in for step in replay.steps[:done])
        _copy_commits(source, target, replay, done, progress, show)
    else:
        if held:
            _require_overwrite(target, name, overwrite, "it is versioned and the source's is plain")
            target.drop(name)
        elif exists and not overwrite:
            _refuse_other_keys(_State(source, name), _State(target, name))
        _copy_plain(_State(source, name), _State(target, name), overwrite and exists, progress, show)
    target.flush()
    return progress


def _copy_plain(
    source: _State, target: _State, overwrite: bool, progress: Progress, show: Callable[[Progress], None]
) -> None:
    for batch in source.batches():
        held = target.get(batch)
        new = {key: value for key, value in batch.items() if held.get(key) != value}
        if new:
            target.backend.put_many(target.namespace, new)
            _require_equal(target, new)
        progress.present_keys += len(batch) - len(new)
        progress.copied_keys += len(new)
        progress.copied_bytes += sum(len(key) + len(value) for key, value in new.items())
        show(progress)
    if overwrite:
        for batch in target.batches():
            extra = list(batch.keys() - source.get(batch).keys())
            if extra:
                target.backend.delete_many(target.namespace, extra)
                progress.removed_keys += len(extra)
                show(progress)


def _copy_commits(
    source: Backend,
    target: Backend,
    replay: HistoryReplay,
    done: int,
    progress: Progress,
    show: Callable[[Progress], None],
) -> None:
    name = progress.namespace
    for step in replay.steps[done:]:
        puts, deletes = ({}, []) if step.is_stand_in else _changes(source, target, name, step)
        target.commit(name, step.version, puts, deletes, base=step.base, commit_id=step.commit_id)
        if not step.is_stand_in:
            _require_equal(_State(target, name, step.commit_id), puts, deletes)
            progress.copied_commits += 1
        progress.copied_keys += len(puts) + len(deletes)
        progress.copied_bytes += sum(len(key) + len(value) for key, value in puts.items())
        show(progress)
    if replay.truncated_below:
        target.truncate(name, replay.truncated_below)


def _changes(
    source: Backend, target: Backend, name: str, step: ReplayStep
) -> tuple[dict[bytes, bytes], list[bytes]]:
    """What turns the state that the target shows at the step's parent into the source's at its commit."""
    wanted = _State(source, name, step.commit_id)
    puts: dict[bytes, bytes] = {}
    if step.parent is None:
        for batch in wanted.batches():
            puts.update(batch)
        return puts, []
    parent = _State(target, name, step.parent)
    for batch in wanted.batches():
        held = parent.get(batch)
        puts.update((key, value) for key, value in batch.items() if held.get(key) != value)
    deletes: list[bytes] = []
    for batch in parent.batches():
        kept = wanted.get(batch)
        deletes.extend(key for key in batch if key not in kept)
    return puts, deletes


def _first_other(
    source: Backend, target: Backend, name: str, made: Iterable[ReplayStep]
) -> Difference | None:
    for step in made:
        if not step.is_stand_in:
            ours, theirs = _State(source, name, step.commit_id), _State(target, name, step.commit_id)
            for difference in _diff_states(ours, theirs):
                return difference
    return None


def _refuse_other_keys(source: _State, target: _State) -> None:
    for batch in target.batches():
        held = source.get(batch)
        for key, value in batch.items():
            if held.get(key) != value:
                _require_overwrite(
                    target.backend, target.namespace, False, f"key {shown_key(key)} is not the source's"
                )


def _require_overwrite(target: Backend, name: str, overwrite: bool, reason: str) -> None:
    if not overwrite:
        raise ConfigError(
            f"namespace {name!r} of {target.address} holds other data ({reason}); "
            "copy elsewhere, or overwrite it (overwrite=True, --overwrite)"
        )


def _require_equal(target: _State, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None:
    """Read back what was written; a store that answers anything else is not to be trusted with a copy."""
    held = target.get([*puts, *deletes])
    if held != puts:
        wrong = next(key for key in [*puts, *deletes] if held.get(key) != puts.get(key))
        raise CorruptRecordError(
            f"{target.backend.address} did not give back what was written to key {shown_key(wrong)} of "
            f"namespace {target.namespace!r}; run `ckpt verify` on it, then copy again"
        )
