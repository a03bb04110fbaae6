"""What benchmarks work on: stores by name, and keys and values that are the same in every run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from ckpt_bench.compare.turns import Job, Sizes, Work
from ckpt_bench.stores import INSTALL_HINT, Store, is_installed, open_store

KEYS = 10_000
_BATCHES = 100
"""How many sets of keys are made ready before the clock starts."""


def work(*, keys: int = KEYS, records: int, value_bytes: int) -> Work:
    """The work of `ckpt bench compare` in batches of this size, with a seed of its own."""
    sizes = Sizes(keys=keys, rounds=1, calls=1, records=records, value_bytes=value_bytes)
    return Work(Job(case="", store="", folder="", durable=False, sizes=sizes, seed=15))


def batches(*, records: int, value_bytes: int) -> Iterator[dict[bytes, bytes]]:
    """Batches of puts of random keys, without an end; a key never has the value that it had before.

    SQLite writes nothing, and so syncs nothing, where a row gets the value that it has.
    """
    chosen = work(records=records, value_bytes=value_bytes)
    first = [chosen.batch(chosen.chooser(number)) for number in range(_BATCHES)]
    chooser = chosen.chooser(_BATCHES)
    second = [{key: chosen.value(chooser) for key in batch} for batch in first]
    return itertools.cycle(first + second)


def one_batch(*, records: int, value_bytes: int) -> dict[bytes, bytes]:
    """One batch in which no key comes twice."""
    [batch] = work(keys=records, records=records, value_bytes=value_bytes).load(records)
    return batch


class OpenHere(Protocol):
    """Opens a store by its name in `ckpt_bench.stores`; it is closed with the test."""

    def __call__(self, name: str, *, durable: bool) -> Store: ...


def open_or_skip(name: str, folder: Path, *, durable: bool) -> Store:
    """The store of that name in this folder; a peer that is not installed skips the test."""
    if not is_installed(name):
        pytest.skip(f"{name} is not installed; {INSTALL_HINT}")
    return open_store(name, str(folder / name), durable=durable)
