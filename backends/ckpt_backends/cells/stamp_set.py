"""Which stamps a reader sees: exact sets of whole numbers that stay small while stamps follow each other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence


class StampSet:
    """An immutable set of stamps, kept as ranges; a commit on top of another sees one stamp more.

    Examples
    --------
    >>> stamps = StampSet().plus(4).plus(5).plus(9)
    >>> stamps.ranges
    ((4, 5), (9, 9))
    >>> 5 in stamps, 6 in stamps, stamps.at_or_below(8), stamps.at_or_below(3)
    (True, False, 5, None)
    """

    __slots__ = ("_starts", "ranges")

    def __init__(self, ranges: Iterable[Sequence[int]] = ()) -> None:
        self.ranges: tuple[tuple[int, int], ...] = tuple((low, high) for low, high in ranges)
        """Ascending, disjoint, both ends included."""
        self._starts = [low for low, _ in self.ranges]

    def plus(self, stamp: int) -> StampSet:
        """This set and one stamp that is higher than all of it."""
        if self.ranges and self.ranges[-1][1] + 1 == stamp:
            return StampSet((*self.ranges[:-1], (self.ranges[-1][0], stamp)))
        return StampSet((*self.ranges, (stamp, stamp)))

    def __contains__(self, stamp: int) -> bool:
        at = bisect_right(self._starts, stamp)
        return at > 0 and stamp <= self.ranges[at - 1][1]

    def at_or_below(self, stamp: int) -> int | None:
        """The highest member that is not above `stamp`."""
        at = bisect_right(self._starts, stamp)
        return min(stamp, self.ranges[at - 1][1]) if at else None

    @property
    def highest(self) -> int:
        """The highest member; 0 if there is none."""
        return self.ranges[-1][1] if self.ranges else 0
