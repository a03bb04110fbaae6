"""The tweets of dlb-cep-2016, and the cluster that detects first stories in them.

What the paper says: 2.95 million tweets in 40 minutes, 4,096 keys, 5 engines, plans above a score of 15 %,
the last 500 tweets of each key in memory, 1 ms to read a tweet from MongoDB. What it does not say was chosen
so that its own figures fit together, and is the same for every technique:

- a tweet takes an engine 2.1 ms: DLB keeps its rate at Zipf 1.5, where one key has 39 % of all tweets, so
  it cannot take longer, and KG's falls, so it cannot take much less;
- 50,000 tweets may be under way: LPTF loses time by what it moves, and DLB-L, which moves half of that, none;
- loads are measured every 40 s, over the last 120 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ckpt.rebalance.simulate import Cluster, Interval
from ckpt.rebalance.simulate.generators import DriftingZipf, Tweets

DURATION_S = 2400.0
TWEETS_PER_S = 1226.0
KEYS = 4096
KEPT = 500
"""H of the paper: tweets of a key that an engine has in memory."""
TWEET_BYTES = 2700
"""8 GB are 2.95 million tweets."""
READ_BYTES_S = TWEET_BYTES / 0.001
WORK_S = 0.0021
INTERVAL_S = 40.0
LOAD_INTERVALS = 3
INTERVALS = int(DURATION_S / INTERVAL_S)
DEFAULT, ZIPF = "default order", "periodic Zipf"


def cluster(engines: int) -> Cluster:
    """The paper's engines behind a spout."""
    return Cluster(engines, INTERVAL_S, max_pending=50_000)


def skewed(at_s: float) -> bool:
    """Whether the periodic stream has exponent 1.5 at a time, and not 0.2: ten minutes of each fifteen."""
    return at_s % 900 >= 300


def generator(seed: int, thinned: int) -> Tweets:
    """Tweets in their own order, one for each `thinned` of the paper's.

    A story begins every four minutes or so, which gives KG about the score that it has in the paper.
    """
    return Tweets(
        tweets=round(TWEETS_PER_S * INTERVAL_S / thinned),
        intervals=INTERVALS,
        interval_s=INTERVAL_S,
        stories=0.15,
        chatter=0.3,
        rewording=0.15,
        tuple_s=WORK_S,
        compare_s=0.0,
        tuple_bytes=0,
        seed=seed,
    )


def stream(order: str, seed: int, thinned: int) -> list[Interval]:
    """The intervals of 40 minutes, whose state is the last 500 tweets of each key.

    In the default order each generated tweet stands for `thinned`. The periodic stream has the expected
    number of tweets of each key; which key has which rank is drawn once.
    """
    if order == DEFAULT:
        return list(_with_state(generator(seed, thinned), thinned))
    even, high = (_zipf(exponent, seed) for exponent in (0.2, 1.5))
    return list(_with_state((high if skewed(INTERVAL_S * i) else even for i in range(INTERVALS)), 1))


def _zipf(exponent: float, seed: int) -> Interval:
    drawn = DriftingZipf(
        keys=KEYS,
        exponent=exponent,
        fluctuation=0.0,
        intervals=1,
        tuples=TWEETS_PER_S * INTERVAL_S,
        tuple_s=WORK_S,
        seed=seed,
    )
    return next(iter(drawn))


def _with_state(tweets: Iterable[Interval], thinned: int) -> Iterator[Interval]:
    keys, seen = np.empty(0, np.uint64), np.empty(0)
    for interval in tweets:
        known = np.union1d(keys, interval.keys)
        counted = np.zeros(len(known))
        counted[np.searchsorted(known, keys)] = seen
        keys, seen = known, counted
        at = np.searchsorted(keys, interval.keys)
        before = np.minimum(seen[at], KEPT)
        seen[at] += interval.tuples * thinned
        added = (np.minimum(seen[at], KEPT) - before) * TWEET_BYTES
        yield Interval(interval.keys, interval.tuples * thinned, interval.cost * thinned, added)
