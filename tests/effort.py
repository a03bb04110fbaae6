"""How much the tests try: a sample in the gate (`make test`), everything in the proof (`make prove`)."""

from __future__ import annotations

import itertools
import os
import random
import secrets
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

PROVING = "CKPT_PROVE" in os.environ
"""Whether everything is tried."""

SEED = int(os.environ.setdefault("CKPT_SEED", str(secrets.randbelow(10**6))))
"""Decides which part of everything the gate tries; it changes from run to run, and the run's head prints it.

The environment hands it on to the workers of pytest-xdist, so that all of them collect the same tests.
"""


def effort(gate: int, prove: int) -> int:
    """How often to try something: `gate` times in the gate, `prove` times in the proof."""
    return prove if PROVING else gate


def nth(step: int) -> slice:
    """Everything in the proof; in the gate every `step`-th, from another one in each run."""
    return slice(None) if PROVING else slice(SEED % step, None, step)


def rotated(everything: Sequence[T]) -> tuple[T, ...]:
    """All of it, in an order that begins with another one in each run of the gate."""
    first = 0 if PROVING else SEED % len(everything)
    return (*everything[first:], *everything[:first])


def sample(everything: Sequence[T], gate: int, salt: object = "", *, prove: int | None = None) -> list[T]:
    """So many in the gate and in the proof (None: all), one from each of as many equal stretches.

    `salt` lets samples of one run differ in what they choose.
    """
    size = prove if PROVING else gate
    if size is None or len(everything) <= size:
        return list(everything)
    choose = random.Random(f"{SEED} {salt}")
    bounds = itertools.pairwise(len(everything) * at // size for at in range(size + 1))
    return [everything[choose.randrange(low, high)] for low, high in bounds]
