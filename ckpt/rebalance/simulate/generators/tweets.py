"""Tweets about stories, each with the LSH key by which first story detection finds those like it.

Stands for the 2.95 million tweets of dlb-cep-2016 §4, which are not public.

**Tweets.** In each interval a Poisson number of stories begins, `stories` in the mean. A story has a weight
drawn from a Pareto distribution with tail index 1.2, which halves with each interval after its first, and
`tweet_words` words of its own, drawn by Zipf's law with exponent 1 from the vocabulary. A tweet is
chatter with probability `chatter`, else it tells one of the stories, drawn by weight. The words of chatter
are drawn like those of a story; a tweet about a story has the story's words, each replaced by another one
with probability `rewording`.

**Keys.** A tweet is a vector with one dimension for each word of the vocabulary: how often the word is there
times log(1 + rank), so that common words count little. Each of `bits` random hyperplanes (normal vectors with
independent standard normal coordinates) has it on one side or the other; the sides are the bits of the key.
Two tweets at an angle of a agree in a bit with probability 1 - a / π, so those of one story mostly share a
key. 12 bits make the 4,096 keys of the paper.

**Order.** The paper sends tweets as they are, and again by choosing the key of each from Zipf's law, whose
exponent is 0.2 for five minutes, 1.5 for ten, and so on. With `exponents`, interval i does that with entry
i (cyclically), keys in an order drawn once: the tweets that came are drawn from again, so a tweet may come
several times. A key that no tweet of the interval has is left out.

**Work.** The query compares a tweet with the last H = `compared` ones of its key: `tuple_s` and for each of
them `compare_s`. They are its state: a key adds to it up to H tweets in an interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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

_TAIL = 1.2
_MOST_BITS = 24


@dataclass(frozen=True)
class Tweets:
    """So many intervals of tweets; a key is what the hyperplanes say about a tweet.

    Parameters
    ----------
    tweets
        How many come in one interval.
    bits
        How many hyperplanes there are, so 2^bits keys.
    stories
        How many begin in an interval, in the mean.
    chatter
        The part of the tweets that are about no story.
    rewording
        How likely it is that a word of a story is replaced.
    vocabulary, tweet_words
        How many words there are, and how many a tweet has.
    exponents
        Choose keys by Zipf's law with these exponents, one for each interval; empty: as tweets come.
    compared
        H of the paper.
    compare_s
        The work of comparing two tweets.
    intervals, tuple_s, tuple_bytes, interval_s, seed
        As of `DriftingZipf`; a tuple is a tweet.

    Examples
    --------
    >>> even, skewed = Tweets(tweets=5000, bits=6, exponents=(0.2, 1.5), intervals=2)
    >>> bool(even.tuples.max() < 300 < 1500 < skewed.tuples.max())
    True
    """

    tweets: int = 12_000
    bits: int = 12
    stories: float = 5.0
    chatter: float = 0.5
    rewording: float = 0.15
    vocabulary: int = 20_000
    tweet_words: int = 8
    exponents: Sequence[float] = ()
    compared: int = 500
    compare_s: float = 2e-6
    intervals: int = 50
    tuple_s: float = 1e-3
    tuple_bytes: float = 140
    interval_s: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        at_least_one(tweets=self.tweets, bits=self.bits, vocabulary=self.vocabulary, compared=self.compared)
        at_least_one(tweet_words=self.tweet_words, intervals=self.intervals)
        not_negative(stories=self.stories, compare_s=self.compare_s, **_numbered(self.exponents))
        not_negative(tuple_s=self.tuple_s, tuple_bytes=self.tuple_bytes, interval_s=self.interval_s)
        fractions(chatter=self.chatter, rewording=self.rewording)
        if self.bits > _MOST_BITS:
            raise ConfigError(f"bits must be at most {_MOST_BITS}, not {self.bits}")

    def __iter__(self) -> Iterator[Interval]:
        known = KeySet.numbered(1 << self.bits)
        seen = np.zeros(len(known))
        for _, _, key in self._tweets():
            tuples = counts(key, len(known))
            # The i-th tweet of a key ever is compared with min(i - 1, H) others.
            pairs = _compared(seen + tuples, self.compared) - _compared(seen, self.compared)
            seen += tuples
            held = np.minimum(tuples, self.compared)
            cost = tuples * self.tuple_s + pairs * self.compare_s
            yield known.interval(tuples, cost, held * self.tuple_bytes)

    def rows(self) -> Iterator[Columns]:
        """Per interval one row for each tweet.

        Columns: `at_s`, `key` (a number from 0), `story` (a number, -1 for chatter), `text`.
        """
        spelt = np.empty(self.vocabulary, object)
        spelt[:] = [word(number) for number in range(self.vocabulary)]
        for number, (story, words, key) in enumerate(self._tweets()):
            text = np.empty(len(words), object)
            text[:] = [" ".join(each) for each in spelt[words].tolist()]
            rng = np.random.default_rng([self.seed, 2, number])
            at_s = times(rng, number, self.interval_s, len(key))
            yield {"at_s": at_s, "key": key, "story": story, "text": text}

    def _tweets(self) -> Iterator[tuple[I64, npt.NDArray[np.int64], I64]]:
        """Story, words (one row for each tweet) and key of each tweet, interval by interval."""
        rng = np.random.default_rng([self.seed, 0])
        of_word = zipf(self.vocabulary, 1.0)
        planes = rng.standard_normal((self.vocabulary, self.bits))
        planes *= np.log1p(np.arange(1, self.vocabulary + 1))[:, None]
        ranked = rng.permutation(1 << self.bits)
        weight, told = np.empty(0), np.empty((0, self.tweet_words), np.int64)
        for number in range(self.intervals):
            begin = int(rng.poisson(self.stories))
            weight = np.concatenate([weight / 2, rng.pareto(_TAIL, begin) + 1])
            told = np.concatenate([told, self._words(rng, of_word, begin)])
            words = self._words(rng, of_word, self.tweets)
            story = np.full(self.tweets, -1)
            about = np.flatnonzero(rng.random(self.tweets) >= self.chatter)
            if len(weight):
                story[about] = drawn(rng, weight, len(about))
                kept = rng.random((len(about), self.tweet_words)) >= self.rewording
                words[about] = np.where(kept, told[story[about]], words[about])
            key = self._key(planes, words)
            if self.exponents:
                chosen = self._by_key(rng, key, ranked, self.exponents[number % len(self.exponents)])
                story, words, key = story[chosen], words[chosen], key[chosen]
            yield story, words, key

    def _words(self, rng: np.random.Generator, of_word: F64, tweets: int) -> I64:
        return drawn(rng, of_word, tweets * self.tweet_words).reshape(tweets, self.tweet_words)

    def _key(self, planes: npt.NDArray[np.float64], words: I64) -> I64:
        side = np.zeros((len(words), self.bits))
        for column in words.T:
            side += planes[column]
        return np.asarray((side > 0) @ (1 << np.arange(self.bits)))

    def _by_key(self, rng: np.random.Generator, key: I64, ranked: I64, exponent: float) -> I64:
        """Positions of tweets whose keys follow Zipf's law; `ranked` has the keys by rank."""
        of_key = np.empty(len(ranked))
        of_key[ranked] = zipf(len(ranked), exponent)
        order = np.argsort(key, kind="stable")
        present, first, count = np.unique(key[order], return_index=True, return_counts=True)
        chosen = drawn(rng, of_key[present], len(key))
        return np.asarray(order[first[chosen] + rng.integers(count[chosen])])


def _compared(tweets: F64, most: int) -> F64:
    """How many comparisons the first so many tweets of a key cause together."""
    growing = np.minimum(tweets, most)
    return np.asarray(growing * (growing - 1) / 2 + (tweets - growing) * most)


def _numbered(exponents: Sequence[float]) -> dict[str, float]:
    return {f"exponent {number}": value for number, value in enumerate(exponents)}
