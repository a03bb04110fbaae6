"""The history of one versioned namespace: which commits exist, what each builds on, what may be forgotten.

Versions form chains, not a line. A commit names the commit it builds on; Spark retries and speculates, so
one version may be committed more than once, and a reader says which attempt it means by its commit id.

```
version   1     2     3     4
          a ─── b ─── c ─── d      tip: d
                 ╲
                  ╲── e            a second attempt at version 3, readable by its id
```

This module is pure bookkeeping and the only implementation of these rules; every backend asks it what a
read sees, and stores commits and their changes in its own way.

- A commit without a base builds on the tip. At or below the tip's version it replaces: it builds on the
  newest ancestor of the tip with a lower version, becomes the tip, and what it replaced is garbage.
- A commit with a base is a branch. It becomes the tip only if its version is above the tip's, so that a
    zombie's late commit is a branch without followers. The base `EMPTY` is the empty state before the first
  commit, so that several attempts at the first version are branches, too.
- Reading as of version v from commit c sees the newest ancestor of c (c included) with version <= v.
  Before the first commit everything is empty; a version above c's, or a truncated one, is an error.
- `truncate(keep_from)` forgets garbage, and every version below `keep_from` that no retained commit needs.
  The newest commit at or below `keep_from` on each retained chain becomes a *floor*: it stands for all the
  changes of its ancestors.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ckpt.errors import ConfigError, UnsupportedError, VersionNotFoundError
from ckpt.types import CommitId, check_commit_id

MAX_VERSION = 2**63 - 1
EMPTY = CommitId("0")
"""As the base of a commit: it builds on nothing. No commit has this id."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit as it is stored: enough to rebuild the history by adding commits in order of sequence."""

    id: CommitId
    version: int
    base: CommitId | None
    sequence: int
    """The order in which commits reached this namespace; the order of `History.add`."""
    replaces: bool = False
    """Made at or below the tip without a base: what it replaced is garbage."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """What a truncation decides. Backends act on it; `History.apply` then forgets."""

    keep_from: int
    floors: tuple[CommitId, ...]
    """Commits that from now on stand for all the changes of their ancestors."""
    forgotten: tuple[CommitId, ...]
    """Commits that no reader can name any more; some hold changes that a floor still shows."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What the last truncation decided for good, stored with it.

    Adding the commits that survived a truncation, without those that it forgot, may find another tip and
    other garbage (a branch looks newest once the commits that outran it are gone). So commits up to
    `through_sequence` are not judged again.
    """

    truncated_below: int = 0
    through_sequence: int = 0
    tip: CommitId | None = None
    garbage: tuple[CommitId, ...] = ()
    """Garbage that a retained branch still needs: kept, but no reader may name it."""


class History:
    """The commits of one namespace; not thread-safe, its owner holds a lock."""

    def __init__(
        self,
        commits: Iterable[Commit] = (),
        *,
        truncated_below: int = 0,
        settled: Settled | None = None,
    ) -> None:
        self.settled = settled or Settled(truncated_below)
        """What to store with a truncation, and to pass when the history is rebuilt."""
        self._commits: dict[CommitId, Commit] = {}
        self._garbage: set[CommitId] = set(self.settled.garbage)
        self._tip: CommitId | None = self.settled.tip
        self.next_sequence = self.settled.through_sequence + 1
        later = []
        for commit in sorted(commits, key=lambda c: (c.sequence, c.id)):
            if commit.sequence <= self.settled.through_sequence:
                self._commits[commit.id] = commit
            else:
                later.append(commit)
        for commit in later:
            self.add(commit)

    @property
    def truncated_below(self) -> int:
        """Versions below this one were forgotten and cannot be read."""
        return self.settled.truncated_below

    def copy(self) -> History:
        """The same history, in an object that changes apart from this one."""
        copied = History(settled=self.settled)
        copied._commits = dict(self._commits)
        copied._garbage = set(self._garbage)
        copied._tip, copied.next_sequence = self._tip, self.next_sequence
        return copied

    def __len__(self) -> int:
        return len(self._commits)

    def __contains__(self, commit_id: str) -> bool:
        return commit_id in self._commits

    def __getitem__(self, commit_id: str) -> Commit:
        return self._commits[CommitId(commit_id)]

    def commits(self) -> list[Commit]:
        """Every commit that a reader may name, by version, then by order of arrival."""
        return sorted(
            (c for c in self._commits.values() if c.id not in self._garbage),
            key=lambda c: (c.version, c.sequence),
        )

    def stored(self) -> list[Commit]:
        """Every commit still known, garbage included, in order of sequence: what a backend persists."""
        return sorted(self._commits.values(), key=lambda c: (c.sequence, c.id))

    @property
    def tip(self) -> Commit | None:
        """The commit that a read without a commit id starts from."""
        return self._commits[self._tip] if self._tip is not None else None

    # -- committing ------------------------------------------------------------------------------

    def prepare(self, version: int, base: str | None = None, commit_id: str | None = None) -> Commit:
        """The commit to store for this request, not yet added; every rule is checked here."""
        if isinstance(version, bool) or not isinstance(version, int) or not 0 < version <= MAX_VERSION:
            raise ConfigError(
                f"a version to commit is a whole number from 1 (0 is the empty state), got {version!r}"
            )
        if version < self.truncated_below:
            raise VersionNotFoundError(
                f"version {version} was truncated and cannot be committed again; "
                f"versions from {self.truncated_below} on are kept"
            )
        new_id = CommitId(uuid.uuid4().hex) if commit_id is None else check_commit_id(commit_id)
        if new_id in self._commits or new_id == EMPTY:
            raise ConfigError(f"commit id {new_id!r} is taken; every attempt needs its own")
        if base == EMPTY:
            return Commit(new_id, version, None, self.next_sequence)
        if base is not None:
            parent = self._find(base)
            if parent.version >= version:
                raise ConfigError(
                    f"version {version} cannot build on commit {base!r}, which is version {parent.version}"
                )
            return Commit(new_id, version, parent.id, self.next_sequence)
        tip = self.tip
        if tip is None or tip.version < version:
            return Commit(new_id, version, tip.id if tip else None, self.next_sequence)
        below = next((c for c in self.chain(tip) if c.version < version), None)
        if below is None and self.truncated_below:
            raise VersionNotFoundError(
                f"version {version} cannot be committed again: what it builds on was truncated "
                f"(versions from {self.truncated_below} on are kept)"
            )
        return Commit(new_id, version, below.id if below else None, self.next_sequence, replaces=True)

    def add(self, commit: Commit) -> None:
        """Make a stored commit visible. Adding commits in order of sequence rebuilds the same history."""
        tip = self.tip
        if commit.replaces and tip is not None:
            self._garbage.update(c.id for c in self.chain(tip) if c.version >= commit.version)
        self._commits[commit.id] = commit
        if tip is None or commit.replaces or commit.version > tip.version:
            self._tip = commit.id
        self.next_sequence = max(self.next_sequence, commit.sequence + 1)

    # -- reading ---------------------------------------------------------------------------------

    def resolve(self, version: int | None = None, commit_id: str | None = None) -> Commit | None:
        """The commit whose state a read sees; None is the empty state before the first commit."""
        start = self.tip if commit_id is None else self._find(commit_id)
        if version is None:
            return start
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise ConfigError(f"a version is a whole number from 0, got {version!r}")
        newest = start.version if start else 0
        if version > newest:
            raise VersionNotFoundError(f"version {version} does not exist; the newest is {newest}")
        if version < self.truncated_below:
            raise VersionNotFoundError(
                f"version {version} was truncated; versions from {self.truncated_below} on are kept"
            )
        if start is None:
            return None
        return next((c for c in self.chain(start) if c.version <= version), None)

    def chain(self, commit: Commit | None) -> Iterator[Commit]:
        """The commit and its ancestors, newest first, down to the first commit or a floor."""
        while commit is not None:
            yield commit
            commit = self._commits.get(commit.base) if commit.base is not None else None

    # -- forgetting ------------------------------------------------------------------------------

    def plan_truncation(self, keep_from: int) -> Truncation:
        """What `truncate(keep_from)` would forget; nothing changes yet."""
        if isinstance(keep_from, bool) or not isinstance(keep_from, int) or keep_from < 0:
            raise ConfigError(f"keep_from is a version, a whole number from 0, got {keep_from!r}")
        tip = self.tip
        keep_from = max(keep_from, self.truncated_below)
        if tip is None or keep_from > tip.version:
            newest = tip.version if tip else 0
            raise VersionNotFoundError(f"cannot keep versions from {keep_from} on: the newest is {newest}")
        kept: set[CommitId] = set()
        floors: set[CommitId] = set()
        for head in self._commits.values():
            if head.id in self._garbage or (head.version < keep_from and head.id != tip.id):
                continue
            for commit in self.chain(head):
                kept.add(commit.id)
                if commit.version <= keep_from:
                    floors.add(commit.id)
                    break
        forgotten = tuple(c.id for c in self.stored() if c.id not in kept)
        return Truncation(keep_from, tuple(sorted(floors)), forgotten)

    def apply(self, truncation: Truncation) -> None:
        """Forget what the truncation forgets; its floors lose their ancestors."""
        for commit_id in truncation.forgotten:
            self._commits.pop(commit_id, None)
            self._garbage.discard(commit_id)
        for commit_id in truncation.floors:
            self._commits[commit_id] = replace(self._commits[commit_id], base=None)
        self.settled = Settled(
            truncated_below=max(self.truncated_below, truncation.keep_from),
            through_sequence=self.next_sequence - 1,
            tip=self._tip,
            garbage=tuple(sorted(self._garbage)),
        )

    def _find(self, commit_id: str) -> Commit:
        commit = self._commits.get(CommitId(commit_id))
        if commit is None or commit.id in self._garbage:
            raise VersionNotFoundError(
                f"commit {commit_id!r} does not exist or was truncated; `versions` lists the commits"
            )
        return commit


def require_plain(namespace: str, is_versioned: bool) -> None:
    """A plain write to a versioned namespace is an error: it would belong to no version."""
    if is_versioned:
        raise UnsupportedError(
            f"namespace {namespace!r} is versioned since its first commit: use commit(), "
            "not put_many() or delete_many()"
        )
