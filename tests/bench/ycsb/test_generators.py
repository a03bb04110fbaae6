"""The distributions are those of YCSB: chi-square against what its formulas say, with fixed seeds.

The level is one in a thousand for each; with fixed seeds a test passes always or never.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ckpt.errors import ConfigError
from ckpt_bench.ycsb.choosing import Chooser, operations
from ckpt_bench.ycsb.generators import (
    SCRAMBLED_ITEMS,
    SCRAMBLED_ZETA,
    ZIPFIAN_CONSTANT,
    Exponential,
    Generator,
    Histogram,
    Hotspot,
    InsertedKeys,
    ScrambledZipfian,
    Uniform,
    Zipfian,
    fnv64,
    fnv64_many,
    zeta,
)
from ckpt_bench.ycsb.records import key_name
from ckpt_bench.ycsb.settings import Settings, settings_of

DRAWS = 200_000


def draws(generator: Generator, seed: int = 1, count: int = DRAWS) -> npt.NDArray[np.int64]:
    return generator.draw(np.random.default_rng(seed), count)


def fits(counts: npt.NDArray[np.int64], shares: npt.NDArray[np.float64]) -> bool:
    """Chi-square: whether these counts are such as these shares give, but for one case in a thousand.

    Rare outcomes are put together until they are expected ten times.
    """
    expected = shares / shares.sum() * counts.sum()
    order = np.argsort(expected)[::-1]
    expected, counts = expected[order], counts[order]
    few = int(np.searchsorted(-expected, -10.0))
    if few < len(expected):
        expected = np.append(expected[:few], expected[few:].sum())
        counts = np.append(counts[:few], counts[few:].sum())
    keep = expected > 0
    assert not counts[~keep].any(), "something occurred that cannot"
    expected, counts = expected[keep], counts[keep]
    freedom = len(expected) - 1
    statistic = float(((counts - expected) ** 2 / expected).sum())
    # Wilson and Hilferty's approximation of the quantile
    limit = freedom * (1 - 2 / (9 * freedom) + 3.0902 * math.sqrt(2 / (9 * freedom))) ** 3
    return statistic < limit


def test_the_test_finds_what_does_not_fit() -> None:
    even = np.full(100, 0.01)
    skewed = even.copy()
    skewed[0] *= 1.3
    counts = np.random.default_rng(1).multinomial(DRAWS, even)
    assert fits(counts, even)
    assert not fits(np.random.default_rng(1).multinomial(DRAWS, skewed / skewed.sum()), even)


def test_uniform() -> None:
    found = draws(Uniform(10, 109))
    assert fits(np.bincount(found - 10, minlength=100), np.full(100, 0.01))


def test_zipfian_is_the_method_of_gray_with_constant_099() -> None:
    generator = Zipfian(5, 1004)
    found = draws(generator)
    assert (found.min(), found.max() <= 1004) == (5, True)
    shares = np.diff(generator.cumulative(np.arange(1000)), prepend=0.0)
    assert fits(np.bincount(found - 5, minlength=1000), shares)
    other = np.diff(Zipfian(5, 1004, 0.97).cumulative(np.arange(1000)), prepend=0.0)
    assert not fits(np.bincount(found - 5, minlength=1000), other)


def test_zipfian_is_near_the_law_of_zipf() -> None:
    """The method is exact for the two most popular numbers, and never off by more than 2 % of the draws."""
    law = np.arange(1, 1001) ** -ZIPFIAN_CONSTANT
    law /= law.sum()
    reached = Zipfian(0, 999).cumulative(np.arange(1000))
    assert reached[:2] == pytest.approx(np.cumsum(law)[:2])
    assert np.abs(reached - np.cumsum(law)).max() < 0.02


def test_scrambled_zipfian_spreads_ten_thousand_million_ranks_by_fnv() -> None:
    """Popular ranks one by one, and what is left of them evenly: their hashes are as good as random."""
    records, alone = 1000, 2_000_000
    generator = ScrambledZipfian(0, records - 1)
    reached = generator.ranks.cumulative(np.arange(alone))
    ranks = np.diff(reached, prepend=0.0)
    shares = np.bincount(fnv64_many(np.arange(alone)) % records, weights=ranks, minlength=records)
    shares += (1 - reached[-1]) / records
    found = draws(generator)
    assert fits(np.bincount(found, minlength=records), shares)
    most = Counter(found.tolist()).most_common(1)[0]
    assert most[0] == fnv64(0) % records
    assert most[1] / DRAWS == pytest.approx(1 / SCRAMBLED_ZETA, rel=0.05)


def test_zeta_is_the_sum_also_of_so_many_items_that_nobody_adds_them_up() -> None:
    terms = np.arange(1, 5_000_001, dtype=np.float64) ** -ZIPFIAN_CONSTANT
    assert zeta(5_000_000, ZIPFIAN_CONSTANT) == pytest.approx(math.fsum(terms), rel=1e-13)
    above = zeta(5_000_000, ZIPFIAN_CONSTANT, above=3_000_000)
    assert above == pytest.approx(math.fsum(terms[3_000_000:]), rel=1e-12)
    assert zeta(SCRAMBLED_ITEMS, ZIPFIAN_CONSTANT) == pytest.approx(SCRAMBLED_ZETA, abs=1e-9)


def test_hotspot() -> None:
    found = draws(Hotspot(100, 199, 0.2, 0.8))
    shares = np.concatenate([np.full(20, 0.8 / 20), np.full(80, 0.2 / 80)])
    assert fits(np.bincount(found - 100, minlength=100), shares)


def test_exponential() -> None:
    found = draws(Exponential(95, 857.0))
    gamma = -math.log(0.05) / 857
    ends = 1 - np.exp(-gamma * np.arange(1, 5001))
    shares = np.diff(ends, prepend=0.0)
    assert fits(np.bincount(np.minimum(found, 4999), minlength=5000), shares)
    assert np.mean(found < 857) == pytest.approx(0.95, abs=0.003)


def test_a_histogram_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "hist").write_text("BlockSize\t50\n0\t1\n1\t2\n2\t1\n")
    found = draws(Histogram(str(tmp_path / "hist")))
    assert fits(np.bincount(found // 50, minlength=4), np.array([0, 0.25, 0.5, 0.25]))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Blocks 50\n",
        "BlockSize\n0\t1",
        "BlockSize\t50\n",
        "BlockSize\t-50\n0\t1",
        "BlockSize\t50\n0\t-1\n1\t5",
        "BlockSize\t50\n-1\t1",
        "BlockSize\t50\n0\tinf",
        "BlockSize\t50\n0\t0",
        "BlockSize\t50\n0\tnan",
        f"BlockSize\t{'9' * 30}\n0\t1",
    ],
)
def test_what_is_no_histogram_says_what_one_is(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad").write_text(text)
    with pytest.raises(ConfigError, match="bad is no histogram; its first line is `BlockSize<tab>bytes`"):
        Histogram(str(tmp_path / "bad"))


def test_a_histogram_of_fields_that_no_memory_holds_is_refused(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("BlockSize\t1000000000000\n1\t2\n")
    with pytest.raises(ConfigError, match="2,000,000,000,000 bytes; 1 GiB is the most"):
        Histogram(str(tmp_path / "long"))


def test_operations_are_as_frequent_as_their_proportions() -> None:
    settings = settings_of(
        {"readproportion": "2", "updateproportion": "1", "scanproportion": "1", "insertproportion": "0"},
        pytest.fail,
    )
    found = Counter(islice(operations(settings, np.random.default_rng(1)), DRAWS))
    assert set(found) == {"READ", "UPDATE", "SCAN"}
    assert fits(np.array([found["READ"], found["UPDATE"], found["SCAN"]]), np.array([0.5, 0.25, 0.25]))


def chosen(settings: Settings, inserted: InsertedKeys, count: int) -> list[int]:
    """The numbers of the records that a run chooses."""
    numbers = {key_name(number, settings): number for number in range(inserted.last + 1)}
    keys = Chooser(settings, inserted).keys(np.random.default_rng(1))
    return [numbers[key] for key in islice(keys, count)]


def test_latest_prefers_the_newest_record_whichever_that_is() -> None:
    settings = settings_of({"recordcount": "1000", "requestdistribution": "latest"}, pytest.fail)
    inserted = InsertedKeys(1000)
    counts = np.bincount(999 - np.array(chosen(settings, inserted, DRAWS)), minlength=1000)
    shares = np.diff(Zipfian(0, 998).cumulative(np.arange(999)), prepend=0.0)
    assert fits(counts[:999], shares)
    inserted.acknowledge(inserted.take())
    assert Counter(chosen(settings, inserted, 1000)).most_common(1)[0][0] == 1000


def test_exponential_requests_are_near_the_newest_record() -> None:
    settings = settings_of({"recordcount": "700", "requestdistribution": "exponential"}, pytest.fail)
    found = np.array(chosen(settings, InsertedKeys(700), DRAWS))
    gamma = -math.log(0.05) / (700 * 0.8571428571)
    shares = np.exp(-gamma * np.arange(700)) * (1 - math.exp(-gamma))
    assert fits(np.bincount(699 - found, minlength=700), shares)


def test_sequential_goes_round_across_threads() -> None:
    settings = settings_of(
        {"recordcount": "10", "insertstart": "4", "requestdistribution": "sequential"}, pytest.fail
    )
    chooser = Chooser(settings, InsertedKeys(10))
    one, other = (chooser.keys(np.random.default_rng(seed)) for seed in (1, 2))
    found = [next(keys) for keys in (one, other, one, one, other, other, one, one)]
    assert found == [key_name(number, settings) for number in (4, 5, 6, 7, 8, 9, 4, 5)]


def test_zipfian_requests_never_meet_a_record_that_is_not_there_yet() -> None:
    settings = settings_of(
        {
            "recordcount": "100",
            "operationcount": "1000",
            "insertproportion": "0.5",
            "requestdistribution": "zipfian",
        },
        pytest.fail,
    )
    inserted = InsertedKeys(100)
    assert set(chosen(settings, inserted, 20_000)) == set(range(100))
    taken = [inserted.take() for _ in range(3)]
    inserted.acknowledge(taken[2])
    inserted.acknowledge(taken[0])
    assert inserted.last == 100, "the second is still under way"
    inserted.acknowledge(taken[1])
    assert inserted.last == 102


def test_numbers_of_inserts_are_taken_once_by_any_thread() -> None:
    inserted = InsertedKeys(0)
    taken: list[int] = []

    def insert() -> None:
        for _ in range(2000):
            number = inserted.take()
            taken.append(number)
            inserted.acknowledge(number)

    threads = [threading.Thread(target=insert) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(8000))
    assert inserted.last == 7999


def test_hashes_are_those_that_name_the_keys_of_every_ycsb_store() -> None:
    assert key_name(0, Settings()) == b"user6284781860667377211"
    assert key_name(1, Settings()) == b"user8517097267634966620"
    many = np.array([0, 1, 255, 256, 65_535, 10**6, 10**10, 2**62])
    assert fnv64_many(many).tolist() == [fnv64(number) for number in many.tolist()]


@pytest.mark.parametrize("items", [1, 2, 3])
def test_zipfian_of_very_few_items(items: int) -> None:
    assert set(draws(Zipfian(0, items - 1)).tolist()) == set(range(items))
