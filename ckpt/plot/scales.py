"""Where a value lies on an axis, and which values the axis names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_CEILINGS = (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10)
_STEPS = (1, 2, 5)
_FEW_TICKS = 3
_MANY_TICKS = 8
_TAIL = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999)

Show = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis: `place` says where a value lies, from 0 to 1; ticks are values and what is written there."""

    place: Callable[[float], float]
    ticks: Sequence[tuple[float, str]]


def number(value: float) -> str:
    """A number as an axis names it.

    Examples
    --------
    >>> [number(value) for value in (0, 0.25, 1500, 20_000, 1_000_000, 2_500_000)]
    ['0', '0.25', '1,500', '20k', '1M', '2.5M']
    """
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= max(unit, 1e4):
            return f"{value / unit:.4g}{name}"
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def duration(us: float) -> str:
    """A time in the unit that fits, to three digits.

    Examples
    --------
    >>> [duration(us) for us in (0, 850, 1500, 12_345, 999_999, 2_000_000, 90e6)]
    ['0 µs', '850 µs', '1.5 ms', '12.3 ms', '1 s', '2 s', '90 s']
    """
    for unit, name in ((1.0, "µs"), (1e3, "ms")):
        shown = f"{us / unit:.3g}"
        if float(shown) < 1000:
            return f"{shown} {name}"
    return f"{us / 1e6:.3g} s" if us < 999.5e6 else f"{us / 1e6:,.0f} s"


def from_zero(most: float, show: Show = number) -> Scale:
    """Linear, from zero to a number at or above the greatest value whose quarters are round."""
    end = _ceiling(most)
    return Scale(lambda value: value / end, [(end * n / 4, show(end * n / 4)) for n in range(5)])


def elapsed(most_s: float) -> tuple[Scale, str]:
    """Linear, from zero to exactly the end, and the unit in which its ticks are."""
    unit_s, unit = next(
        (s, u) for s, u in ((3600, "hours"), (60, "minutes"), (1, "seconds")) if most_s > 10 * s or s == 1
    )
    end = most_s if most_s > 0 else 1.0
    least = end / unit_s / 6
    power = 10.0 ** math.floor(math.log10(least))
    step = next(n * power for n in (*_STEPS, 10) if n * power >= least * 0.999)
    ticks = [
        (n * step * unit_s, number(round(n * step, 9))) for n in range(int(end / unit_s / step + 1e-9) + 1)
    ]
    return Scale(lambda value: value / end, ticks), unit


def logarithmic(values: Sequence[float], show: Show = number, *, exact: bool = False) -> Scale:
    """Logarithmic over the values above zero, with a tick at each of them if they are few and it is `exact`.

    Otherwise the axis reaches from one round number to another. What is not above zero lies at the beginning.
    """
    positive = sorted({value for value in values if value > 0}) or [1.0]
    low, high = positive[0], positive[-1]
    if not exact:
        low, high = _round_down(low), _round_up(high)
    if low == high:
        low, high = (low / 2, high * 2)
    ticks = positive if exact and len(positive) <= _MANY_TICKS else _round_between(low, high)
    span = math.log(high / low)

    def place(value: float) -> float:
        return math.log(max(value, low) / low) / span

    return Scale(place, [(value, show(value)) for value in ticks])


def tail(most: float) -> Scale:
    """Percentiles below 100 over 1/(1-p), logarithmic: each nine takes the same room; 100 lies at the end.

    Examples
    --------
    >>> scale = tail(99.9)
    >>> [name for _, name in scale.ticks]
    ['0 %', '50 %', '90 %', '99 %', '99.9 %', 'max']
    >>> round(scale.place(99.0), 2), scale.place(100.0)
    (0.61, 1.0)
    """
    # the greatest value has no place on such an axis: it is drawn one halving of the rest beyond the others
    end = math.log(2 * _nines(min(most, 100 - 1e-9)))

    def place(percentile: float) -> float:
        return 1.0 if percentile >= 100 else min(math.log(_nines(percentile)) / end, 1.0)

    ticks = [(percentile, f"{percentile:g} %") for percentile in _TAIL if percentile <= most]
    return Scale(place, [*ticks, (100.0, "max")])


def _nines(percentile: float) -> float:
    return 1 / (1 - percentile / 100)


def _ceiling(value: float) -> float:
    """The next number whose quarters are round."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * power for step in _CEILINGS if step * power >= value * (1 - 1e-9))


def _round_down(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return max(step * power for step in _STEPS if step * power <= value * (1 + 1e-9))


def _round_up(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (*_STEPS, 10) if step * power >= value * (1 - 1e-9))


def _round_between(low: float, high: float) -> list[float]:
    """Powers of ten, or if those are few also twos and fives."""
    powers = [10.0**n for n in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    finer = [n * power for power in powers for n in _STEPS]
    coarse, fine = (
        [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001] for ticks in (powers, finer)
    )
    return coarse if len(coarse) >= _FEW_TICKS else fine
