"""Posts, trades, tweets and TPC-H: repeatable, counted from their rows, skewed and changing as they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import hash_longs
from ckpt.rebalance.simulate.generators import Posts, Tpch, Trades, Tweets
from ckpt.rebalance.simulate.interval import Interval

SEEDS = st.integers(0, 2**32)
STREAMS = st.one_of(
    st.builds(Posts, words=st.integers(1, 300), posts=st.integers(1, 50), intervals=st.just(3), seed=SEEDS),
    st.builds(
        Trades, symbols=st.integers(1, 50), trades=st.integers(1, 200), intervals=st.just(3), seed=SEEDS
    ),
    st.builds(
        Tweets,
        tweets=st.integers(1, 100),
        bits=st.integers(1, 8),
        vocabulary=st.integers(1, 100),
        exponents=st.sampled_from([(), (0.2, 1.5)]),
        intervals=st.just(3),
        seed=SEEDS,
    ),
    st.builds(
        Tpch,
        scale=st.floats(0, 0.01),
        orders=st.integers(1, 100),
        stage=st.sampled_from(["custkey", "orderkey", "suppkey"]),
        change_every=st.integers(0, 2),
        intervals=st.just(3),
        seed=SEEDS,
    ),
)
KEYS = {Posts: "word", Trades: "symbol", Tweets: "key"}


def by_key(interval: Interval) -> dict[Any, float]:
    """How many tuples each key has: names, or for numbers the half that is Spark's hash."""
    keys = interval.keys & np.uint64(2**32 - 1) if interval.names is None else interval.names
    return dict(zip(keys.tolist(), interval.tuples.tolist(), strict=True))


def counted(keys: np.ndarray) -> dict[Any, float]:
    named = keys if keys.dtype == object else hash_longs(keys).astype(np.uint64)
    return dict(Counter(named.tolist()))


@given(STREAMS)
@settings(deadline=None)
def test_a_stream_can_be_read_again(stream: Iterable[Interval]) -> None:
    for once, again in zip(stream, stream, strict=True):
        assert by_key(once) == by_key(again)
        assert (once.cost == again.cost).all()
        assert (once.state == again.state).all()


@given(STREAMS)
@settings(deadline=None)
def test_intervals_count_the_rows(stream: Any) -> None:
    for interval, rows in zip(stream, stream.rows(), strict=True):
        if isinstance(stream, Tpch):
            orders, lines = rows
            keys = {
                "custkey": orders["o_custkey"],
                "suppkey": lines["l_suppkey"],
                "orderkey": np.concatenate([orders["o_orderkey"], lines["l_orderkey"]]),
            }[stream.stage]
        else:
            keys = rows[KEYS[type(stream)]]
        assert by_key(interval) == counted(keys)


@given(STREAMS)
@settings(deadline=None)
def test_the_columns_of_rows_are_of_one_length_and_in_the_order_of_time(stream: Any) -> None:
    for number, rows in enumerate(stream.rows()):
        for columns in rows if isinstance(rows, tuple) else (rows,):
            assert len({len(column) for column in columns.values()}) == 1
            assert (np.diff(columns["at_s"]) >= 0).all()
            assert ((columns["at_s"] // stream.interval_s) == number).all()


@pytest.mark.parametrize("kind", [Posts, Trades, Tweets, Tpch])
def test_another_seed_is_another_stream(kind: Any) -> None:
    one, other = (by_key(next(iter(kind(seed=seed)))) for seed in (0, 1))
    assert one != other


class TestPosts:
    def test_the_tail_is_long(self) -> None:
        interval = next(iter(Posts(words=20_000, posts=50_000, bursts=0, seed=1)))
        came = np.sort(interval.tuples)[::-1]
        slope, _ = np.polyfit(np.log(np.arange(11, 311)), np.log(came[:300]), 1)
        assert -slope == pytest.approx(1.0, abs=0.15)
        assert (interval.tuples <= 3).sum() > len(interval) / 4

    def test_popularity_drifts_slowly(self) -> None:
        stream = Posts(words=3000, posts=30_000, bursts=0, drift=0.1, intervals=30, seed=2)
        intervals = [by_key(interval) for interval in stream]
        often = [word for word, count in intervals[0].items() if count > 300]

        def change(at: int) -> float:
            return float(np.median([abs(np.log(intervals[at].get(w, 1) / intervals[0][w])) for w in often]))

        assert 0.05 < change(1) < 0.3
        assert change(1) < change(5) < change(29)

    def test_a_burst_begins_at_once_and_halves(self) -> None:
        calm, loud = (
            list(Posts(words=5000, posts=30_000, drift=0, bursts=b, burst_share=0.05, intervals=9, seed=3))
            for b in (0.0, 1.0)
        )
        assert max(i.tuples.max() / i.tuples.sum() for i in calm) < 0.04
        shares = [{w: n / i.tuples.sum() for w, n in by_key(i).items()} for i in loud]
        usual = by_key(calm[0])
        began = [
            (at, word)
            for at in range(1, 7)
            for word, share in shares[at].items()
            if share > 0.035 and usual.get(word, 0) < 300 and shares[at - 1].get(word, 0) < 0.01
        ]
        assert began
        for at, word in began:
            assert shares[at + 1][word] == pytest.approx(shares[at][word] / 2, rel=0.2)


class TestTrades:
    def test_symbols_burst_and_calm_down_at_once(self) -> None:
        of = [by_key(i) for i in Trades(trades=200_000, burst_rate=0.002, intervals=20, seed=1)]
        rises = [
            (at, symbol)
            for at in range(1, 20)
            for symbol, count in of[at].items()
            if count > 3 * of[at - 1].get(symbol, 0) and count > 1000
        ]
        falls = [
            1
            for at in range(1, 20)
            for symbol, count in of[at - 1].items()
            if count > 3 * of[at].get(symbol, 0) and count > 1000
        ]
        assert len(rises) > 10
        assert len(falls) > 10

    def test_without_bursts_the_symbols_keep_their_weight(self) -> None:
        first, second = (by_key(i) for i in Trades(burst_rate=0, trades=200_000, intervals=2, seed=1))
        for symbol, count in first.items():
            assert abs(second.get(symbol, 0) - count) < 6 * np.sqrt(count + 10)

    def test_the_work_is_that_of_comparing_every_pair_of_the_window(self) -> None:
        stream = Trades(symbols=3, trades=40, window=2, tuple_s=0, pair_s=1, intervals=4, seed=7)
        rows = [columns["symbol"].tolist() for columns in stream.rows()]
        for number, interval in enumerate(stream):
            held = Counter(rows[number - 1]) if number else Counter[str]()
            expected = dict.fromkeys(interval.names.tolist(), 0)
            for symbol in rows[number]:
                expected[symbol] += held[symbol]
                held[symbol] += 1
            assert interval.cost.tolist() == [expected[name] for name in interval.names]

    def test_rows_look_like_trades(self) -> None:
        first, second = Trades(symbols=5, trades=3000, intervals=2, seed=2).rows()
        assert set(first["side"]) == {"buy", "sell"}
        assert (first["quantity"] >= 100).all()
        assert (first["quantity"] % 100 == 0).all()
        for symbol in set(first["symbol"]):
            last = first["price"][first["symbol"] == symbol][-1]
            assert second["price"][second["symbol"] == symbol][0] == pytest.approx(last, rel=0.01)


class TestTweets:
    def test_tweets_of_a_story_share_a_key(self) -> None:
        rows = next(Tweets(bits=8, chatter=0.2, rewording=0.05, stories=20, intervals=1, seed=3).rows())
        assert (rows["story"] == -1).mean() == pytest.approx(0.2, abs=0.02)
        agree = []
        for story in range(rows["story"].max() + 1):
            keys = rows["key"][rows["story"] == story]
            if len(keys) > 20:
                agree.append(np.bincount(keys).max() / len(keys))
        assert np.mean(agree) > 0.5 > np.mean(np.bincount(rows["key"]).max() / len(rows["key"]))

    def test_equal_texts_have_equal_keys(self) -> None:
        rows = next(Tweets(vocabulary=6, tweet_words=3, bits=10, tweets=2000, intervals=1).rows())
        keys: dict[tuple[str, ...], set[int]] = {}
        for text, key in zip(rows["text"], rows["key"].tolist(), strict=True):
            keys.setdefault(tuple(sorted(text.split())), set()).add(key)
        assert len(keys) > 10
        assert {len(each) for each in keys.values()} == {1}

    def test_keys_follow_the_exponents_in_turn(self) -> None:
        stream = Tweets(bits=6, tweets=50_000, exponents=(0.2, 1.5), stories=0, intervals=4, seed=5)
        for number, interval in enumerate(stream):
            came = np.sort(interval.tuples)[::-1][:30]
            slope, _ = np.polyfit(np.log(np.arange(1, 31)), np.log(came), 1)
            assert -slope == pytest.approx((0.2, 1.5)[number % 2], abs=0.1)

    def test_a_tweet_is_compared_with_the_last_h_of_its_key(self) -> None:
        stream = Tweets(bits=1, tweets=30, compared=20, tuple_s=0, compare_s=1, tuple_bytes=1, intervals=3)
        seen: Counter[int] = Counter()
        for rows, interval in zip(stream.rows(), stream, strict=True):
            work: Counter[int] = Counter()
            for key in rows["key"].tolist():
                work[key] += min(seen[key], 20)
                seen[key] += 1
            assert sorted(interval.cost.tolist()) == sorted(float(work[k]) for k in set(rows["key"].tolist()))
            assert (interval.state == np.minimum(interval.tuples, 20)).all()


class TestTpch:
    def test_every_foreign_key_is_a_key_of_its_table(self) -> None:
        stream = Tpch(scale=0.01, orders=500, intervals=4, change_every=2, seed=1)
        tables = stream.tables()
        assert np.isin(tables["nation"]["n_regionkey"], tables["region"]["r_regionkey"]).all()
        for table, column in (("supplier", "s_nationkey"), ("customer", "c_nationkey")):
            assert np.isin(tables[table][column], tables["nation"]["n_nationkey"]).all()
        for name, table in tables.items():
            primary = next(iter(table.values()))
            assert len(np.unique(primary)) == len(primary), name
        seen: set[int] = set()
        for orders, lines in stream.rows():
            assert np.isin(orders["o_custkey"], tables["customer"]["c_custkey"]).all()
            assert np.isin(lines["l_suppkey"], tables["supplier"]["s_suppkey"]).all()
            assert np.isin(lines["l_orderkey"], orders["o_orderkey"]).all()
            assert not seen & set(orders["o_orderkey"].tolist())
            seen |= set(orders["o_orderkey"].tolist())

    def test_foreign_keys_are_as_skewed_as_asked(self) -> None:
        stream = Tpch(scale=0.1, exponent=0.8, orders=100_000, intervals=1, seed=2)
        orders, lines = next(stream.rows())
        for column in (
            orders["o_custkey"],
            lines["l_suppkey"],
            lines["l_orderkey"],
        ):
            came = np.sort(np.bincount(column))[::-1][:50]
            slope, _ = np.polyfit(np.log(np.arange(1, 51)), np.log(came), 1)
            assert -slope == pytest.approx(0.8, abs=0.08)

    def test_load_moves_only_when_it_is_said_to(self) -> None:
        stream = Tpch(scale=0.05, orders=50_000, change_every=2, intervals=4, seed=3)
        shares = [np.bincount(lines["l_suppkey"], minlength=500) / 2e5 for _, lines in stream.rows()]
        moved = [np.abs(after - before).sum() / 2 for before, after in pairwise(shares)]
        assert max(moved[0], moved[2]) < 0.03 < moved[1]

    def test_an_unknown_stage_is_named(self) -> None:
        with pytest.raises(ConfigError, match="no stage 'supkey'; did you mean 'suppkey'"):
            Tpch(stage="supkey")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Posts(words=0), "words must be at least 1"),
        (lambda: Posts(post_words=0.5), "post_words must be at least 1"),
        (lambda: Posts(drift=2), "drift must be a number from 0 to 1"),
        (lambda: Trades(burst_rate=-0.1), "burst_rate must be a number from 0 to 1, not -0.1"),
        (lambda: Tweets(bits=40), "bits must be at most 24"),
        (lambda: Tweets(exponents=(1, -1)), "exponent 1 must be"),
        (lambda: Tpch(instances=1), "at least two instances"),
    ],
)
def test_an_impossible_stream_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
