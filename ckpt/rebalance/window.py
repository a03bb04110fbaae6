"""Loads put together: what several reporters saw of one interval, and the last w intervals of a stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.loads import F64, Loads, sums


class Window:
    """The loads of the last `intervals` intervals: a key that came in none of them is not there any more.

    None keeps every interval, as state does that never leaves; costs must then be those of the last one.

    Cost, rows and rest are means over the intervals that were added; with `cost="last"` they are those of the
    last one, as in mixed-2017, and a key that did not come in it costs nothing. With `state="sum"` each
    interval adds state of its own, as in mixed-2017: S(k, w) is the sum of the last w. With `state="last"` an
    interval says how much state there is in all, as Spark's state stores do.

    Examples
    --------
    >>> window = Window(2)
    >>> for cost in (1, 3, 5):
    ...     window.add(Loads(["be"], [cost], [10], [0]))
    >>> loads = window.loads()
    >>> loads.cost.tolist(), loads.state.tolist()
    ([4.0], [20.0])
    """

    def __init__(
        self,
        intervals: int | None,
        *,
        state: Literal["sum", "last"] = "sum",
        cost: Literal["mean", "last"] = "mean",
    ) -> None:
        if intervals is not None and intervals < 1:
            raise ConfigError(f"a window has at least one interval, not {intervals}")
        if intervals is None and cost == "mean":
            raise ConfigError('a window of all intervals needs cost="last": their mean would hardly change')
        self._endless = intervals is None
        self._parts: deque[Loads] = deque(maxlen=intervals)
        self._state = state
        self._cost = cost

    def __len__(self) -> int:
        """How many intervals it has now."""
        return len(self._parts)

    def add(self, interval: Loads) -> None:
        """The interval that has just ended; the oldest one leaves if there are too many."""
        self._parts.append(interval)
        if self._endless and len(self._parts) > 1:
            self._parts = deque([self.loads()])

    def loads(self) -> Loads:
        """Per key the loads of one interval, where it was last, and the state of the window."""
        if not self._parts:
            raise ConfigError("the window is empty: add an interval first")
        count = len(self._parts)
        factors = [1 / count] * count if self._cost == "mean" else [0.0] * (count - 1) + [1.0]
        return _combine(list(self._parts), factors, self._state)


def merge(parts: Sequence[Loads]) -> Loads:
    """One interval as several reporters saw it: costs, rows and rests add up.

    A key that several of them report has the largest state that one of them says, and the last one's place.

    Examples
    --------
    >>> both = merge([Loads(["be"], [1], [10], [0]), Loads(["or", "be"], [2, 3], [5, 9], [1, 0])])
    >>> both.names.tolist(), both.cost.tolist(), both.state.tolist()
    (['be', 'or'], [4.0, 2.0], [10.0, 5.0])
    """
    if not parts:
        raise ConfigError("there are no loads to merge")
    return _combine(list(parts), [1.0] * len(parts), "max")


def _combine(parts: list[Loads], factors: list[float], state: Literal["sum", "last", "max"]) -> Loads:
    """Cost, rows and rest count by the factor of their part; keys are in the order in which they came."""
    keys = np.concatenate([part.keys for part in parts])
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    owner = rank[inverse]
    last = np.empty(len(order), np.int64)
    last[owner] = np.arange(len(keys))  # the last of equal indices wins
    added = np.concatenate([part.state for part in parts])
    if state == "sum":
        held = sums(owner, added, len(order))
    elif state == "last":
        held = added[last]
    else:
        held = np.zeros(len(order))
        np.maximum.at(held, owner, added)
    scale = np.repeat(factors, [len(part) for part in parts])
    rows = _joined([part.rows for part in parts])
    home = _joined([part.home for part in parts])
    names = _joined([part.names for part in parts])
    return Loads(
        keys[first[order]],
        sums(owner, np.concatenate([part.cost for part in parts]) * scale, len(order)),
        held,
        np.concatenate([part.instance for part in parts])[last],
        home=None if home is None else home[last],
        rows=None if rows is None else sums(owner, rows * scale, len(order)),
        names=None if names is None else names[last],
        rest=_rest(
            [part.rest * factor for part, factor in zip(parts, factors, strict=True) if part.rest is not None]
        ),
    )


def _joined(columns: list[Any]) -> npt.NDArray[Any] | None:
    """The columns one after the other, None if one of them is not there."""
    return None if any(column is None for column in columns) else np.concatenate(columns)


def _rest(rests: list[F64]) -> F64 | None:
    if not rests:
        return None
    total = np.zeros(max(map(len, rests)))
    for rest in rests:
        total[: len(rest)] += rest
    return total
