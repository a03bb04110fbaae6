"""Words of posts: a long tail whose popularity drifts slowly, with words that everybody uses for a while.

Stands for the *Social* data of mixed-2017 §V (five million words of posts over five days, 180,000 different
ones, a day being an interval) and of ftlb-2019 §5, which are not public.

A word of rank r has the weight (r + 10)^-z · exp(x): the words that come most often in any text say nothing
about a post and are not counted. x is normal with mean 0 and standard deviation 0.5; from one interval to the
next, x becomes (1 - d) · x + √(1 - (1 - d)²) · 0.5 · ε with ε standard normal and d the `drift`, so that its
distribution stays and its value wanders. A Poisson number of words, `bursts` in the mean, drawn uniformly,
begins to burst in each interval: to its share of the weights comes `burst_share`, which halves with each
interval after that. Words are drawn independently by what that comes to.

A post has 1 + Poisson(`post_words` - 1) words. Each word of a post is a tuple.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ckpt.errors import ConfigError
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

_UNCOUNTED = 10
_SPREAD = 0.5
"""The standard deviation of x: a word is now and then twice or half as popular as its rank says."""


@dataclass(frozen=True)
class Posts:
    """So many intervals of posts; a key is a word.

    Parameters
    ----------
    words
        How many different ones there are.
    exponent
        z.
    drift
        d: 0 for popularity that stays, 1 for one that is drawn anew in each interval.
    bursts
        How many words begin to burst in an interval, in the mean.
    burst_share
        What a burst begins with, as a part of all words without bursts.
    posts
        How many come in one interval.
    post_words
        How many words a post has in the mean.
    intervals, tuple_s, tuple_bytes, interval_s, seed
        As of `DriftingZipf`; a tuple is a word of a post.

    Examples
    --------
    >>> stream = Posts(words=1000, posts=200, intervals=2)
    >>> columns, interval = next(stream.rows()), next(iter(stream))
    >>> list(columns), len(columns["word"]) == interval.tuples.sum()
    (['at_s', 'post', 'word'], np.True_)
    """

    words: int = 180_000
    exponent: float = 1.0
    drift: float = 0.05
    bursts: float = 2.0
    burst_share: float = 0.005
    posts: int = 20_000
    post_words: float = 8.0
    intervals: int = 50
    tuple_s: float = 1e-3
    tuple_bytes: float = 64
    interval_s: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        at_least_one(words=self.words, intervals=self.intervals, posts=self.posts)
        not_negative(exponent=self.exponent, bursts=self.bursts, burst_share=self.burst_share)
        not_negative(tuple_s=self.tuple_s, tuple_bytes=self.tuple_bytes, interval_s=self.interval_s)
        fractions(drift=self.drift)
        if not self.post_words >= 1:
            raise ConfigError(f"post_words must be at least 1, not {self.post_words}")

    def __iter__(self) -> Iterator[Interval]:
        known = self._known()
        for number, weights in enumerate(self._weights()):
            _, _, words = self._drawn(number, weights)
            tuples = counts(words, self.words)
            yield known.interval(tuples, tuples * self.tuple_s, tuples * self.tuple_bytes)

    def rows(self) -> Iterator[Columns]:
        """Per interval one row for each word of a post: `at_s` and `post` (its number) and `word`."""
        known = self._known()
        for number, weights in enumerate(self._weights()):
            at_s, post, words = self._drawn(number, weights)
            yield {"at_s": at_s[post], "post": number * self.posts + post, "word": known.text(words)}

    def _known(self) -> KeySet:
        return KeySet.named([word(number) for number in range(self.words)])

    def _weights(self) -> Iterator[F64]:
        rng = np.random.default_rng([self.seed, 0])
        of_rank, kept = zipf(self.words + _UNCOUNTED, self.exponent)[_UNCOUNTED:], 1 - self.drift
        x = _SPREAD * rng.standard_normal(self.words)
        burst = np.zeros(self.words)
        for _ in range(self.intervals):
            burst /= 2
            burst[rng.integers(self.words, size=rng.poisson(self.bursts))] += self.burst_share
            weights = of_rank * np.exp(x)
            yield weights / weights.sum() + burst
            x = kept * x + np.sqrt(1 - kept**2) * _SPREAD * rng.standard_normal(self.words)

    def _drawn(self, number: int, weights: F64) -> tuple[F64, I64, I64]:
        """When each post comes; per row its post, counted from 0, and its word."""
        rng = np.random.default_rng([self.seed, 1, number])
        post = np.repeat(np.arange(self.posts), 1 + rng.poisson(self.post_words - 1, self.posts))
        at_s = times(rng, number, self.interval_s, self.posts)
        return at_s, post, drawn(rng, weights, len(post))
