"""What a paper found, and whether it is so here.

A claim is a shape or a ratio. It is judged by the quartiles of several rounds: it holds, or does not, if both
are on the same side of what is asserted. Otherwise it is unsettled, and another run may find either.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ckpt_bench.reproduce.spread import Spread


class Verdict(enum.StrEnum):
    """What rounds say about a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNSETTLED = "unsettled"
    """The quartiles lie on both sides of what is asserted."""
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that a paper found, and whether it is so here."""

    says: str
    """What the paper found, as a value or a shape."""
    asserts: str
    """What was checked, in terms of what was measured."""
    ours: str
    """What was measured."""
    verdict: Verdict
    why: str = ""
    """Where it does not hold: the reason, as far as one is known. Where it was not checked: why not."""
    spread: Spread | None = None
    """What `ours` says, for a script."""

    @property
    def holds(self) -> bool | None:
        """None: it is not settled, or was not checked."""
        return {Verdict.HOLDS: True, Verdict.FAILS: False}.get(self.verdict)


def at_least(says: str, what: str, value: Spread, bar: float, why: str) -> Claim:
    """Holds if the value is the bar or more.

    Examples
    --------
    >>> claim = at_least("three times as fast", "rate / rate", Spread(4.2, 3.1, 4.5, rounds=5), 3.0, "")
    >>> claim.asserts, claim.ours, str(claim.verdict)
    ('rate / rate ≥ 3', '4.2 [3.1 4.5]', 'holds')
    >>> str(at_least("", "", Spread(4.2, 2.9, 4.5, rounds=5), 3.0, "").verdict)
    'unsettled'
    """
    return _judged(says, f"{what} ≥ {bar:.3g}", value, value.q1 >= bar, value.q3 >= bar, why)


def at_most(says: str, what: str, value: Spread, bar: float, why: str) -> Claim:
    """Holds if the value is the bar or less."""
    return _judged(says, f"{what} ≤ {bar:.3g}", value, value.q3 <= bar, value.q1 <= bar, why)


def between(says: str, what: str, value: Spread, low: float, high: float, why: str) -> Claim:
    """Holds if the value is neither below the one bar nor above the other."""
    return _judged(
        says,
        f"{low:.3g} ≤ {what} ≤ {high:.3g}",
        value,
        low <= value.q1 and value.q3 <= high,
        value.q3 >= low and value.q1 <= high,
        why,
    )


def fact(says: str, what: str, *, ours: bool, theirs: bool, why: str) -> Claim:
    """Holds if both say the same of something that takes no measuring."""
    verdict = Verdict.HOLDS if ours is theirs else Verdict.FAILS
    return Claim(says, what, "yes" if ours else "no", verdict, why)


def not_checked(says: str, what: str, why: str) -> Claim:
    """A claim about something that could not be measured."""
    return Claim(says, what, "-", Verdict.NOT_CHECKED, why)


def _judged(says: str, asserts: str, value: Spread, surely: bool, perhaps: bool, why: str) -> Claim:
    verdict = Verdict.HOLDS if surely else Verdict.UNSETTLED if perhaps else Verdict.FAILS
    return Claim(says, asserts, value.text(), verdict, why, value)
