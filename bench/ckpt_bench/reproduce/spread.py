"""What several rounds have measured: the median, and quartiles that say how far to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ckpt_bench.interleaved import quartiles

Rounds = Sequence[float]
"""One figure of each round, in the order of the rounds."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles; after one round they are the same."""

    median: float
    q1: float
    q3: float
    rounds: int

    def text(self, form: str = ".3g") -> str:
        """The median and, where there was more than one round, both quartiles."""
        if self.rounds == 1:
            return f"{self.median:{form}}"
        return f"{self.median:{form}} [{self.q1:{form}} {self.q3:{form}}]"

    def __str__(self) -> str:
        return self.text()


def spread(values: Rounds) -> Spread:
    """Median and quartiles of at least one round.

    Examples
    --------
    >>> print(spread([3.0, 1.0, 2.0, 5.0, 4.0]), "and", spread([3.0]))
    3 [2 4] and 3
    """
    found = quartiles(values)
    return Spread(found.middle, found.low, found.high, len(values))


def of_rounds(rounds: int) -> str:
    """What the figures are that stand beside this.

    Examples
    --------
    >>> of_rounds(5), of_rounds(1)
    ('medians [quartiles] of 5 rounds', 'one round')
    """
    return "one round" if rounds == 1 else f"medians [quartiles] of {rounds} rounds"


def ratios(over: Rounds, under: Rounds) -> list[float]:
    """One ratio for each round, so that what slowed a whole round down does not count.

    Examples
    --------
    >>> print(spread(ratios([2.0, 20.0, 3.0], [1.0, 10.0, 1.0])))
    2 [2 2.5]
    """
    return [one / other for one, other in zip(over, under, strict=True)]
