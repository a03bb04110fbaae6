"""A history made again elsewhere: a list of commits that ends in the same ids, versions, chains and tip.

The contract offers no way to write a history directly, and it should not: `commit` is how a history grows.
Most histories can be replayed commit by commit in their order of arrival. Some cannot, because what a
replacing commit made garbage is no longer there to be replaced, or because a truncation left several chains
that share no ancestor. Those are replayed under a *guard*: stand-ins that the last step turns into garbage.

```
p ─── X ─── G    X: a stand-in at the tip's version; G: the guard, so high that no branch becomes the tip
│╲
│ ╲── e ─── f    every other commit joins with an explicit base
└──── t          the tip comes last and without a base: it replaces X and G, which become garbage
```

Every plan is played through `History`, the only implementation of the rules, before it is believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ckpt.contract.versions import MAX_VERSION, Commit, History
from ckpt.errors import CkptError, UnsupportedError
from ckpt.types import CommitId

_ANCHOR, _STAND_IN, _GUARD = (CommitId(f"ckpt-copy.{part}") for part in ("anchor", "stand-in", "guard"))
_STAND_INS = frozenset({_ANCHOR, _STAND_IN, _GUARD})

Planned = tuple[CommitId, int, str | None]
"""A commit to make: its id, its version, and the base to name."""


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """One commit to make."""

    commit_id: CommitId
    version: int
    base: CommitId | None
    """What to pass as `base`."""
    parent: CommitId | None
    """What it will build on; differs from `base` where a commit without a base replaces."""
    is_stand_in: bool = False
    """It shows no state of the source and is garbage, or truncated, once the replay is complete."""


Listing = frozenset[tuple[CommitId, int]]


@dataclass(frozen=True, slots=True)
class HistoryReplay:
    """A plan that was played through: its steps, and where a half-made copy stands in it."""

    steps: tuple[ReplayStep, ...]
    truncated_below: int
    complete: Listing
    """What `versions` lists after the last step."""
    truncated: Listing
    """What it lists after the truncation that follows; `complete` if there is none."""

    def position(self, commits: Sequence[Commit]) -> int | None:
        """How many steps a namespace with these commits has behind it; None if it holds anything else."""
        found = _listing(commits)
        if found in (self.truncated, self.complete):
            return len(self.steps)
        # Only the last step makes garbage, so before it every step made so far is listed.
        begun = self.steps[: len(found)]
        if len(found) < len(self.steps) and found == {(s.commit_id, s.version) for s in begun}:
            return len(found)
        return None


def plan_replay(commits: Sequence[Commit], tip_id: CommitId, truncated_below: int = 0) -> HistoryReplay:
    """The steps that make this history again in an empty namespace, proven to do so.

    Raises UnsupportedError for the rare history that commits alone cannot make again.

    Examples
    --------
    >>> a = Commit(CommitId("a"), 1, None, 1)
    >>> b = Commit(CommitId("b"), 2, CommitId("a"), 2)
    >>> [(step.commit_id, step.base) for step in plan_replay([a, b], b.id).steps]
    [('a', None), ('b', 'a')]
    """
    wanted = sorted(commits, key=lambda c: c.sequence)
    chain = _chain({c.id: c for c in wanted}, tip_id)
    # Below a garbage ancestor a read without a commit id would see something else in the copy.
    if chain[-1].base is None:
        for steps in _candidates(wanted, chain, truncated_below):
            replay = _played(steps, wanted, tip_id, truncated_below)
            if replay is not None:
                return replay
    raise UnsupportedError(
        "this history holds chains of replaced or truncated commits that no order of commits makes again; "
        "truncate the source to its tip first, then copy"
    )


def _chain(listed: Mapping[CommitId, Commit], tip_id: CommitId) -> list[Commit]:
    """The tip and its ancestors, as far as a reader may name them."""
    chain = [listed[tip_id]]
    while (base := chain[-1].base) is not None and base in listed:
        chain.append(listed[base])
    return chain


def _candidates(wanted: list[Commit], chain: list[Commit], truncated_below: int) -> Iterator[list[Planned]]:
    yield [(c.id, c.version, c.base) for c in wanted]
    yield _guarded(wanted, chain, anchored=False)
    if truncated_below:
        yield _guarded(wanted, chain, anchored=True)


def _guarded(wanted: list[Commit], chain: list[Commit], *, anchored: bool) -> list[Planned]:
    tip, *ancestors = chain
    listed = {c.id for c in wanted}
    placed: dict[CommitId, int] = {}
    steps: list[Planned] = []

    def place(commit_id: CommitId, version: int, base: CommitId | None) -> None:
        if commit_id in placed:
            return
        if base not in listed and base != _STAND_IN:
            # A further root: any older commit will do, because its changes are written against that one.
            older = [other for other, its_version in placed.items() if its_version < version]
            base = min(older, key=placed.__getitem__, default=None)
        steps.append((commit_id, version, base))
        placed[commit_id] = version

    oldest = min((c for c in wanted if c.id != tip.id), key=lambda c: c.version, default=tip)
    if anchored:
        place(_ANCHOR, max(1, min(oldest.version, tip.version) - 1), None)
    elif oldest.version < tip.version and oldest.base not in listed:
        place(oldest.id, oldest.version, None)
    for commit in reversed(ancestors):
        place(commit.id, commit.version, commit.base)
    place(_STAND_IN, tip.version, tip.base)
    place(_GUARD, MAX_VERSION, _STAND_IN)
    for commit in wanted:
        if commit.id != tip.id:
            place(commit.id, commit.version, commit.base)
    steps.append((tip.id, tip.version, None))
    return steps


def _played(
    steps: list[Planned], wanted: list[Commit], tip_id: CommitId, truncated_below: int
) -> HistoryReplay | None:
    history = History()
    made: list[ReplayStep] = []
    try:
        for commit_id, version, base in steps:
            commit = history.prepare(version, base, commit_id)
            history.add(commit)
            explicit = commit.base if base is not None else None
            made.append(ReplayStep(commit_id, version, explicit, commit.base, commit_id in _STAND_INS))
        complete = _listing(history.commits())
        if truncated_below:
            history.apply(history.plan_truncation(truncated_below))
    except CkptError:
        return None
    tip = history.tip
    listed = {c.id for c in wanted}
    truncated = _listing(history.commits())
    if (
        truncated == _listing(wanted)
        and tip is not None
        and tip.id == tip_id
        and all(history[c.id].base == c.base for c in wanted if c.base is None or c.base in listed)
    ):
        return HistoryReplay(tuple(made), truncated_below, complete, truncated)
    return None


def _listing(commits: Sequence[Commit]) -> Listing:
    return frozenset((c.id, c.version) for c in commits)
