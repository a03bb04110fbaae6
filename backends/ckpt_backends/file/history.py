"""The commits of one namespace in one directory: a reader believes only what is whole and not forgotten.

```
commits/0000000000000007-5f1c….commit   one commit (`file_commits`), renamed into place when it is durable
commits/0000000000000007-5f1c….floor    the same commit, standing for all its ancestors, after a truncation
settled                                 what the last truncation decided: the marker that makes it true
```

The number is the commit's sequence; the random part makes every name unique for ever, so what was read from
a file may be cached under its name. A truncation writes the floors, then replaces `settled`, then removes
what is forgotten; a crash in between leaves either the old truth or the new one, and files that no reader
uses, which the next truncation removes.

Readers take no lock: they list the directory between two equal readings of `settled`, and begin again if a
file that should be there was forgotten meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from ckpt.contract.disk import Disk
from ckpt.contract.versions import Commit, History, Settled
from ckpt.errors import CorruptRecordError
from ckpt.types import CommitId
from ckpt_backends.file.commits import Change, CommitFile, squashed, write_commit
from ckpt_backends.file.records import Aside, DamagedFileError, decode_note, encode_note, read_whole

ResultT = TypeVar("ResultT")

_COMMIT, _FLOOR = ".commit", ".floor"
COMMIT_NAME = re.compile(r"([0-9a-f]{16}-[0-9a-f]{32})\.(commit|floor)")
_OPEN_AT_ONCE = 64
"""A scan of a longer chain is read into memory, because it would hold that many descriptors."""
_ATTEMPTS = 20


class _ChangedMeanwhileError(Exception):
    """A commit, a truncation or a drop by another process overtook this read; it begins again."""


class _MissingFileError(Exception):
    """A commit's file that should be there is not."""


@dataclass(frozen=True, slots=True)
class _HistoryView:
    """The history at one instant, and the file behind each of its commits."""

    history: History
    files: Mapping[CommitId, CommitFile]

    def chain(self, commit: Commit | None) -> list[CommitFile]:
        return [self.files[c.id] for c in self.history.chain(commit)]


class CommitDirectory:
    """The versioned half of a namespace; safe to read from threads, written under the namespace's lock."""

    def __init__(self, disk: Disk, path: str, namespace: str, aside: Aside, *, durable: bool) -> None:
        self._disk = disk
        self._namespace = namespace
        self._aside = aside
        self._durable = durable
        self.path = path
        self.commits_path = os.path.join(path, "commits")
        self.settled_path = os.path.join(path, "settled")
        self._files: dict[str, CommitFile] = {}
        self._cached: tuple[object, _HistoryView] | None = None
        self._lock = threading.Lock()

    def exists(self) -> bool:
        """Whether the namespace has a commit."""
        return bool(self.names())

    def settled(self) -> Settled:
        """What the last truncation decided."""
        return self._current(*self._listed())[0]

    def current_names(self) -> list[str]:
        """The files that count, whether they are there or not."""
        return self._current(*self._listed())[1]

    def names(self) -> list[str]:
        """The files of commits and floors, forgotten ones included."""
        try:
            return [name for name in os.listdir(self.commits_path) if COMMIT_NAME.fullmatch(name)]
        except FileNotFoundError:
            return []

    # -- reading ---------------------------------------------------------------------------------

    def history(self) -> History:
        """The history as it is now; the caller does not change it."""
        return self._consistent(lambda view: view.history)

    def get_many(self, keys: list[bytes], version: int | None, commit_id: str | None) -> dict[bytes, bytes]:
        """The values as of a version; looks for each key in the newest commit first."""

        def read(view: _HistoryView) -> dict[bytes, bytes]:
            found: dict[bytes, bytes | None] = {}
            missing = list(dict.fromkeys(keys))
            for file in view.chain(view.history.resolve(version, commit_id)):
                if not missing:
                    break
                found.update(file.find(missing))
                missing = [key for key in missing if key not in found]
            return {key: value for key, value in found.items() if value is not None}

        return self._consistent(read)

    def scan(
        self, prefix: bytes, version: int | None, commit_id: str | None
    ) -> Iterator[tuple[bytes, bytes]]:
        """The state as of a version, in order; every file is open when this returns."""

        def read(view: _HistoryView) -> Iterator[tuple[bytes, bytes]]:
            chain = view.chain(view.history.resolve(version, commit_id))
            scan = self._state(chain, prefix)
            next(scan)
            return iter(list(scan)) if len(chain) > _OPEN_AT_ONCE else scan

        return self._consistent(read)

    def _state(self, chain: list[CommitFile], prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yields once when all files are open, so that nothing that happens later is seen; then the state."""
        with contextlib.ExitStack() as opened:
            deltas: list[Iterator[Change]] = []
            for file in chain:
                fd = file.open()
                opened.callback(self._disk.close, fd)
                deltas.append(self._named(file, file.changes(fd)))
            yield b"", b""
            for key, value in squashed(deltas):
                if key.startswith(prefix):
                    yield key, value
                elif key > prefix:
                    break

    def _named(self, file: CommitFile, changes: Iterator[Change]) -> Iterator[Change]:
        try:
            yield from changes
        except DamagedFileError as damage:
            raise self._corrupt(file.path, str(damage)) from damage

    def _consistent(self, read: Callable[[_HistoryView], ResultT]) -> ResultT:
        for attempt in range(_ATTEMPTS):
            try:
                return read(self._view(last_try=attempt == _ATTEMPTS - 1))
            except (_ChangedMeanwhileError, FileNotFoundError):
                continue
            except DamagedFileError as damage:
                raise self._corrupt(self.commits_path, str(damage)) from damage
        return read(self._view(last_try=True))

    def _view(self, *, last_try: bool = False) -> _HistoryView:
        note, names = self._listed()
        with self._lock:
            seen = (note, frozenset(names))
            if self._cached is None or self._cached[0] != seen:
                try:
                    self._cached = (seen, self._built(note, names))
                except _MissingFileError as missing:
                    if not last_try:  # a listing made while commits arrive may hold the later of two only
                        raise _ChangedMeanwhileError from missing
                    raise self._corrupt(self.commits_path, str(missing)) from missing
            return self._cached[1]

    def _listed(self) -> tuple[bytes | None, list[str]]:
        """What is settled and which files there are, both at one instant."""
        note = read_whole(self._disk, self.settled_path)
        while True:
            names = self.names()
            before, note = note, read_whole(self._disk, self.settled_path)
            if before == note:
                return note, names

    def _built(self, note: bytes | None, names: list[str]) -> _HistoryView:
        settled, current = self._current(note, names)
        if lost := set(current) - set(names):
            raise _MissingFileError(f"the file {min(lost)} is missing")
        self._files = {name: self._files.get(name) or self.open_file(name) for name in current}
        files = {file.commit.id: file for file in self._files.values()}
        for file in files.values():
            if file.commit.base is not None and file.commit.base not in files:
                raise _MissingFileError(
                    f"the file of commit {file.commit.base} is missing, on which {file.commit.id} builds"
                )
        history = History((file.commit for file in files.values()), settled=settled)
        return _HistoryView(history, files)

    def _corrupt(self, path: str, reason: str) -> CorruptRecordError:
        return CorruptRecordError(f"{path} (namespace {self._namespace!r}): {reason}; run `ckpt repair`")

    def _current(self, note: bytes | None, names: list[str]) -> tuple[Settled, list[str]]:
        """What is settled, and the files that count: those it keeps, and commits that came later."""
        fields: dict[str, Any] = {"kept": (), "floors": (), "garbage": ()}
        try:
            fields |= {} if note is None else decode_note(note)
        except DamagedFileError as damage:
            raise self._corrupt(self.settled_path, str(damage)) from damage
        kept, floors = set(fields.pop("kept")), set(fields.pop("floors"))
        settled = Settled(**fields | {"garbage": tuple(fields["garbage"])})
        later = {name for name in names if sequence_of(name) > settled.through_sequence}
        commits = {name for name in later if name.endswith(_COMMIT)}
        if {name.removesuffix(_FLOOR) + _COMMIT for name in later - commits} - commits:
            raise self._corrupt(self.settled_path, "it is missing, and truncated versions depend on it")
        current = {stem + (_FLOOR if stem in floors else _COMMIT) for stem in kept}
        return settled, sorted(current | commits)

    def open_file(self, name: str) -> CommitFile:
        """One commit's file by its name; CorruptRecordError if it cannot be believed."""
        path = os.path.join(self.commits_path, name)
        try:
            file = CommitFile(self._disk, path)
        except DamagedFileError as damage:
            raise self._corrupt(path, str(damage)) from damage
        if file.namespace != self._namespace:
            raise self._corrupt(path, f"it belongs to namespace {file.namespace!r}")
        return file

    # -- writing, under the namespace's lock -----------------------------------------------------

    def commit(
        self, version: int, base: str | None, commit_id: str | None, delta: Mapping[bytes, bytes | None]
    ) -> tuple[CommitId, list[str]]:
        """Add one commit, whole or not at all; its id, and what a flush must sync."""
        view = self._consistent(lambda view: view)
        commit = view.history.prepare(version, base, commit_id)
        self._disk.make_dirs(self.commits_path)
        name = f"{commit.sequence:016x}-{uuid.uuid4().hex}{_COMMIT}"
        path = os.path.join(self.commits_path, name)
        self._write(path, commit, sorted(delta.items()))
        try:
            if self._durable:
                self._disk.sync_dir(self.commits_path)
        except OSError:
            # It may or may not survive a crash, so it must not be believed: take it back.
            with contextlib.suppress(OSError):
                self._disk.unlink(path)
                self._disk.sync_dir(self.commits_path)
            raise
        return commit.id, [path]

    def truncate(self, keep_from: int) -> None:
        """Forget; always durable, because what is removed afterwards cannot come back."""
        view = self._consistent(lambda view: view)
        history = view.history
        plan = history.plan_truncation(keep_from)
        stems = {i: os.path.splitext(os.path.basename(file.path))[0] for i, file in view.files.items()}
        floors = {stem for i, stem in stems.items() if view.files[i].path.endswith(_FLOOR)}
        for commit_id in plan.floors:
            floor = history[commit_id]
            if floor.base is not None:
                state = self._state(view.chain(floor))
                next(state)
                path = os.path.join(self.commits_path, stems[commit_id] + _FLOOR)
                self._write(path, replace(floor, base=None), state, durable=True)
                floors.add(stems[commit_id])
        after = History(history.stored(), settled=history.settled)
        after.apply(plan)
        kept = {stems[commit.id] for commit in after.stored()}
        if not self._durable:  # `settled` must not outlive a file that it speaks of
            for commit in after.stored():
                self._sync(view.files[commit.id].path)
        self._disk.sync_dir(self.commits_path)
        self.settle(after.settled, kept, floors & kept)
        self.remove_forgotten()

    def settle(self, settled: Settled, kept: Iterable[str], floors: Iterable[str]) -> None:
        """Durably make a truncation true."""
        note: dict[str, Any] = {**asdict(settled), "kept": sorted(kept), "floors": sorted(floors)}
        self._aside.replace(self.settled_path, [encode_note(note)], durable=True)

    def remove_forgotten(self) -> None:
        """Remove the files that nothing refers to any more; scans that have begun hold them open."""
        forgotten = set(self.names()) - set(self.current_names())
        for name in sorted(forgotten):
            self._disk.unlink(os.path.join(self.commits_path, name))
        if forgotten:
            self._disk.sync_dir(self.commits_path)

    def _sync(self, path: str) -> None:
        fd = self._disk.open(path, os.O_RDONLY)
        try:
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)

    def _write(
        self, path: str, commit: Commit, changes: Iterable[Change], *, durable: bool | None = None
    ) -> None:
        aside = self._aside.path()
        fd = self._disk.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                write_commit(self._disk, fd, self._namespace, commit, changes)
                if self._durable if durable is None else durable:
                    self._disk.sync(fd)
            finally:
                self._disk.close(fd)
            self._disk.rename(aside, path)
        except BaseException as error:
            self._aside.discard([aside])
            if isinstance(error, OSError):
                error.filename = error.filename or aside
            raise


def sequence_of(name: str) -> int:
    """The sequence of the commit in a file of that name."""
    return int(name.partition("-")[0], 16)
