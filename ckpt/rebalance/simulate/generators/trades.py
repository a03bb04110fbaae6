"""Stock trades: few symbols, of which some burst abruptly, joined with themselves over a window.

Stands for the *Stock* data of mixed-2017 §V (six million trades of 1,036 symbols over three days, a day being
an interval), which is not public.

The symbol of rank r has the weight r^-z. In each interval, each symbol that does not burst begins to with
probability `burst_rate`; its weight is then multiplied by 2^u, u uniform from 1 to 4, at once, and at the end
of each interval the burst ends at once with probability 1/2. Trades are drawn independently by weight.
Accounts are drawn by Zipf's law with exponent 1, and each trade is a purchase or a sale with probability 1/2.
A symbol's price moves by a normal step of 0.1 % with every trade. Quantities are log-normal (their logarithm
has the mean 5.5 and the deviation 1), rounded down to lots of 100, and at least one lot.

**Work.** The query looks for accounts that buy and sell much within a window: a self-join. Each new trade
meets all trades of its symbol that the window still holds. n new trades beside m that came in the intervals
before cause n · m + n · (n - 1) / 2 comparisons, so the work of a key is quadratic in its trades.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ckpt.rebalance.loads import F64
from ckpt.rebalance.simulate.generators.keyset import (
    I64,
    Columns,
    KeySet,
    at_least_one,
    counts,
    drawn,
    fractions,
    not_negative,
    times,
    word,
)
from ckpt.rebalance.simulate.generators.zipf import zipf
from ckpt.rebalance.simulate.interval import Interval

_BURST_LOG2 = (1.0, 4.0)
"""A burst multiplies by 2 to 16."""
_BURST_ENDS = 0.5
_STEP = 1e-3
_LOT = 100
_QUANTITY = (5.5, 1.0)


@dataclass(frozen=True)
class Trades:
    """So many intervals of trades; a key is a symbol.

    Parameters
    ----------
    symbols
        How many are traded.
    exponent
        z.
    burst_rate
        How likely it is that a symbol begins to burst in an interval.
    trades
        How many there are in one interval.
    accounts
        How many trade.
    window
        How many intervals the join looks back, the current one included.
    pair_s
        The work of one comparison, beside `tuple_s` for each trade.
    intervals, tuple_s, tuple_bytes, interval_s, seed
        As of `DriftingZipf`; a tuple is a trade.

    Examples
    --------
    >>> once, twice = (next(iter(Trades(trades=n, tuple_s=0))) for n in (10_000, 20_000))
    >>> 3.5 < twice.cost.sum() / once.cost.sum() < 4.5
    np.True_
    """

    symbols: int = 1036
    exponent: float = 0.5
    burst_rate: float = 0.002
    trades: int = 60_000
    accounts: int = 10_000
    window: int = 5
    pair_s: float = 1e-6
    intervals: int = 50
    tuple_s: float = 1e-3
    tuple_bytes: float = 64
    interval_s: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        at_least_one(symbols=self.symbols, trades=self.trades, accounts=self.accounts)
        at_least_one(window=self.window, intervals=self.intervals)
        not_negative(exponent=self.exponent, pair_s=self.pair_s)
        not_negative(tuple_s=self.tuple_s, tuple_bytes=self.tuple_bytes, interval_s=self.interval_s)
        fractions(burst_rate=self.burst_rate)

    def __iter__(self) -> Iterator[Interval]:
        known = self._known()
        before: deque[F64] = deque(maxlen=self.window - 1)
        for number, weights in enumerate(self._weights()):
            tuples = counts(self._symbols(number, weights), self.symbols)
            held = sum(before, np.zeros(self.symbols))
            pairs = tuples * held + tuples * (tuples - 1) / 2
            cost = tuples * self.tuple_s + pairs * self.pair_s
            yield known.interval(tuples, cost, tuples * self.tuple_bytes)
            before.append(tuples)

    def rows(self) -> Iterator[Columns]:
        """Per interval one row for each trade.

        Columns: `at_s`, `symbol`, `account` (a number), `side` ("buy" or "sell"), `price`, `quantity`.
        """
        known = self._known()
        price = np.exp(np.random.default_rng([self.seed, 2]).normal(3.0, 1.0, self.symbols))
        of_account = zipf(self.accounts, 1.0)
        for number, weights in enumerate(self._weights()):
            symbol = self._symbols(number, weights)
            rng = np.random.default_rng([self.seed, 3, number])
            paid, price = _walk(rng, symbol, price)
            lots = np.maximum(rng.lognormal(*_QUANTITY, self.trades) // _LOT, 1)
            yield {
                "at_s": times(rng, number, self.interval_s, self.trades),
                "symbol": known.text(symbol),
                "account": drawn(rng, of_account, self.trades),
                "side": np.array(["buy", "sell"], object)[rng.integers(2, size=self.trades)],
                "price": paid.round(4),
                "quantity": (lots * _LOT).astype(np.int64),
            }

    def _known(self) -> KeySet:
        return KeySet.named([word(10_000 + number).upper() for number in range(self.symbols)])

    def _weights(self) -> Iterator[F64]:
        rng = np.random.default_rng([self.seed, 0])
        of_symbol = rng.permutation(zipf(self.symbols, self.exponent))
        factor = np.ones(self.symbols)
        for _ in range(self.intervals):
            begins = (factor == 1) & (rng.random(self.symbols) < self.burst_rate)
            factor[begins] = np.exp2(rng.uniform(*_BURST_LOG2, self.symbols)[begins])
            yield of_symbol * factor
            factor[rng.random(self.symbols) < _BURST_ENDS] = 1

    def _symbols(self, number: int, weights: F64) -> I64:
        return drawn(np.random.default_rng([self.seed, 1, number]), weights, self.trades)


def _walk(rng: np.random.Generator, symbol: I64, price: F64) -> tuple[F64, F64]:
    """What each trade is paid at, and the price of each symbol after the last."""
    order = np.argsort(symbol, kind="stable")
    step = np.cumsum(_STEP * rng.standard_normal(len(symbol)))
    ordered = symbol[order]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    before = np.concatenate([[0.0], step])[first]
    moved = step - np.repeat(before, np.diff(first, append=len(symbol)))
    paid = np.empty(len(symbol))
    paid[order] = price[ordered] * np.exp(moved)
    after = price.copy()
    after[symbol] = paid  # the last trade of a symbol wins
    return paid, after
