"""What an experiment of a paper is: what the paper says, how to run it here, what to check, what to draw.

Figures of the hardware that a paper used stand beside ours and are never checked. A claim that does not hold
here is a result, not an error.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from ckpt_bench.reproduce.claims import Claim
from ckpt_bench.reproduce.medium import Medium, filesystem

FiguresT = TypeVar("FiguresT")
ValueT = TypeVar("ValueT")


class Size(enum.StrEnum):
    """How much of an experiment is carried out."""

    QUICK = "quick"
    """Tiny: shows that everything works, and nothing about speed."""
    SMALL = "small"
    """A few seconds for each experiment."""
    FULL = "full"
    """As large as in the paper."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Figures for the eye: a chart, the same as a table, and what has to be known about them."""

    chart: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Experiment(Generic[FiguresT]):
    """One figure or table of a paper. Its figures are a dataclass, which is what `--json` prints."""

    name: str
    title: str
    says: str
    """What the paper did and found, in a sentence or two."""
    here: str
    """What is different here."""
    run: Callable[[Lab], FiguresT]
    check: Callable[[FiguresT], list[Claim]]
    show: Callable[[FiguresT], Shown]


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper and those of its experiments that run here."""

    name: str
    title: str
    experiments: Sequence[Experiment[Any]]
    kind: str = "paper"
    """What to call it."""


class Lab:
    """Where experiments run: folders, sizes, and measurements that several of them share."""

    def __init__(
        self,
        folder: str,
        size: Size = Size.SMALL,
        *,
        nfs: str | None = None,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.size = size
        self.say = say
        """Told what is being measured."""
        self.local = Medium("local disk", os.path.join(folder, "local"), durable=True)
        self.shared = (
            Medium("page cache", os.path.join(folder, "cached"), durable=False)
            if nfs is None
            else Medium("NFS", nfs, durable=True)
        )
        for medium in (self.local, self.shared):
            os.makedirs(medium.folder, exist_ok=True)
        self.filesystem = filesystem(self.local.folder)
        self._measured: dict[str, object] = {}

    def pick(self, *, quick: ValueT, small: ValueT, full: ValueT) -> ValueT:
        """The value for this size."""
        return {Size.QUICK: quick, Size.SMALL: small, Size.FULL: full}[self.size]

    @staticmethod
    def settle() -> None:
        """What was written before is on the device now, and does not slow down what is measured next."""
        os.sync()

    def once(self, what: str, measure: Callable[[], ValueT]) -> ValueT:
        """What was measured under that name: now, or for another experiment before."""
        if what not in self._measured:
            self._measured[what] = measure()
        return cast("ValueT", self._measured[what])
