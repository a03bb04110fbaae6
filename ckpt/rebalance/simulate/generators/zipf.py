"""Zipf's law whose hot keys change: the synthetic data of mixed-2017 §V, ftlb-2019 §5 and mnrt-2017 §5.

**Frequencies.** The r-th of K keys has r^-z / (1^-z + … + K^-z) of the tuples, z being the exponent. Which
key has which rank at first is drawn uniformly. Tuples of a key are expected numbers, not rounded: whatever
happens to the keys, the K frequencies are the same numbers in every interval.

**Fluctuation f.** The papers swap frequencies between keys of different instances until an instance's load
has changed by |L_i(d) - L_{i-1}(d)| / L_i(d) ≥ f. That cannot hold for every instance: what one loses, others
gain. Here, before each interval but the first, `pairs` disjoint pairs (source, target) of instances are drawn
uniformly. Keys of the source are drawn without replacement, by their load (a key of twice the load is twice
as likely to be the next), and each swaps its frequency with another key of the target, drawn uniformly,
unless that one is as heavy. It ends as soon as the source has at most 1 / (1 + f) of the load that it had:
then the condition holds for it, with equality but for the last swap. If its keys run out, that is all.

With one pair an interval this is p1 of docs/reproduce.md, with seven of fifteen instances p7.

**Instances** are those of the base hash. `follow` takes others: where a planner has put the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import homes
from ckpt.rebalance.loads import F64, I32, U64
from ckpt.rebalance.simulate.generators.keyset import (
    Columns,
    KeySet,
    at_least_one,
    drawn,
    not_negative,
    times,
)
from ckpt.rebalance.simulate.interval import Interval


@dataclass(frozen=True)
class DriftingZipf:
    """So many intervals of Zipf's law; each is the one before with some frequencies swapped.

    Parameters
    ----------
    keys
        K of the papers.
    exponent
        z of the papers.
    fluctuation
        f of the papers, as the module defines it.
    pairs
        How many pairs of instances exchange load before an interval.
    instances
        N_D of the papers.
    intervals
        How many there are.
    tuples
        How many come in one interval.
    tuple_s
        The work that a tuple causes.
    tuple_bytes
        What a tuple adds to the state of its key.
    interval_s
        How long an interval is; only `rows` need it.
    seed
        Another seed gives another stream.

    Examples
    --------
    >>> first, second = DriftingZipf(keys=1000, exponent=1.0, instances=5, intervals=2, tuples=5000, seed=1)
    >>> round(float(first.tuples.max())), round(float(second.tuples.sum()))
    (668, 5000)
    >>> bool((np.sort(first.tuples) == np.sort(second.tuples)).all()), (first.tuples == second.tuples).all()
    (True, np.False_)
    """

    keys: int = 100_000
    exponent: float = 0.85
    fluctuation: float = 1.0
    pairs: int = 1
    instances: int = 15
    intervals: int = 50
    tuples: float = 150_000
    tuple_s: float = 1e-3
    tuple_bytes: float = 64
    interval_s: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        at_least_one(keys=self.keys, instances=self.instances, intervals=self.intervals)
        not_negative(exponent=self.exponent, fluctuation=self.fluctuation, tuples=self.tuples)
        not_negative(tuple_s=self.tuple_s, tuple_bytes=self.tuple_bytes, interval_s=self.interval_s)
        if not 0 <= 2 * self.pairs <= self.instances and self.fluctuation:
            raise ConfigError(
                f"{self.pairs} pairs take {2 * self.pairs} instances, and there are {self.instances}; "
                "use fewer pairs, or fluctuation 0"
            )

    def __iter__(self) -> Iterator[Interval]:
        return self.follow(lambda keys: homes(keys, self.instances))

    def follow(self, place: Callable[[U64], I32]) -> Iterator[Interval]:
        """The stream in which load moves between the instances that keys are on, as `place` says.

        `place` is given the identities of all keys, and is asked before each interval but the first. A
        planner so meets the same strength of change in every interval, whatever it did before.
        """
        known = KeySet.numbered(self.keys)
        for share in self._shares(known, place):
            tuples = share * self.tuples
            yield Interval(known.keys, tuples, tuples * self.tuple_s, tuples * self.tuple_bytes)

    def rows(self) -> Iterator[Columns]:
        """Per interval the columns `at_s` and `key` (a number from 0) of as many rows as `tuples`, rounded.

        Keys of rows are drawn by the frequencies, so they come about as often as the intervals say.
        """
        known = KeySet.numbered(self.keys)
        for number, share in enumerate(self._shares(known, lambda keys: homes(keys, self.instances))):
            rng = np.random.default_rng([self.seed, 1, number])
            count = round(self.tuples)
            key = known.order[drawn(rng, share, count)]
            yield {"at_s": times(rng, number, self.interval_s, count), "key": key}

    def _shares(self, known: KeySet, place: Callable[[U64], I32]) -> Iterator[F64]:
        """The part of all tuples that each key has, ascending by identity, interval by interval."""
        rng = np.random.default_rng([self.seed, 0])
        share = rng.permutation(zipf(self.keys, self.exponent))
        yield share
        for _ in range(1, self.intervals):
            if self.fluctuation and self.pairs:
                ends = rng.permutation(self.instances)[: 2 * self.pairs].reshape(-1, 2)
                at = place(known.keys)
                for source, target in ends.tolist():
                    share = drain(share, at, source, target, self.fluctuation, rng)
            yield share


def zipf(count: int, exponent: float) -> F64:
    """The probabilities of the ranks from 1 to `count` by Zipf's law; they add up to 1.

    Examples
    --------
    >>> (zipf(3, 1.0) * 11).round(6).tolist()
    [6.0, 3.0, 2.0]
    """
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


def drain(
    load: F64, place: I32, source: int, target: int, fluctuation: float, rng: np.random.Generator
) -> F64:
    """The loads after keys of `source` swapped theirs with keys of `target`, as the module defines it.

    Examples
    --------
    >>> load, place = np.array([4.0, 4.0, 1.0, 1.0]), np.array([0, 0, 1, 1], np.int32)
    >>> after = drain(load, place, 0, 1, 0.3, np.random.default_rng(1))
    >>> sorted(after[:2].tolist()), sorted(after[2:].tolist())
    ([1.0, 4.0], [1.0, 4.0])
    """
    givers, takers = np.flatnonzero((place == source) & (load > 0)), np.flatnonzero(place == target)
    # In descending order of log(load) plus Gumbel noise, keys come as if drawn by load one after the other.
    givers = givers[np.argsort(-np.log(load[givers]) - rng.gumbel(size=len(givers)), kind="stable")]
    takers = rng.permutation(takers)
    pairs = min(len(givers), len(takers))
    givers, takers = givers[:pairs], takers[:pairs]
    lost = np.maximum(load[givers] - load[takers], 0)
    wanted = float(load[place == source].sum()) * (1 - 1 / (1 + fluctuation))
    swaps = int(np.searchsorted(np.cumsum(lost), wanted)) + 1 if wanted > 0 else 0
    swap = np.flatnonzero(lost[:swaps] > 0)
    swapped = load.copy()
    swapped[givers[swap]], swapped[takers[swap]] = load[takers[swap]], load[givers[swap]]
    return swapped
