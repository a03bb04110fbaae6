"""First stories: how many a technique reports that keeps the tweets of a key together, and how many PKG.

A tweet is a first story if none of the last 500 tweets of its key on its engine tells the same story. Tweets
about no story are left out: they are first stories whatever the technique.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

import numpy as np

from ckpt.rebalance import PartialKeyRouter, Side
from ckpt.rebalance.hashing import hash_longs
from ckpt_bench.reproduce.dlb.streams import KEPT, generator


def first_stories(seed: int, thinned: int) -> tuple[int, int]:
    """What is reported when every key is on one engine at a time, and by PKG, for the same tweets."""
    pieces = [(rows["key"], rows["story"]) for rows in generator(seed, thinned).rows()]
    key, story = (np.concatenate(column) for column in zip(*pieces, strict=True))
    router = PartialKeyRouter(5)
    engine = router.store(Side.LEFT, key, hash_longs(key).astype(np.uint64)).instances
    together = _reported(zip(key.tolist(), story.tolist(), strict=True))
    apart = zip(key.tolist(), engine.tolist(), strict=True)
    return together, _reported(zip(apart, story.tolist(), strict=True))


def _reported(tweets: Iterable[tuple[object, int]]) -> int:
    kept: dict[object, tuple[deque[int], Counter[int]]] = {}
    reported = 0
    for group, story in tweets:
        last, told = kept.setdefault(group, (deque(), Counter()))
        reported += story >= 0 and not told[story]
        last.append(story)
        told[story] += 1
        if len(last) > KEPT:
            told[last.popleft()] -= 1
    return reported
