"""What a stream brings in one interval: the unit in which workloads are generated, read and simulated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import Name
from ckpt.rebalance.loads import F64, I32, U64, Loads
from ckpt.rebalance.window import Window


@dataclass(frozen=True, eq=False)
class Interval:
    """What comes in one interval, and the state it leaves behind; keys are ascending, each there once.

    Keys with one order of identities have one order in every interval. Make one by hand with `Interval`, or
    from unordered columns with `Interval.of`.

    Examples
    --------
    >>> words = Interval.of(["or", "be"], tuples=[2, 5], cost=[0.02, 0.05], state=[16, 40])
    >>> words.names.tolist(), words.tuples.tolist()
    (['be', 'or'], [5.0, 2.0])
    >>> Interval(np.array([9, 5], np.uint64), np.ones(2), np.ones(2), np.ones(2))
    Traceback (most recent call last):
        ...
    ckpt.errors.ConfigError: the keys of an interval are ascending, each there once; use Interval.of
    """

    keys: U64
    """Identities. Their low half is the base hash (see `hashing`), so it has to be well mixed."""
    tuples: F64
    """How many tuples of each key came."""
    cost: F64
    """The work that the tuples of each key cause, in seconds of one instance."""
    state: F64
    """How many bytes this interval adds to each key's state; they leave with the window."""
    names: npt.NDArray[np.object_] | None = None
    """What people call the keys."""

    def __post_init__(self) -> None:
        keys = np.asarray(self.keys)
        if keys.dtype != np.uint64:
            raise ConfigError(f"the keys of an interval are identities (uint64), not {keys.dtype}")
        if (keys[1:] <= keys[:-1]).any():
            raise ConfigError("the keys of an interval are ascending, each there once; use Interval.of")
        # Loads checks the columns, and makes read-only copies of them.
        checked = self._loads(np.zeros(len(keys), np.int32))
        columns = {"keys": checked.keys, "tuples": checked.rows, "cost": checked.cost, "state": checked.state}
        for name, column in (columns | {"names": checked.names}).items():
            object.__setattr__(self, name, column)

    @classmethod
    def of(
        cls,
        keys: npt.ArrayLike | Sequence[Name],
        tuples: npt.ArrayLike,
        cost: npt.ArrayLike,
        state: npt.ArrayLike,
        names: Sequence[Name] | None = None,
    ) -> Interval:
        """An interval from columns in any order, whose keys may be names."""
        loads = Loads(keys, cost, state, np.zeros(np.shape(cost), np.int32), rows=tuples, names=names)
        assert loads.rows is not None  # given above
        order = np.argsort(loads.keys)
        named = None if loads.names is None else loads.names[order]
        return cls(loads.keys[order], loads.rows[order], loads.cost[order], loads.state[order], named)

    def __len__(self) -> int:
        """How many keys came."""
        return len(self.keys)

    def __repr__(self) -> str:
        return f"Interval({len(self)} keys, {self.tuples.sum():g} tuples, {self.cost.sum():g} s of work)"

    def loads(self, instance: I32, home: I32 | None = None) -> Loads:
        """The loads of this interval alone, with each key at its instance."""
        return self._loads(instance, home)

    def _loads(self, instance: I32, home: I32 | None = None) -> Loads:
        return Loads(
            self.keys, self.cost, self.state, instance, home=home, rows=self.tuples, names=self.names
        )


Workload = Iterable[Interval]
"""A stream, interval by interval; to read it again must give the same intervals."""


def window(intervals: Workload, size: int) -> Iterable[Loads]:
    """After each interval the loads of the last `size` ones: cost and rows of the newest, state of all.

    Every key is placed on instance 0; a key without tuples in the newest interval costs nothing.

    Examples
    --------
    >>> first = Interval.of([1, 2], tuples=[1, 1], cost=[1, 1], state=[10, 10])
    >>> second = Interval.of([2, 3], tuples=[3, 1], cost=[3, 1], state=[30, 10])
    >>> [(loads.keys.tolist(), loads.cost.tolist(), loads.state.tolist())
    ...  for loads in window([first, second], 5)][-1]
    ([1, 2, 3], [0.0, 3.0, 1.0], [10.0, 40.0, 10.0])
    """
    held = Window(size, cost="last")
    for interval in intervals:
        held.add(interval.loads(np.zeros(len(interval), np.int32)))
        yield held.loads()
