"""A subset of TPC-H as a stream, whose foreign keys follow Zipf's law: for Q5 as a continuous query.

mixed-2017 §V and mnrt-2017 §5 take the benchmark's tables and make its foreign keys skewed (z = 0.8). Here
the columns that their queries read are made anew, so `scale` counts roughly as in the benchmark: 10,000
suppliers and 150,000 customers for each unit, 25 nations in 5 regions by its own list.

**Tables** that do not change: region, nation, supplier and customer. **Streams**: orders, and the lines of
orders, which come in the interval of their order. With the foreign keys n_regionkey as the benchmark has it,
s_nationkey and c_nationkey, o_custkey, l_suppkey and l_orderkey (among the orders of its interval) each drawn
independently by Zipf's law with the `exponent`; ranks are a permutation of the keys of their own for each
column. So every foreign key is a key of its table. Four lines come for each order in the mean.

**Change.** Every `change_every` intervals, customers and suppliers swap their frequencies as `zipf` defines
it, with f = `fluctuation` and one pair of the `instances` of the base hash.

**Work.** Every row is looked up once: the work of a key is `tuple_s` for each of its rows. `stage` says which
join of Q5 is planned: `custkey` (orders with customers), `orderkey` (lines with orders, rows of both) or
`suppkey` (lines with suppliers).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from ckpt.contract.addresses import suggestion
from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import homes
from ckpt.rebalance.loads import F64
from ckpt.rebalance.simulate.generators.keyset import (
    I64,
    Columns,
    KeySet,
    at_least_one,
    counts,
    drawn,
    not_negative,
    times,
)
from ckpt.rebalance.simulate.generators.zipf import drain, zipf
from ckpt.rebalance.simulate.interval import Interval

Stage = Literal["custkey", "orderkey", "suppkey"]

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS = (
    ("ALGERIA", 0),
    ("ARGENTINA", 1),
    ("BRAZIL", 1),
    ("CANADA", 1),
    ("EGYPT", 4),
    ("ETHIOPIA", 0),
    ("FRANCE", 3),
    ("GERMANY", 3),
    ("INDIA", 2),
    ("INDONESIA", 2),
    ("IRAN", 4),
    ("IRAQ", 4),
    ("JAPAN", 2),
    ("JORDAN", 4),
    ("KENYA", 0),
    ("MOROCCO", 0),
    ("MOZAMBIQUE", 0),
    ("PERU", 1),
    ("CHINA", 2),
    ("ROMANIA", 3),
    ("SAUDI ARABIA", 4),
    ("VIETNAM", 2),
    ("RUSSIA", 3),
    ("UNITED KINGDOM", 3),
    ("UNITED STATES", 1),
)
"""Name and n_regionkey, as the benchmark's specification lists them."""
SHIP_MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
SHIP_INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")

_LINES = 4
"""Lines for each order, in the mean."""
_SUPPLIERS, _CUSTOMERS = 10_000, 150_000


@dataclass(frozen=True)
class Tpch:
    """So many intervals of orders and their lines, over tables that stay.

    Parameters
    ----------
    scale
        1 for the numbers of suppliers and customers of the benchmark at 1 GB.
    exponent
        z of all foreign keys.
    orders
        How many come in one interval.
    stage
        What is a key of the intervals: "custkey", "orderkey" or "suppkey".
    fluctuation, instances
        f, and how many instances there are that load moves between.
    change_every
        After so many intervals frequencies are swapped; 0: never.
    intervals, tuple_s, tuple_bytes, interval_s, seed
        As of `DriftingZipf`; a tuple is an order or a line.

    Examples
    --------
    >>> stream = Tpch(scale=0.01, orders=1000, intervals=1)
    >>> tables, (orders, lines) = stream.tables(), next(stream.rows())
    >>> {name: len(next(iter(columns.values()))) for name, columns in tables.items()}
    {'region': 5, 'nation': 25, 'supplier': 100, 'customer': 1500}
    >>> bool(np.isin(lines["l_orderkey"], orders["o_orderkey"]).all()), len(lines["l_suppkey"])
    (True, 4000)
    """

    scale: float = 0.1
    exponent: float = 0.8
    orders: int = 20_000
    stage: Stage = "suppkey"
    fluctuation: float = 1.0
    instances: int = 15
    change_every: int = 10
    intervals: int = 50
    tuple_s: float = 1e-3
    tuple_bytes: float = 64
    interval_s: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        at_least_one(orders=self.orders, instances=self.instances, intervals=self.intervals)
        not_negative(scale=self.scale, exponent=self.exponent, fluctuation=self.fluctuation)
        not_negative(change_every=self.change_every)
        not_negative(tuple_s=self.tuple_s, tuple_bytes=self.tuple_bytes, interval_s=self.interval_s)
        if self.stage not in get_args(Stage):
            raise ConfigError(f"Q5 has no stage {self.stage!r}; {suggestion(self.stage, get_args(Stage))}")
        if not self.change_every or not self.fluctuation or self.instances > 1:
            return
        raise ConfigError("load moves between at least two instances; with one, set change_every to 0")

    @property
    def suppliers(self) -> int:
        """How many there are."""
        return max(round(self.scale * _SUPPLIERS), 1)

    @property
    def customers(self) -> int:
        """How many there are."""
        return max(round(self.scale * _CUSTOMERS), 1)

    def __iter__(self) -> Iterator[Interval]:
        keys = {
            "custkey": self.customers,
            "suppkey": self.suppliers,
            "orderkey": self.orders * self.intervals,
        }
        known = KeySet.numbered(keys[self.stage])
        for orders, lines in self.rows():
            if self.stage == "custkey":
                rows = orders["o_custkey"]
            elif self.stage == "suppkey":
                rows = lines["l_suppkey"]
            else:
                rows = np.concatenate([orders["o_orderkey"], lines["l_orderkey"]])
            tuples = counts(rows, len(known))
            yield known.interval(tuples, tuples * self.tuple_s, tuples * self.tuple_bytes)

    def tables(self) -> dict[str, Columns]:
        """The tables that do not change, by name: region, nation, supplier and customer."""
        rng = np.random.default_rng([self.seed, 0])
        nations = len(NATIONS)
        of_nation = {name: rng.permutation(zipf(nations, self.exponent)) for name in ("s", "c")}
        return {
            "region": {"r_regionkey": np.arange(len(REGIONS)), "r_name": np.array(REGIONS, object)},
            "nation": {
                "n_nationkey": np.arange(nations),
                "n_name": np.array([name for name, _ in NATIONS], object),
                "n_regionkey": np.array([region for _, region in NATIONS]),
            },
            "supplier": {
                "s_suppkey": np.arange(self.suppliers),
                "s_nationkey": drawn(rng, of_nation["s"], self.suppliers),
            },
            "customer": {
                "c_custkey": np.arange(self.customers),
                "c_nationkey": drawn(rng, of_nation["c"], self.customers),
            },
        }

    def rows(self) -> Iterator[tuple[Columns, Columns]]:
        """Per interval the new orders and their lines."""
        of_order = zipf(self.orders, self.exponent)
        customers = self._frequencies(1, self.customers)
        suppliers = self._frequencies(2, self.suppliers)
        for number in range(self.intervals):
            rng = np.random.default_rng([self.seed, 3, number])
            first = number * self.orders
            key = first + np.arange(self.orders)
            at_s = times(rng, number, self.interval_s, self.orders)
            orders = {"at_s": at_s, "o_orderkey": key, "o_custkey": drawn(rng, next(customers), self.orders)}
            yield orders, self._lines(rng, at_s, first, drawn(rng, of_order, self.orders * _LINES), suppliers)

    def _lines(
        self, rng: np.random.Generator, at_s: F64, first: int, rank: I64, suppliers: Iterator[F64]
    ) -> Columns:
        order = np.sort(rng.permutation(self.orders)[rank])  # lines come in the order of their orders
        count = len(order)
        return {
            "at_s": at_s[order],
            "l_orderkey": first + order,
            "l_suppkey": drawn(rng, next(suppliers), count),
            "l_quantity": rng.integers(1, 51, count),
            "l_extendedprice": rng.uniform(900, 105_000, count).round(2),
            "l_discount": rng.integers(0, 11, count) / 100,
            "l_shipmode": np.array(SHIP_MODES, object)[rng.integers(len(SHIP_MODES), size=count)],
            "l_shipinstruct": np.array(SHIP_INSTRUCTIONS, object)[
                rng.integers(len(SHIP_INSTRUCTIONS), size=count)
            ],
        }

    def _frequencies(self, stream: int, keys: int) -> Iterator[F64]:
        """What part of the rows each key of a table has, interval by interval."""
        rng = np.random.default_rng([self.seed, stream])
        known = KeySet.numbered(keys)
        place = np.empty(keys, np.int32)
        place[known.order] = homes(known.keys, self.instances)
        share = rng.permutation(zipf(keys, self.exponent))
        for number in range(self.intervals):
            if number and self.change_every and number % self.change_every == 0 and self.fluctuation:
                source, target = rng.permutation(self.instances)[:2].tolist()
                share = drain(share, place, source, target, self.fluctuation, rng)
            yield share
