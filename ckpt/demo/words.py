"""A stream of words, a function of seed and offset as a partition of a durable message log would be."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

_SKEW = 1.1
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
BLOCK = 1000
"""Words per generated block."""


def stream(seed: int, start: int, stop: int, *, vocabulary: int = 2000) -> Iterator[list[str]]:
    """The words with offsets from `start` to `stop`, in blocks; the same for the same seed, from any start.

    Examples
    --------
    >>> whole = [word for block in stream(7, 0, 3000) for word in block]
    >>> [word for block in stream(7, 1500, 3000) for word in block] == whole[1500:]
    True
    """
    names, cumulative = _vocabulary(vocabulary)
    for block in range(start // BLOCK, -(-stop // BLOCK)):
        drawn = np.random.default_rng([seed, block]).random(BLOCK)
        ranks = np.minimum(np.searchsorted(cumulative, drawn), vocabulary - 1)
        first = block * BLOCK
        yield names[ranks[max(start - first, 0) : stop - first]].tolist()


def counts(seed: int, events: int, *, vocabulary: int = 2000) -> Counter[str]:
    """How often each word is in the first events of a stream: what every demo is compared with.

    Examples
    --------
    >>> counts(7, 3000).total()
    3000
    """
    return Counter(word for block in stream(seed, 0, events, vocabulary=vocabulary) for word in block)


@functools.lru_cache(maxsize=2)
def _vocabulary(size: int) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.float64]]:
    """The words by rank, and how likely a word is among the first ones up to a rank."""
    weights = 1.0 / np.arange(1, size + 1) ** _SKEW
    return np.array([_word(rank) for rank in range(size)], dtype=object), np.cumsum(weights / weights.sum())


def _word(rank: int) -> str:
    """A pronounceable name, different for every rank below 343,000."""
    scattered = rank * 101_929 % 343_000
    return _SYLLABLES[scattered % 70] + _SYLLABLES[scattered // 70 % 70] + _SYLLABLES[scattered // 4900]
