"""How much the tests try: a stratified sample in the gate (`make test`), everything in the proof (`make prove`)."""

from __future__ import annotations

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


def sample(everything: Sequence[T], size: int, salt: object = "") -> list[T]:
    """All of it in the proof; in the gate `size` of it, one from each of as many equal stretches, in order.

    `salt` tells samples of one run apart.
    """
    if PROVING or len(everything) <= size:
        return list(everything)
    choose = random.Random(f"{SEED} {salt}")
    bounds = [len(everything) * at // size for at in range(size + 1)]
    return [everything[choose.randrange(low, high)] for low, high in zip(bounds, bounds[1:], strict=False)]
