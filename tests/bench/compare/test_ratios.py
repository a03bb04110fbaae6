"""What a ratio says, who takes which turn, and what is shown: no store is opened here."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ckpt_bench.compare import referee
from ckpt_bench.compare.cases import CASES, stores_of
from ckpt_bench.compare.present import as_csv, as_page, rows_of, sections
from ckpt_bench.compare.referee import FULL, Budget, Match, Outcome, Referee, Standing, sized
from ckpt_bench.compare.selecting import Wish, matches
from ckpt_bench.compare.turns import Job, Turn
from ckpt_bench.failing import StoreError
from ckpt_bench.interleaved import paired
from ckpt_bench.interrupts import Interrupts


def outcome_of(case: str, baseline: str, **seconds: list[float]) -> Outcome:
    """An outcome at full size in which every turn was 100 operations; underscores stand for dashes."""
    standings = {
        (store := name.replace("_", "-")): Standing(
            store, {number: Turn(took, 100) for number, took in enumerate(of)}
        )
        for name, of in seconds.items()
    }
    return Outcome(CASES[case], baseline, CASES[case].sizes, standings)


def test_a_ratio_is_of_pairs_and_says_how_much_faster_the_baseline_is() -> None:
    outcome = outcome_of("durable-batch-100", "log", log=[1.0, 10.0], rocksdict=[2.0, 40.0])
    rows = {row.store: row for row in rows_of(outcome, 7, {})}
    assert (rows["rocksdict"].q1, rows["rocksdict"].ratio, rows["rocksdict"].q3) == (2.5, 3.0, 3.5)
    assert rows["log"].ratio == 1.0
    assert rows["log"].ops_per_s == 55.0


def test_the_first_tenth_warms_up_and_rounds_that_a_store_sat_out_do_not_count() -> None:
    ours = dict.fromkeys(range(20), 1.0) | {0: 100.0, 1: 100.0}
    assert paired(ours, dict.fromkeys(range(20), 2.0)).low == 2.0
    assert str(paired(dict.fromkeys(range(6), 1.0), {0: 2.0, 5: 2.0})) == "2.00 [2.00 2.00]"
    assert paired({3: 1.0}, {3: 4.0}).middle == 4.0


@pytest.mark.parametrize(
    ("took", "verdict"), [(1.3, "missed"), (1.4, "met"), (1.9, "met"), (2.0, "met, and 2")]
)
def test_the_bar_is_shown_with_its_verdict(took: float, verdict: str) -> None:
    outcome = outcome_of("durable-batch-100", "log", log=[1.0, 1.0], rocksdict=[took, took])
    rows = rows_of(outcome, 7, {})
    (section,) = sections([outcome], rows)
    (shown,) = [row for row in section.rows if row[0] == "rocksdict"]
    assert shown[5:7] == ["1.4", verdict]
    assert rows[1].met is (verdict != "missed")


def test_bars_are_judged_at_the_size_that_they_are_for() -> None:
    outcome = outcome_of("open", "log", log=[1.0, 1.0], rocksdict=[2.0, 2.0])
    assert [row.met for row in rows_of(outcome, 7, {})] == [None, False]
    outcome.sizes = replace(outcome.sizes, rounds=2)
    assert [row.met for row in rows_of(outcome, 7, {})] == [None, False], "fewer rounds are the same work"
    outcome.sizes = outcome.case.quick
    rows = rows_of(outcome, 7, {})
    assert [(row.bar, row.met) for row in rows] == [(None, None), (50, None)]
    (section,) = sections([outcome], rows)
    assert section.rows[1][5:7] == ["50", "not judged"]
    assert "The bar is for 5,000,000 keys" in section.about


def test_a_page_shows_throughput_against_latency_of_each_store() -> None:
    outcome = outcome_of("durable-batch-100", "log", log=[1.0] * 9 + [3.0], lmdb=[2.0] * 10)
    html = as_page([outcome], rows_of(outcome, 7, {}), 7)
    assert "durable-batch-100: throughput against latency" in html
    assert "300 ms at 100" in html, "a tenth of the slow turn of three seconds, since a turn has ten calls"
    assert "200 ms at 50" in html


def test_bars_are_for_the_baseline_they_were_set_for() -> None:
    outcome = outcome_of("durable-batch-100", "lmdb", log=[1.0, 1.0], lmdb=[2.0, 2.0], rocksdict=[3.0, 3.0])
    assert {(row.store, row.ratio, row.bar) for row in rows_of(outcome, 7, {})} == {
        ("log", 0.5, None),
        ("lmdb", 1.0, None),
        ("rocksdict", 1.5, None),
    }


def test_without_the_baseline_there_is_no_ratio() -> None:
    outcome = outcome_of("open", "log", log=[], lmdb=[1.0])
    assert rows_of(outcome, 7, {}) == []
    assert sections([outcome], []) == []


def test_records_are_shown_where_a_queue_decides_how_many_are_written() -> None:
    outcome = outcome_of("thesis-mix-writes", "log", log=[1.0, 1.0, 1.0], file=[5.0, 5.0, 5.0])
    for store, written in (("log", (1, 3000, 2000)), ("file", (1000, 1000, 1000))):
        turns = outcome.standings[store].turns
        turns.update({number: Turn(turns[number].seconds, 100, n) for number, n in enumerate(written)})
    rows = rows_of(outcome, 7, {})
    assert {row.store: row.written for row in rows} == {"log": 2000, "file": 1000}
    (section,) = sections([outcome], rows)
    place = list(section.header).index("written")
    assert {row[0]: row[place] for row in section.rows} == {"log": "2,000", "file": "1,000"}
    (other,) = sections([plain := outcome_of("open", "log", log=[1.0])], rows_of(plain, 7, {}))
    assert "written" not in other.header


def test_csv_and_the_page_hold_every_row() -> None:
    outcome = outcome_of("raw-append-durable", "log", log=[2.0, 2.0], raw_append=[1.0, 1.0])
    rows = rows_of(outcome, 7, {})
    read = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert [(row["store"], row["ratio"], row["bar"], row["met"]) for row in read] == [
        ("log", "1.0", "", ""),
        ("raw-append", "0.5", "0.6", "False"),
    ]
    html = as_page([outcome], rows, 7)
    assert "<svg" in html
    assert "raw-append-durable" in html
    assert "missed" in html
    assert "Seed 7" in html


# -- turns ---------------------------------------------------------------------------------------


class Scripted:
    """Stands for a worker: turns take what the script says, and are written down."""

    seconds: dict[str, float]
    taken: list[tuple[str, int]]
    fails_at: int | None

    def __init__(self, _: Interrupts) -> None: ...

    def begin(self, job: Job) -> None:
        self.name = job.store

    def ready(self) -> None:
        """It always is."""

    end = stop = ready

    def turn(self, number: int) -> Turn:
        if self.name == "lmdb" and number == type(self).fails_at:
            raise StoreError("disk full")
        self.taken.append((self.name, number))
        return Turn(self.seconds[self.name], 1)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Outcome, list[tuple[str, int]]]]:
    """(seed, seconds by store) → what came out, and the turns in order."""

    def run(
        seed: int, seconds: dict[str, float], fails_at: int | None = None, budget: Budget = FULL
    ) -> tuple[Outcome, list[tuple[str, int]]]:
        script: Any = type("Script", (Scripted,), {"seconds": seconds, "taken": [], "fails_at": fails_at})
        monkeypatch.setattr(referee, "Worker", script)
        case = CASES["batched-puts-1KB"]
        sizes = sized(case, quick=False, keys=10, rounds=50)
        outcome = Outcome(case, "log", sizes, {name: Standing(name) for name in seconds})
        judge = Referee("/nowhere", seed, budget, lambda *_: None, Interrupts())
        judge.play(Match(case, "log", list(seconds), sizes, {}), outcome)
        judge.close()
        return outcome, script.taken

    return run


def test_the_order_changes_from_round_to_round_and_follows_from_the_seed(play: Any) -> None:
    same = dict.fromkeys(("log", "rocksdict", "lmdb"), 0.1)
    _, turns = play(1, same)
    rounds = [tuple(name for name, of in turns if of == number) for number in range(50)]
    assert all(sorted(each) == sorted(same) for each in rounds)
    assert len(set(rounds)) == 6
    assert play(1, same)[1] == turns
    assert play(2, same)[1] != turns


def test_a_slow_store_sits_rounds_out_evenly_and_the_baseline_never(play: Any) -> None:
    outcome, _ = play(1, {"log": 5.0, "lmdb": 0.6, "file": 100.0})
    assert len(outcome.standings["log"].turns) == 50
    assert sorted(outcome.standings["lmdb"].turns) == [0, 1, *range(2, 50, 2)]
    slow = sorted(outcome.standings["file"].turns)
    assert len(slow) == FULL.least_rounds
    assert slow == [0, 1, 13, 26, 39]


def test_in_a_quick_comparison_a_slow_store_has_one_round_and_the_others_what_time_allows(play: Any) -> None:
    budget = Budget(store_s=0.5, case_s=math.inf, least_rounds=1)
    outcome, _ = play(1, {"log": 5.0, "lmdb": 0.02, "file": 0.6}, budget=budget)
    assert len(outcome.standings["log"].turns) == 50
    assert len(outcome.standings["lmdb"].turns) == 26
    assert sorted(outcome.standings["file"].turns) == [0]


def test_a_case_ends_with_its_time_but_not_before_its_first_round(play: Any) -> None:
    outcome, turns = play(1, {"log": 0.1, "lmdb": 0.1}, budget=Budget(0.5, case_s=-1.0, least_rounds=1))
    assert sorted(turns) == [("lmdb", 0), ("log", 0)]
    assert outcome.ratio("lmdb") is not None


def test_a_store_that_fails_is_out_and_the_others_go_on(play: Any) -> None:
    outcome, _ = play(1, {"log": 0.1, "lmdb": 0.1, "rocksdict": 0.1}, fails_at=3)
    assert outcome.errors == {"lmdb": "disk full"}
    assert sorted(outcome.standings["lmdb"].turns) == [0, 1, 2]
    assert len(outcome.standings["rocksdict"].turns) == 50


# -- who takes part ------------------------------------------------------------------------------


def test_without_a_wish_every_case_without_a_server_is_played_at_its_own_size() -> None:
    played = matches(Wish(), lambda _: None)
    names = [match.case.name for match in played]
    assert names == [
        name for name in CASES if not name.startswith(("object-", "redis-", "hbase-", "cassandra-"))
    ]
    assert {match.case.name: match.sizes.keys for match in played}["open"] == 5_000_000
    assert all(match.baseline == "log" for match in played)


def test_the_docs_name_every_case() -> None:
    page = (Path(__file__).parents[3] / "docs/performance.md").read_text(encoding="utf-8")
    table = page.partition("| case | what a round does |")[2].partition("\n\n")[0]
    named = [name for line in table.splitlines() for name in re.findall(r"`(\S+)`", line.split(" | ")[0])]
    assert named == list(CASES)


def test_bars_are_for_stores_that_take_part() -> None:
    for case in CASES.values():
        assert set(case.bars) <= set(stores_of(case)), case.name
        assert case.baseline in case.stores


def test_servers_are_played_beside_the_log_on_the_thesis_workload() -> None:
    played = matches(Wish(servers=True), lambda _: None)
    assert [match.case.name for match in played] == ["thesis-mix-writes", "thesis-mix-reads"]
    assert played[0].stores == ["log", "redis", "hbase", "cassandra", "s3"]
    assert (played[0].sizes.keys, played[0].sizes.calls) == (1000, 10_000)
