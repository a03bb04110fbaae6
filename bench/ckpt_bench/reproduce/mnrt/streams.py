"""The two joins of mnrt-2017 §5.1.3 as streams, and the schemes that carry them out.

EQ5 is the last step of TPC-H Q5: lines with their suppliers, by equal keys. B_NCI joins lines with lines
whose order numbers differ by at most one, after filters on both sides. Foreign keys follow Zipf's law.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from ckpt.rebalance import Band, Equal, Side
from ckpt.rebalance.hashing import hash_longs
from ckpt.rebalance.simulate.generators import Tpch
from ckpt.rebalance.simulate.joins import (
    BicliqueScheme,
    JoinRun,
    KeyedScheme,
    MatrixScheme,
    Rows,
    Scheme,
    run_join,
)
from ckpt.rebalance.splitting import Predicate

EQ5, BNCI = "EQ5", "B_NCI"
QUERIES = (EQ5, BNCI)
MNRT, QMMP, MIXED, DYNAMIC, BI, BI6 = "MNRT", "QMMP", "Mixed", "Dynamic", "Bi", "Bi6"

SUPPLIER_PER_LINES = 10
"""TPC-H has a supplier for 600 lines; with as few lines as here that would leave a handful of keys."""
LINES_PER_ORDER = 4
LEFT_PART, RIGHT_PART = 1 / 7, 1 / 100
"""Which part of the lines passes each filter of B_NCI: one of seven ship modes; one of four instructions and
two of fifty quantities."""
THETA = 0.1

PREDICATES: Mapping[str, Predicate] = {EQ5: Equal(), BNCI: Band(1)}


def rows_of(query: str, count: int, exponent: float, seed: int, seconds: float) -> Rows:
    """About so many rows of both sides in random order, evenly over the time."""
    return {EQ5: _eq5, BNCI: _bnci}[query](count, exponent, seed, seconds)


def _eq5(count: int, exponent: float, seed: int, seconds: float) -> Rows:
    lines = round(count * SUPPLIER_PER_LINES / (SUPPLIER_PER_LINES + 1))
    suppliers = count - lines
    stream = Tpch(
        scale=suppliers / 10_000,
        exponent=exponent,
        orders=-(-lines // LINES_PER_ORDER),
        intervals=1,
        change_every=0,
        seed=seed,
    )
    _, columns = next(stream.rows())
    return _shuffled(np.arange(suppliers), columns["l_suppkey"], seed, seconds, hashed=True)


def _bnci(count: int, exponent: float, seed: int, seconds: float) -> Rows:
    lines = count / (LEFT_PART + RIGHT_PART)
    stream = Tpch(
        scale=0.01,
        exponent=exponent,
        orders=round(lines / LINES_PER_ORDER),
        intervals=1,
        change_every=0,
        seed=seed,
    )
    _, columns = next(stream.rows())
    left = columns["l_shipmode"] == "TRUCK"
    right = (columns["l_shipinstruct"] == "NONE") & (columns["l_quantity"] > 48)
    key = columns["l_orderkey"]
    return _shuffled(key[left], key[right], seed, seconds, hashed=False)


def _shuffled(
    left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], seed: int, seconds: float, *, hashed: bool
) -> Rows:
    value = np.concatenate([left, right])
    side = np.repeat([Side.LEFT, Side.RIGHT], [len(left), len(right)])
    order = np.random.default_rng([seed, 5]).permutation(len(value))
    if hashed:  # identities of an equal join are well mixed, a band needs the order of the keys
        value = hash_longs(value).astype(np.int64)
    return Rows.of(side[order], value[order], np.linspace(0, seconds, len(value)), seed)


def measured(
    query: str, rows: Rows, capacity_rows: int, intervals: int, window_s: float | None = None
) -> dict[str, JoinRun]:
    """Each scheme's run over the same rows."""
    interval_rows = -(-len(rows) // intervals)
    return {
        name: run_join(rows, begin(), PREDICATES[query], interval_rows=interval_rows, window_s=window_s)
        for name, begin in schemes(query, capacity_rows).items()
    }


def schemes(query: str, capacity_rows: int) -> Mapping[str, Callable[[], Scheme]]:
    """Each scheme as it begins: with as few instances as it can have."""
    predicate = PREDICATES[query]

    def keyed(planner: str) -> Callable[[], Scheme]:
        return lambda: KeyedScheme(planner, 1, theta=THETA, capacity_rows=capacity_rows, predicate=predicate)

    return {
        MNRT: keyed("mnrt"),
        QMMP: keyed("qmmp"),
        MIXED: keyed("mixed"),
        DYNAMIC: lambda: MatrixScheme(capacity_rows=capacity_rows),
        BI: lambda: BicliqueScheme(capacity_rows=capacity_rows, predicate=predicate),
        BI6: lambda: BicliqueScheme(6, capacity_rows=capacity_rows, predicate=predicate),
    }
