"""What a backend should answer, said in the simplest possible way: whole copies of whole states.

The model shares no code with `ckpt.contract.versions`: each commit holds a full copy of the state it stands
for, so there is no chain to follow for values, and nothing to squash when versions are truncated.
"""

from __future__ import annotations

from dataclasses import dataclass, field

State = dict[bytes, bytes]


@dataclass(slots=True)
class ModelCommit:
    """One commit with the complete state as of it."""

    id: str
    version: int
    ancestors: list[str]
    """The commits it builds on that can still matter, newest first."""
    state: State
    named: bool = True
    """Whether a reader may name it: not garbage."""


@dataclass(slots=True)
class ModelNamespace:
    """A namespace is plain while it has no commits."""

    plain: State = field(default_factory=dict)
    commits: dict[str, ModelCommit] = field(default_factory=dict)
    """In the order in which they were made."""
    tip: str | None = None
    truncated_below: int = 0

    @property
    def tip_version(self) -> int:
        return self.commits[self.tip].version if self.tip else 0

    def line(self, commit_id: str | None) -> list[ModelCommit]:
        """The commit and those it builds on, newest first."""
        if commit_id is None:
            return []
        commit = self.commits[commit_id]
        return [commit, *(self.commits[a] for a in commit.ancestors if a in self.commits)]

    def named(self) -> list[str]:
        return [c.id for c in self.commits.values() if c.named]

    def can_replace(self, version: int) -> bool:
        """Whether a commit at or below the tip finds what it builds on."""
        below = any(c.version < version for c in self.line(self.tip))
        return below or not self.truncated_below

    def commit(
        self, commit_id: str, version: int, base: str | None, puts: State, deletes: list[bytes]
    ) -> None:
        replaces = base is None and version <= self.tip_version
        if base is not None:
            line = self.line(base)
        else:
            line = [c for c in self.line(self.tip) if c.version < version]
        state = dict(line[0].state) if line else {}
        state.update(puts)
        for key in deletes:
            state.pop(key, None)
        if replaces:
            for commit in self.line(self.tip):
                if commit.version >= version:
                    commit.named = False
        becomes_tip = replaces or self.tip is None or version > self.tip_version
        self.commits[commit_id] = ModelCommit(commit_id, version, [c.id for c in line], state)
        if becomes_tip:
            self.tip = commit_id

    def truncate(self, keep_from: int) -> None:
        keep_from = max(keep_from, self.truncated_below)
        kept: set[str] = set()
        for commit in self.commits.values():
            if commit.id == self.tip or (commit.named and commit.version >= keep_from):
                line = self.line(commit.id)
                kept.update(c.id for c in line if c.version > keep_from)
                kept.update([c.id for c in line if c.version <= keep_from][:1])
        self.commits = {i: c for i, c in self.commits.items() if i in kept}
        for commit in self.commits.values():
            below = [a for a in commit.ancestors if a in kept and self.commits[a].version <= keep_from]
            above = [a for a in commit.ancestors if a in kept and self.commits[a].version > keep_from]
            commit.ancestors = [] if commit.version <= keep_from else above + below[:1]
        self.truncated_below = keep_from

    def as_of(self, version: int | None, commit_id: str | None) -> State:
        """The state that a read sees; the caller asks only for what exists."""
        line = self.line(commit_id or self.tip)
        if version is None:
            return line[0].state if line else {}
        return next((c.state for c in line if c.version <= version), {})

    def readable(self, version: int, commit_id: str | None) -> bool:
        line = self.line(commit_id or self.tip)
        newest = line[0].version if line else 0
        return self.truncated_below <= version <= newest
