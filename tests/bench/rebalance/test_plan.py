"""`ckpt bench plan` measures all that it promises, judges nothing at small sizes, and prints what it has."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import ckpt.rebalance as rb
from ckpt.cli import main
from ckpt_bench.rebalance.figures import Found, figures_of
from ckpt_bench.rebalance.growth import Grown, measured
from ckpt_bench.rebalance.optimum import Answers, problems
from ckpt_bench.rebalance.race import Round, Turn, race
from ckpt_bench.rebalance.trajectory import Setting, Trajectory

Run = Callable[..., Result]


@pytest.fixture
def bench_plan() -> Run:
    """`ckpt bench plan` with arguments; small, and with a seed."""

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["bench", "plan", "--quick", "--seed", "7", *arguments])

    return run


def test_every_part_is_measured_and_written(bench_plan: Run, tmp_path: Path) -> None:
    html, svg = tmp_path / "page.html", tmp_path / "charts"
    pytest.importorskip("highspy")
    done = bench_plan("--json", "--html", str(html), "--svg", str(svg))
    assert done.exit_code == 0, done.output
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    assert {figure["part"] for figure in figures} == {"race", "optimum", "growth"}
    assert {figure["where"].partition(",")[0] for figure in figures if figure["part"] == "race"} == {
        "p1",
        "p7",
    }
    assert all(figure["met"] is None for figure in figures), "small sizes judge nothing"
    assert all(figure["q1"] <= figure["q3"] for figure in figures)
    with_bars = {figure["what"] for figure in figures if figure["bar"] is not None}
    assert {
        "time of mixed over lag, own ways",
        "state of mixed over lag, same problems",
        "the least of these: never more",
        "lag: time over one argsort",
        "lag: state over the optimum, mean",
        "lag p7: bytes per key beyond the input",
        "lag p7: growth exponent",
    } <= with_bars
    assert html.read_text().count("<section>") == 3
    assert {path.name for path in svg.iterdir()} == {"race.svg", "optimum.svg", "growth.svg"}
    assert all(ET.parse(path).getroot().tag.endswith("svg") for path in svg.iterdir())


def test_a_part_alone_is_a_table_with_what_is_not_judged(bench_plan: Run) -> None:
    pytest.importorskip("highspy")
    done = bench_plan("optimum")
    assert done.exit_code == 0, done.output
    assert "Against the exact optimum" in done.stdout
    assert "in turn" not in done.stdout
    assert "not judged" in done.stdout
    assert "seed 7" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rase"], "'rase' is not one of"),
        (["--full"], "--quick and --full exclude each other"),
        (["--html", "/no/such/folder/page.html"], "there is no folder /no/such/folder"),
    ],
)
def test_wrong_use_is_one_line(bench_plan: Run, arguments: list[str], says: str) -> None:
    done = bench_plan(*arguments)
    assert done.exit_code == 2
    assert says in done.output


def test_a_trajectory_is_the_planner_s_own_and_the_same_for_the_same_seed() -> None:
    setting = Setting(keys=400, pairs=2, table_limit=200)
    ways = [Trajectory(setting, seed=3) for _ in range(2)]
    for _ in range(6):
        first, second = (way.advance() for way in ways)
        assert np.array_equal(first.cost, second.cost)
        assert np.array_equal(first.state, second.state)
        for way in ways:
            way.apply(way.plan(first, "lag"))
    other = Trajectory(setting, seed=3)
    for _ in range(6):
        loads = other.advance()
    assert not np.array_equal(loads.cost, first.cost), "load drifts between the places of the keys"
    assert np.allclose(np.sort(loads.cost), np.sort(first.cost)), "but Zipf's law stays"


def test_a_plan_that_may_not_be_applied_is_not() -> None:
    way = Trajectory(Setting(keys=400, pairs=1, table_limit=0), seed=1)
    loads = way.advance()
    plan = way.plan(loads, "llfd")
    assert plan.status is rb.Status.INFEASIBLE
    way.apply(plan)
    assert np.array_equal(way.advance().instance, loads.instance)


def test_a_race_has_a_round_for_each_interval() -> None:
    rounds: list[Round] = []
    race(Setting(keys=600, pairs=1, table_limit=200), intervals=3, repeats=1, seed=1, done=rounds.append)
    assert len(rounds) == 3
    for each in rounds:
        assert set(each.turns) == {"lag", "mixed"}
        assert each.asked is not None
        assert each.sort_s > 0
        assert all(turn.plan_s > 0 and turn.bound <= turn.moved + 1e-12 for turn in each.turns.values())


def test_lag_is_near_the_optimum_also_with_a_tight_table() -> None:
    pytest.importorskip("highspy")
    answers: list[Answers] = []
    problems(3, seed=5, done=answers.append)
    assert {each.tight for each in answers} == {False, True}
    ratios = [each.ratios["lag"] for each in answers]
    assert all(ratio is not None and 1 - 1e-6 <= ratio <= 1.1 for ratio in ratios)


def test_memory_is_weighed_beyond_the_input() -> None:
    grown = measured("mixed", 20_000, 7, intervals=1, repeats=1, seed=1)
    assert 4 < grown.bytes_per_key < 200, "a plan has at least the place of each key"


def test_without_highs_the_optimum_is_left_out_by_name(
    bench_plan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    done = bench_plan("optimum", "--json")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "left out: optimum needs HiGHS; install it with: pip install 'ckpt[rebalance]'" in done.stderr


def test_ctrl_c_ends_with_the_results_so_far(interrupted: Any) -> None:
    figures = interrupted("growth", "plan", "race", "growth", "--quick", "--seed", "1", "--json")
    assert {figure["part"] for figure in figures} == {"race"}


def turn(plan_s: float, moved: float, status: rb.Status = rb.Status.OK) -> Turn:
    return Turn(plan_s, moved, moved / 2, 10, status)


def test_bars_are_judged_at_full_size_by_the_median() -> None:
    setting = Setting(1_000_000, 1)
    rounds = [
        Round(setting, {"lag": turn(0.1, 0.01), "mixed": turn(0.9, 0.02)}, turn(0.4, 0.009), 0.04),
        Round(setting, {"lag": turn(0.1, 0.01), "mixed": turn(0.8, 0.02)}, turn(0.4, 0.03), 0.04),
        Round(
            setting,
            {"lag": turn(0.1, 0.01), "mixed": turn(0.7, 0.001, rb.Status.INFEASIBLE)},
            turn(0.4, 0.001, rb.Status.INFEASIBLE),
            0.04,
        ),
    ]
    grown = [
        Grown("lag", keys, 1, [keys / 1e8], [0.1], weight) for keys, weight in ((10**6, 60), (10**7, 70))
    ]
    found = Found(rounds, [Answers(True, 30, {"lag": 1.0, "mixed": None, "portfolio": 1.0})], grown)
    figures: dict[str, Any] = {each.what: each for each in figures_of(found, judged=True)}
    assert figures["time of mixed over lag, own ways"].verdict == "met"
    assert figures["state of mixed over lag, own ways"].verdict == "met, and 2"
    assert figures["state of mixed over lag, own ways"].count == 2, "a table that is too large counts in none"
    assert figures["the least of these: never more"].verdict == "missed"
    assert figures["lag: time over one argsort"].met is True
    assert figures["mixed: tables that break their limit, same problems, %"].value == pytest.approx(33.33)
    assert figures["lag p1: growth exponent"].value == 1.0
    assert [each.met for each in figures_of(found, judged=True) if "bytes" in each.what] == [True, False]
    assert all(each.met is None for each in figures_of(found, judged=False))
