"""What a planner is given and what it answers: frozen arrays in, a placement out.

This is the contract between `rb.plan` and every planner.

**Given.** A `Problem` holds the keys that may move, one array entry per key. What no planner may touch (giant
keys, pinned keys, the uncounted rest of the load) is in `base`, the load that each instance has in any case.
`limits` says, per instance, what its load may come to; giants and tolerances are in it already, so a planner
compares with `<=` and needs no epsilon. `table_limit` says how many of these keys may be away from home.

**Answered.** A planner returns the target instance of each key, an int32 array as long as `problem.cost`, or
a `Placement`, if it splits keys or has a reason to give. It changes nothing that it was given, asks no clock
and no random number generator without a fixed seed: the same problem gives the same answer.

**Not asked.** Moves, kinds, loads, the table, migrated bytes, the lower bound and the status are counted from
the answer by `recount`, for every planner by the same code. A planner cannot report a figure of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Bool = npt.NDArray[np.bool_]

SLACK = 1e-9
"""Limits are this fraction wider than asked for, so that sums of floats in another order still fit."""


@dataclass(frozen=True, eq=False)
class Splits:
    """Keys that several instances hold: key `key[i]` is spread as row `pattern[i]` of `shares` says.

    A row of `shares` has one entry per instance and sums to 1. Many keys may follow one pattern, so that a
    router that spreads a million keys alike costs 12 bytes per key.
    """

    key: I64
    """Positions of the split keys, ascending."""
    pattern: I32
    shares: F64

    @classmethod
    def none(cls, instances: int) -> Splits:
        """No key is split."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int32), np.empty((0, instances)))

    def __len__(self) -> int:
        return len(self.key)

    def loads(self, cost: F64) -> F64:
        """The load per instance of the split keys."""
        per_pattern = np.bincount(self.pattern, weights=cost[self.key], minlength=len(self.shares))
        return np.asarray(per_pattern @ self.shares)


@dataclass(frozen=True, eq=False)
class Problem:
    """One planning problem; its arrays are read-only, and every place in them is an instance that exists."""

    key: U64
    """Identities; only for hashing and for naming, never for order."""
    cost: F64
    """c(k) of the papers: the load of each key in one interval."""
    state: F64
    """S(k, w) of the papers: the bytes that move if the key moves."""
    current: I32
    """F(k): where each key is."""
    home: I32
    """h(k): where the base hash puts each key. A key whose target differs from it needs a table entry."""
    load: F64
    """L(d): the load of each instance as it is, base and split keys included."""
    base: F64
    """Load per instance that stays whatever is planned."""
    limits: F64
    """L_max per instance."""
    floors: F64
    """The least load per instance; all 0 unless the caller asked for a two-sided tolerance."""
    table_limit: int
    """A_max: how many keys may be placed away from home."""
    backups: I32 | None = None
    """Instances that hold a backup of each key, one row per key, -1 for none. Moving there is free."""
    splits: Splits = field(default_factory=lambda: Splits.none(0))
    """Keys that are split now; empty for a planner that does not declare `splits`."""
    budget_s: float | None = None
    """How long the caller wants to wait; only a planner that has several answers looks at it."""

    @property
    def instances(self) -> int:
        """N_D of the papers."""
        return len(self.limits)

    @property
    def mean(self) -> float:
        """The mean load of an instance, L-bar of the papers, with the base."""
        return float(self.load.sum()) / self.instances

    def loads(self, target: I32) -> F64:
        """The load of each instance if every key is at its target and none is split."""
        return np.asarray(self.base + np.bincount(target, weights=self.cost, minlength=self.instances))

    def table_size(self, target: I32) -> int:
        """How many of the keys are away from home."""
        return int(np.count_nonzero(target != self.home))

    def migrated_bytes(self, target: I32) -> float:
        """The state that moves; a key that becomes active where it has a backup moves none."""
        moved = np.flatnonzero(target != self.current)
        if self.backups is not None:
            moved = moved[~(self.backups[moved] == target[moved, None]).any(axis=1)]
        return float(self.state[moved].sum())


@dataclass(frozen=True, eq=False)
class Placement:
    """A planner's answer, if it is more than the targets."""

    target: I32
    """Where each key goes. Of a split key it is not looked at."""
    splits: Splits | None = None
    """All keys that are split from now on; None: none."""
    routed: bool = False
    """True if a function that every sender knows gives these places, so that none needs a table entry."""
    note: str = ""
    """What the planner wants people to know, in the words of the status's reason."""

    @classmethod
    def of_fragments(cls, problem: Problem, key: I64, instance: I32, share: F64) -> Placement:
        """The placement that these parts of keys come to; a key may have several parts on one instance.

        Keys that are not named stay where they are.
        """
        target = problem.current.copy()
        n = problem.instances
        cells, at = np.unique(key.astype(np.int64) * n + instance, return_inverse=True)
        sums = np.bincount(at, weights=share, minlength=len(cells))
        cells, sums = cells[sums > SLACK], sums[sums > SLACK]
        owner = cells // n
        named, first, parts = np.unique(owner, return_index=True, return_counts=True)
        whole = parts == 1
        target[named[whole]] = (cells[first[whole]] % n).astype(np.int32)
        split = named[~whole]
        shares = np.zeros((len(split), n))
        inside = np.isin(owner, split)
        shares[np.searchsorted(split, owner[inside]), cells[inside] % n] = sums[inside]
        shares /= shares.sum(axis=1, keepdims=True)
        return cls(target, Splits(split, np.arange(len(split), dtype=np.int32), shares))
