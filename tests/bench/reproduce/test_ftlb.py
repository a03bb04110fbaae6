"""`ckpt bench reproduce ftlb`: every experiment runs, and verdicts follow from the figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ckpt_bench.reproduce.claims import Claim, Verdict
from ckpt_bench.reproduce.ftlb.planning import FIG_8, FIG_9, FTLB, MIXED, MRT, Planned, Plans
from ckpt_bench.reproduce.ftlb.recovery import FIG_10, FIG_11, NONE, TASKB, Failed, Failures
from ckpt_bench.reproduce.ftlb.skew import FIG_7, WITH, WITHOUT, Skewed, Skews

NAMES = [f"fig-{number}" for number in range(7, 12)]


@pytest.fixture(scope="module")
def quick(reproduce):
    return reproduce("ftlb", "--quick", "--json")


def test_every_experiment_has_figures_and_verdicts_with_reasons(quick):
    assert [each["name"] for each in quick.document["experiments"]] == NAMES
    for each in quick.document["experiments"]:
        assert each["error"] is None
        assert each["figures"]
        assert each["claims"]
        for claim in each["claims"]:
            assert claim["says"]
            assert claim["asserts"]
            assert claim["why"]


def test_simulated_figures_are_the_same_in_every_run(quick, reproduce):
    again = reproduce("ftlb", "fig-7", "fig-11", "--quick", "--json")
    for name in ("fig-7", "fig-11"):
        assert again.experiment(name)["figures"] == quick.experiment(name)["figures"]


def each(value: float) -> list[float]:
    return [value, value * 1.01, value * 0.99]


def failing(claims: list[Claim]) -> set[str]:
    return {
        claim.asserts.partition(" ≥")[0].partition(" ≤")[0]
        for claim in claims
        if claim.verdict is not Verdict.HOLDS
    }


def skews(fullest_with: float) -> Skews:
    def one(instances: int, keys: int, fullest: float) -> Skewed:
        return Skewed(instances, keys, [each(0.5)] * (instances - 1) + [each(fullest)])

    return Skews(
        3,
        {
            WITHOUT: [one(5, 100, 1.5), one(40, 100, 3.0)],
            WITH: [one(5, 100, 1.2), one(40, 100, fullest_with)],
        },
        {WITHOUT: [one(15, 10, 2.0), one(15, 99, 1.5)], WITH: [one(15, 10, 1.5), one(15, 99, 1.2)]},
    )


def test_replicas_relieve_the_fullest_task_or_do_not() -> None:
    assert failing(FIG_7.check(skews(2.0))) == set()
    assert "load of the fullest instance over the mean, with one replica / without, at most" in failing(
        FIG_7.check(skews(4.0))
    )
    assert FIG_7.show(skews(2.0)).rows


def plans(numbers: tuple[float, float], mixed_ms: float, ftlb_percent: float, *, grows: bool) -> Plans:
    """With the first number times are the longest, or with the last."""

    def two(plan_ms: float, migrated: float, table: float) -> list[Planned]:
        hard = Planned(each(plan_ms), each(migrated), each(table))
        easy = Planned(each(0.4), each(migrated / 2), each(table))
        return [easy, hard] if grows else [hard, easy]

    found = {
        MRT: two(2.0, 20.0, 10.0),
        MIXED: two(mixed_ms, 10.0, 20.0),
        FTLB: two(3.0, ftlb_percent, 20.0),
    }
    return Plans(3, numbers, 0 if grows else 1000, found)


def test_plans_as_the_paper_describes_them_hold_and_others_do_not() -> None:
    assert failing(FIG_8.check(plans((0.02, 0.3), 5.0, 1.0, grows=False))) == set()
    assert failing(FIG_9.check(plans((5000, 100_000), 5.0, 1.0, grows=True))) == set()
    assert failing(FIG_8.check(plans((0.02, 0.3), 1.0, 30.0, grows=False))) == {
        "θ = 0.02: plan time, Mixed / MRT",
        "θ = 0.02: plan time, Mixed / FTLB",
        "migrated state, Mixed / FTLB, least of all tolerances",
    }
    assert FIG_8.show(plans((0.02, 0.3), 5.0, 1.0, grows=False)).rows
    assert FIG_9.show(plans((5000, 100_000), 5.0, 1.0, grows=True)).rows


def failures() -> Failures:
    def two(short_s: float, long_s: float, throughput: float, megabytes: float) -> list[Failed]:
        return [
            Failed(each(recovery_s), each(throughput), each(megabytes), [0.0] * 3)
            for recovery_s in (short_s, long_s)
        ]

    found = {"FTLB": two(0.5, 0.6, 300, 10), TASKB: two(1.0, 5.0, 200, 100), NONE: two(0.7, 1.0, 250, 100)}
    waits = {"order": each(60.0), "input": each(70.0), "process": each(900.0)}
    return Failures(1000, 3, (2.0, 20.0), found, {"FTLB": each(900), NONE: each(1000)}, waits)


def test_a_failure_as_the_paper_describes_it_holds_and_a_lost_tuple_does_not() -> None:
    assert failing(FIG_10.check(failures())) == set()
    assert failing(FIG_11.check(failures())) == set()
    found = failures()
    lossy = [replace(one, wrong=[0.0, 1.0, 2.0]) for one in found.found["FTLB"]]
    changed = replace(found, found={**found.found, "FTLB": lossy})
    assert failing(FIG_11.check(changed)) == {"tuples lost or repeated by FTLB"}
    assert FIG_10.show(found).rows
    assert FIG_11.show(found).rows
