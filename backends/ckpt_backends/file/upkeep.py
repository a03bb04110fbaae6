"""Looking after a file store: every damaged file is named, and repair moves files but destroys none."""

from __future__ import annotations

import contextlib
import os
import re
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ckpt.contract.backend import BadRecord, CompactionReport, RepairReport
from ckpt.contract.disk import Disk
from ckpt.contract.versions import History, Settled, Truncation
from ckpt.errors import CorruptRecordError
from ckpt_backends.file.claims import Claims
from ckpt_backends.file.commits import CommitFile
from ckpt_backends.file.names import spelled_key
from ckpt_backends.file.namespaces import FileNamespace, FileNamespaces
from ckpt_backends.file.records import read_note

_ADVICE = re.compile(r"; run `ckpt .*$")


@dataclass(frozen=True, slots=True)
class _Damage:
    """One file (or namespace directory) that cannot be believed."""

    path: str
    bad: BadRecord


class StoreUpkeep:
    """Verify, repair, compact and measure one store."""

    def __init__(self, disk: Disk, root: str, spaces: FileNamespaces, claims: Claims) -> None:
        self._disk = disk
        self._root = root
        self._spaces = spaces
        self._claims = claims
        self._quarantine = os.path.join(root, "quarantine")

    def verify(self) -> Iterator[BadRecord]:
        """Read every file; what is wrong with which."""
        for damage in self._owner_damage():
            yield damage.bad
        bad: list[_Damage] = []
        for space in self._whole_spaces(bad):
            yield from (damage.bad for damage in self._space_damage(space))
        yield from (damage.bad for damage in bad)

    def repair(self) -> RepairReport:
        """Take what is damaged out of service, until what is left verifies."""
        moved: list[BadRecord] = []
        for damage in self._owner_damage():
            self._move(damage, moved)
            self._claims.forget_damage(os.path.basename(damage.path))
        kept = 0
        bad: list[_Damage] = []
        for space in self._whole_spaces(bad):
            with self._claims.locked(space.namespace, alone=True):
                kept += self._repair_space(space, moved)
        for damage in bad:
            self._move(damage, moved)
        return RepairReport(kept, tuple(moved), self._quarantine if moved else None)

    def compact(self) -> CompactionReport:
        """Remove expired keys and forgotten commits."""
        started_s = time.monotonic()
        bytes_before = self.sizes()[1]
        for space in self._spaces:
            with self._claims.locked(space.namespace, alone=True):
                if space.is_versioned():
                    space.commits.remove_forgotten()
                else:
                    space.remove_expired()
        return CompactionReport(bytes_before, self.sizes()[1], 0, time.monotonic() - started_s)

    def sizes(self) -> tuple[int, int, int]:
        """How many files there are, how many bytes they hold, and how many more lie in quarantine."""
        counts = {False: 0, True: 0}
        stored_bytes = 0
        for folder, _, names in os.walk(self._root):
            quarantined = folder.startswith(self._quarantine)
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    size = os.stat(os.path.join(folder, name)).st_size
                    counts[quarantined] += 1
                    stored_bytes += 0 if quarantined else size
        return counts[False], stored_bytes, counts[True]

    # -- finding damage --------------------------------------------------------------------------

    def _owner_damage(self) -> Iterator[_Damage]:
        claims = os.path.join(self._root, "claims")
        for name in sorted(os.listdir(claims)):
            path = os.path.join(claims, name)
            if name.endswith(".owner"):
                try:
                    read_note(self._disk, path)
                except CorruptRecordError as error:
                    yield _damage(path, error)

    def _whole_spaces(self, bad: list[_Damage]) -> Iterator[FileNamespace]:
        """The namespaces whose name is known; the others are added to `bad`."""
        spaces = os.path.join(self._root, "spaces")
        for folder in sorted(os.listdir(spaces)):
            try:
                namespace = self._spaces.namespace_of(folder)
            except CorruptRecordError as error:
                bad.append(_damage(os.path.join(spaces, folder), error))
                continue
            if namespace is not None:
                yield self._spaces[namespace]

    def _space_damage(self, space: FileNamespace) -> Iterator[_Damage]:
        yield from self._key_damage(space)
        commits = space.commits
        try:
            current = commits.current_names()
        except CorruptRecordError as error:
            yield _damage(commits.settled_path, error, space.namespace)
            return
        damages = [damage for name in current for damage in self._commit_damage(space, name)]
        yield from damages
        if not damages:
            try:
                commits.history()
            except CorruptRecordError as error:
                yield _damage(commits.commits_path, error, space.namespace)

    def _key_damage(self, space: FileNamespace) -> Iterator[_Damage]:
        for name in sorted(space.names()):
            try:
                space.key_of(name)
                space.record(name)
            except CorruptRecordError as error:
                key = None
                with contextlib.suppress(ValueError):
                    key = spelled_key(name)
                yield _damage(os.path.join(space.keys_path, name), error, space.namespace, key)

    def _commit_damage(self, space: FileNamespace, name: str) -> Iterator[_Damage]:
        path = os.path.join(space.commits.commits_path, name)
        try:
            reasons = space.commits.open_file(name).check()
        except FileNotFoundError:
            if name not in space.commits.current_names():  # a truncation has forgotten it meanwhile
                return
            reasons = ["the file is missing"]
        except CorruptRecordError as error:
            reasons = [_reason(path, error, space.namespace)]
        for reason in reasons:
            yield _Damage(path, BadRecord(path, reason, space.namespace))

    # -- repairing -------------------------------------------------------------------------------

    def _repair_space(self, space: FileNamespace, moved: list[BadRecord]) -> int:
        for damage in list(self._key_damage(space)):
            self._move(damage, moved)
        kept = len(space.names())
        return kept + self._repair_commits(space, moved)

    def _repair_commits(self, space: FileNamespace, moved: list[BadRecord]) -> int:
        commits = space.commits
        if not commits.names():
            return 0
        settled_damage: list[_Damage] = []
        try:
            current = commits.current_names()
        except CorruptRecordError as error:
            settled_damage.append(_damage(commits.settled_path, error, space.namespace))
            current = _floors_first(commits.names())
        good: dict[str, CommitFile] = {}
        damages: list[_Damage] = []
        for name in current:
            damage = list(self._commit_damage(space, name))
            if damage:
                damages += damage[:1]
            else:
                good[name] = commits.open_file(name)
        damages += self._cut_off(space, good)
        if not damages and not settled_damage:
            return sum(file.count for file in good.values())
        for found in [*damages, *settled_damage]:
            if os.path.exists(found.path):
                self._move(found, moved)
            else:
                moved.append(found.bad)
        self._settle_again(space, good, lost_settled=bool(settled_damage))
        return sum(file.count for file in good.values())

    def _cut_off(self, space: FileNamespace, good: dict[str, CommitFile]) -> Iterator[_Damage]:
        """Commits that build on one that is not there cannot be read whole; they leave `good`, in order."""
        for name in sorted(good, key=lambda name: good[name].commit.sequence):
            base = good[name].commit.base
            if base is not None and base not in {file.commit.id for file in good.values()}:
                path = good.pop(name).path
                reason = f"it builds on commit {base}, which is damaged or missing"
                yield _Damage(path, BadRecord(path, reason, space.namespace))

    def _settle_again(self, space: FileNamespace, good: dict[str, CommitFile], *, lost_settled: bool) -> None:
        """Write what is true of the commits that are left, as a truncation does."""
        commits = space.commits
        floors = {name for name in good if name.endswith(".floor")}
        old = (
            commits.settled()
            if not lost_settled
            else Settled(truncated_below=max((good[name].commit.version for name in floors), default=0))
        )
        present = {file.commit.id for file in good.values()}
        if old.tip not in present:
            old = Settled(truncated_below=old.truncated_below)
        history = History((file.commit for file in good.values()), settled=old)
        history.apply(Truncation(old.truncated_below, floors=(), forgotten=()))
        garbage = tuple(commit_id for commit_id in history.settled.garbage if commit_id in present)
        settled = replace(history.settled, garbage=garbage)
        commits.settle(settled, map(_stem, good), map(_stem, floors))

    def _move(self, damage: _Damage, moved: list[BadRecord]) -> None:
        target = os.path.join(self._quarantine, f"{uuid.uuid4().hex}-{os.path.basename(damage.path)}")
        self._disk.rename(damage.path, target)
        self._disk.sync_dir(self._quarantine)
        self._disk.sync_dir(os.path.dirname(damage.path))
        moved.append(damage.bad)


def _damage(
    path: str, error: CorruptRecordError, namespace: str | None = None, key: bytes | None = None
) -> _Damage:
    return _Damage(path, BadRecord(path, _reason(path, error, namespace), namespace, key))


def _reason(path: str, error: CorruptRecordError, namespace: str | None) -> str:
    """What is wrong, without the path and the namespace, which a BadRecord holds already."""
    said = str(error).removeprefix(path).removeprefix(f" (namespace {namespace!r}): ")
    return _ADVICE.sub("", said).strip()


def _stem(name: str) -> str:
    return os.path.splitext(name)[0]


def _floors_first(names: list[str]) -> list[str]:
    """One file per commit: its floor where there is one."""
    return sorted({_stem(name): name for name in sorted(names)}.values())
