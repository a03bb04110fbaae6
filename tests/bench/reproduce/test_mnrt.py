"""`ckpt bench reproduce mnrt`: its joins are those of the paper, and verdicts follow from the figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ckpt.rebalance import Side
from ckpt_bench.reproduce.claims import Claim, Verdict
from ckpt_bench.reproduce.mnrt.growth import FIG_3, FIG_4, FIG_5, INTERVALS, Growth, Loaded
from ckpt_bench.reproduce.mnrt.streams import (
    BI,
    BI6,
    BNCI,
    DYNAMIC,
    EQ5,
    MIXED,
    MNRT,
    QMMP,
    QUERIES,
    measured,
    rows_of,
)
from ckpt_bench.reproduce.mnrt.topk import FIG_7, FIG_8, PKG, READJ, STORM, Planned, TopK


@pytest.fixture(scope="module")
def quick(reproduce):
    return reproduce("mnrt", "--quick", "--json")


def test_every_experiment_has_figures_and_verdicts_with_reasons(quick):
    assert [each["name"] for each in quick.document["experiments"]] == [f"fig-{n}" for n in range(3, 9)]
    for each in quick.document["experiments"]:
        assert each["error"] is None
        assert each["figures"]
        assert each["claims"]
        for claim in each["claims"]:
            assert claim["says"]
            assert claim["asserts"]
            assert claim["why"]


def test_lines_meet_one_supplier_and_orders_their_neighbours() -> None:
    rows = rows_of(EQ5, 2000, 1.0, seed=3, seconds=10.0)
    left, right = (rows.value[rows.side == side] for side in (Side.LEFT, Side.RIGHT))
    assert len(np.unique(left)) == len(left)
    assert np.isin(right, left).all()
    rows = rows_of(BNCI, 2000, 0.0, seed=3, seconds=10.0)
    assert len(rows) == pytest.approx(2000, rel=0.1)
    assert 0.03 < np.mean(rows.side == Side.RIGHT) < 0.1


def test_skew_makes_the_heaviest_key_heavier() -> None:
    def heaviest(query: str, exponent: float) -> float:
        rows = rows_of(query, 4000, exponent, seed=1, seconds=1.0)
        return float(np.unique(rows.value, return_counts=True)[1].max() / len(rows))

    for query in QUERIES:
        assert heaviest(query, 0.0) < 0.02 < 0.2 < heaviest(query, 1.5)


def test_the_same_seed_gives_the_same_figures() -> None:
    def received() -> list[list[int]]:
        runs = measured(BNCI, rows_of(BNCI, 300, 1.0, seed=4, seconds=1.0), 40, 6)
        return [step.received.tolist() for run in runs.values() for step in run.steps]

    assert received() == received()


def loaded(time_s: tuple[float, float], instances: float, plan_s: float, transfer_s: float) -> list[Loaded]:
    """With little and with strong skew, over three seeds."""

    def each(value: float) -> list[float]:
        return [value, value * 1.01, value * 0.99]

    counts = [[instances] * 3] * INTERVALS
    return [Loaded(each(s), counts, each(transfer_s), each(plan_s), each(transfer_s)) for s in time_s]


def paper() -> Growth:
    """Figures as the paper describes them."""
    of_query = {
        MNRT: loaded((1, 2), 8, 2, 2),
        QMMP: loaded((1, 3), 8, 1, 2),
        MIXED: loaded((1, 2), 8, 1, 2),
        DYNAMIC: loaded((4, 4), 64, 0, 9),
        BI: loaded((8, 8), 8, 0, 1),
        BI6: loaded((1, 5), 12, 0, 1),
    }
    strong = {**of_query, QMMP: loaded((1, 4), 8, 1, 2)}
    return Growth(8000, 3, (0.0, 1.5), {EQ5: of_query, BNCI: strong})


def failing(claims: list[Claim]) -> set[str]:
    return {claim.asserts.partition(" ≥")[0] for claim in claims if claim.verdict is not Verdict.HOLDS}


@pytest.mark.parametrize("experiment", [FIG_3, FIG_4, FIG_5], ids=lambda one: one.name)
def test_what_the_paper_describes_holds(experiment) -> None:
    assert failing(experiment.check(paper())) == set()
    assert experiment.show(paper()).rows


def test_a_figure_that_contradicts_the_paper_does_not_hold() -> None:
    found = paper()
    fast = {**found.found[EQ5], BI: loaded((2, 2), 8, 0, 1)}
    changed = replace(found, found={**found.found, EQ5: fast})
    assert failing(FIG_3.check(changed)) == {f"{EQ5}: time, Bi / the slowest other, at its least"}
    few = {**found.found[EQ5], DYNAMIC: loaded((4, 4), 8, 0, 9)}
    changed = replace(found, found={**found.found, EQ5: few})
    assert failing(FIG_4.check(changed)) == {f"{EQ5}: instances at the end, Dynamic / the most of the others"}


def topics(**plan_ms: float) -> TopK:
    throughput = {MNRT: 100.0, QMMP: 90.0, READJ: 50.0, PKG: 80.0, STORM: 40.0}
    slower = {MNRT: 2.0, QMMP: 1.0, READJ: 50.0} | plan_ms
    found = {
        name: [
            Planned([ms * by, ms * by * 1.01], [words, words * 1.01], [0.0, 0.0])
            for by in ((1, 1) if name != READJ else (4, 1))
        ]
        for name, words in throughput.items()
        for ms in [slower.get(name, 0.0)]
    }
    return TopK(5000, 2, (0.05, 0.2), found)


def test_topics_as_the_paper_describes_them_hold() -> None:
    assert failing(FIG_7.check(topics())) == set()
    assert failing(FIG_8.check(topics())) == set()
    assert failing(FIG_7.check(topics(MNRT=0.5))) == {"plan time at θ = 0.05, MNRT / QMMP"}
