"""The figures of mixed-2017: what the paper found passes the checks, the opposite does not."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import ckpt.rebalance as rb
from ckpt.rebalance.compact import Compacted, Vectors
from ckpt_bench.reproduce.claims import Verdict
from ckpt_bench.reproduce.experiments import Lab, Size
from ckpt_bench.reproduce.mixed.change import BRUTE, FIG_12, READJ
from ckpt_bench.reproduce.mixed.change import MIXED as MIXED_12
from ckpt_bench.reproduce.mixed.compact_mixed import mixed_over
from ckpt_bench.reproduce.mixed.compactness import FIG_11, ORIGINAL, Compactness, Degree
from ckpt_bench.reproduce.mixed.courses import Averages, Line, Setting, Sweep, course, sweep
from ckpt_bench.reproduce.mixed.hashing import FIG_7, Hashed
from ckpt_bench.reproduce.mixed.paper import MIXED as PAPER
from ckpt_bench.reproduce.mixed.scale import FIG_8, FIG_9, FIG_10, MINTABLE, MINTABLE_1, MIXED, MIXED_1
from ckpt_bench.reproduce.mixed.tables import FIG_17, FIG_18, LOOSE, STRICT, USUAL, Growth
from ckpt_bench.reproduce.mixed.tables import MINTABLE as MINTABLE_17
from ckpt_bench.reproduce.mixed.theorems import THEOREMS, Theorems
from ckpt_bench.reproduce.mixed.throughput import FIG_13, FIG_14, SOCIAL, STOCK, Performance, Throughput
from ckpt_bench.reproduce.mixed.weights import FIG_19, FIG_20, FIG_21
from ckpt_bench.reproduce.mixed.weights import MINTABLE as MINTABLE_19
from ckpt_bench.reproduce.mixed.weights import MIXED as MIXED_19
from ckpt_bench.reproduce.mixed.weights import STRICT as STRICT_20
from ckpt_bench.reproduce.mixed.weights import USUAL as USUAL_20

SEEDS = 4


def each(value: float) -> list[float]:
    """Seeds that differ by a little."""
    return [value * by for by in (1.0, 0.99, 1.01, 0.98)]


def point(migrated: float, plan_ms: float = 10, table: float = 100, after: float = 1.0) -> Averages:
    columns = (each(migrated), each(plan_ms), each(table), each(1.5), [after] * SEEDS, each(0))
    return Averages(*columns)


def swept(parameter: str, values: tuple[float, ...], **lines: list[Averages]) -> Sweep:
    return Sweep(parameter, values, Setting(), SEEDS, lines)


def both_windows(parameter: str, values: tuple[float, ...], *four: list[Averages]) -> Sweep:
    names = (MIXED, MINTABLE, MIXED_1, MINTABLE_1)
    return Sweep(parameter, values, Setting(), SEEDS, dict(zip(names, four, strict=True)))


def hashed(by_instances: tuple[float, float], by_keys: tuple[float, float]) -> Hashed:
    def of(highest: float) -> list[list[float]]:
        return [[1.0, value] for value in each(highest)]

    instances = dict(zip((5, 40), map(of, by_instances), strict=True))
    return Hashed(
        instances, 1000, dict(zip((5000, 10**6), map(of, by_keys), strict=True)), 15, instances, 1000
    )


def degree(plan_ms: float, find_ms: float, error: float) -> Degree:
    return Degree(each(100), each(1), each(plan_ms), each(find_ms), each(error))


def grown(strict: tuple[float, float], loose: tuple[float, float]) -> Growth:
    entries = {0.02: [each(n) for n in strict], 0.15: [each(n) for n in loose]}
    return Growth(Setting(keys=10_000), SEEDS, (10, 300), entries)


def theorems(broken: float, deviation: float) -> Theorems:
    return Theorems(100, *[[broken] * SEEDS] * 3, each(deviation))


def limited(mixed: tuple[float, float], mintable: float, tables: tuple[float, float]) -> Sweep:
    lines = {
        STRICT: [point(9), point(9, table=tables[0])],
        USUAL: [point(value) for value in mixed],
        LOOSE: [point(9), point(9, table=tables[1])],
        MINTABLE_17: [point(mintable)] * 2,
    }
    return Sweep("table_limit", (32, 4096), Setting(), SEEDS, lines)


def betas(*tables: float, migrated: tuple[float, ...] = (1, 2, 3)) -> Sweep:
    line = [point(state, table=table) for table, state in zip(tables, migrated, strict=True)]
    return Sweep("beta", (1.0, 1.5, 2.0), Setting(), SEEDS, {STRICT_20: line, USUAL_20: line})


def changing(readj: list[Averages], mixed: list[Averages], brute: list[Averages]) -> Sweep:
    lines = {MIXED_12: mixed, BRUTE: brute, READJ: readj}
    return Sweep("fluctuation", (0.25, 2.0), Setting(), SEEDS, lines)


def windows(mixed: tuple[float, float], mintable: tuple[float, float]) -> Sweep:
    lines = {MIXED_19: [point(m) for m in mixed], MINTABLE_19: [point(m) for m in mintable]}
    return Sweep("window", (1, 10), Setting(), SEEDS, lines)


def performing(
    values: tuple[float, ...], streams: tuple[str, ...], latency_s: float = 0.5, **of_ideal: tuple[float, ...]
) -> Throughput:
    """Throughput of each planner by value; Readj's latency is 1 s, that of the others as given."""
    planners = {
        name: [Performance(each(share), each(1.0 if name == "Readj" else latency_s)) for share in line]
        for name, line in of_ideal.items()
    }
    return Throughput(values, SEEDS, dict.fromkeys(streams, planners))


AS_IN_THE_PAPER = [
    (FIG_7, hashed((1.4, 2.5), (4.0, 1.5))),
    (
        FIG_8,
        both_windows(
            "instances",
            (5, 40),
            [point(4, 12), point(19, 12)],
            [point(12), point(20)],
            [point(10), point(30)],
            [point(20), point(31)],
        ),
    ),
    (
        FIG_9,
        both_windows(
            "theta",
            (0.08, 0.2),
            [point(4, 20, after=1.08), point(2, 10, after=1.2)],
            [point(14), point(9)],
            [point(9), point(5)],
            [point(20), point(15)],
        ),
    ),
    (
        FIG_10,
        both_windows(
            "keys",
            (5000, 10**6),
            [point(4, 20), point(4.4, 30)],
            [point(12), point(13)],
            [point(10), point(10)],
            [point(20), point(20)],
        ),
    ),
    (
        FIG_11,
        Compactness(
            Setting(),
            SEEDS,
            {
                ORIGINAL: degree(6000, 0, 0),
                1: degree(900, 90, 0.01),
                8: degree(500, 50, 0.2),
                256: degree(300, 30, 0.9),
            },
            each(50),
        ),
    ),
    (
        FIG_12,
        changing(
            [point(10, 1000), point(30, 9000)],
            [point(5, 50), point(9, 60)],
            [point(5, 900), point(8.8, 1000)],
        ),
    ),
    (
        FIG_13,
        performing(
            (0.25, 2.0),
            ("zipf",),
            Storm=(0.5, 0.4),
            Readj=(0.9, 0.5),
            Mixed=(0.98, 0.95),
            MinTable=(0.9, 0.9),
        ),
    ),
    (
        FIG_14,
        performing(
            (0.02, 0.3),
            (SOCIAL, STOCK),
            Storm=(0.4, 0.4),
            Readj=(0.45, 0.79),
            Mixed=(0.95, 0.8),
            MinTable=(0.9, 0.8),
        ),
    ),
    (FIG_17, limited((20, 8), 20, (3000, 1000))),
    (FIG_18, grown((1000, 9350), (500, 9340))),
    (FIG_19, windows((20, 4), (24, 12))),
    (FIG_20, betas(4000, 1000, 900)),
    (FIG_21, betas(4000, 1000, 900)),
    (THEOREMS, theorems(0.0, 0.01)),
]
THE_OPPOSITE = [
    (FIG_7, hashed((5, 1.2), (1.2, 2)), 5),
    (
        FIG_8,
        both_windows(
            "instances",
            (5, 40),
            [point(20, 90), point(10, 10)],
            [point(12), point(20)],
            [point(19), point(9)],
            [point(10), point(20)],
        ),
        5,
    ),
    (
        FIG_9,
        both_windows(
            "theta",
            (0.08, 0.2),
            [point(10, 2000, after=1.4), point(12, 9000, after=1.2)],
            [point(9), point(9)],
            [point(5), point(5)],
            [point(20), point(15)],
        ),
        7,
    ),
    (
        FIG_10,
        both_windows(
            "keys",
            (5000, 10**6),
            [point(4, 5), point(40, 5)],
            [point(2), point(2)],
            [point(1), point(1)],
            [point(1), point(1)],
        ),
        4,
    ),
    (
        FIG_11,
        Compactness(
            Setting(),
            SEEDS,
            {
                ORIGINAL: degree(6, 0, 0),
                1: degree(3, 1, 3),
                8: degree(5, 9, 2),
                256: degree(9, 9, 2),
            },
            each(50),
        ),
        5,
    ),
    (
        FIG_12,
        changing([point(10, 90), point(11, 50)], [point(20, 50), point(30, 60)], [point(9, 9), point(9, 9)]),
        6,
    ),
    (
        FIG_13,
        performing(
            (0.25, 2.0),
            ("zipf",),
            latency_s=2.0,
            Storm=(0.5, 0.4),
            Readj=(0.7, 0.9),
            Mixed=(0.9, 0.5),
            MinTable=(0.9, 0.9),
        ),
        4,
    ),
    (
        FIG_14,
        performing(
            (0.02, 0.3),
            (SOCIAL, STOCK),
            Storm=(0.8, 0.8),
            Readj=(0.9, 0.6),
            Mixed=(0.8, 0.9),
            MinTable=(0.9, 0.8),
        ),
        7,
    ),
    (FIG_17, limited((8, 20), 20, (1000, 3000)), 3),
    (FIG_18, grown((500, 2000), (1000, 9350)), 3),
    (FIG_19, windows((20, 15), (12, 8)), 2),
    (FIG_20, betas(900, 2000, 1000), 3),
    (FIG_21, betas(900, 950, 1000, migrated=(3, 2, 1)), 2),
    (THEOREMS, theorems(0.5, 3), 4),
]


def name_of(what: object) -> str:
    return getattr(what, "name", "")


@pytest.mark.parametrize(("experiment", "figures"), AS_IN_THE_PAPER, ids=name_of)
def test_what_the_paper_found_holds(experiment, figures):
    checked = [claim for claim in experiment.check(figures) if claim.verdict is not Verdict.NOT_CHECKED]
    wrong = [claim for claim in checked if claim.verdict is not Verdict.HOLDS]
    assert wrong == []
    shown = experiment.show(figures)
    assert "<svg" in shown.chart
    assert all(len(row) == len(shown.header) for row in shown.rows)


@pytest.mark.parametrize(("experiment", "figures", "failing"), THE_OPPOSITE, ids=name_of)
def test_the_opposite_does_not_hold_and_says_why(experiment, figures, failing):
    refuted = [claim for claim in experiment.check(figures) if claim.holds is False]
    assert len(refuted) == failing, [claim.says for claim in experiment.check(figures) if claim.holds]
    assert all(claim.why for claim in refuted)


@pytest.fixture(scope="module")
def quick(reproduce, tmp_path_factory):
    """All figures at their smallest: what the command said, and the page."""
    page = tmp_path_factory.mktemp("mixed") / "page.html"
    return reproduce("mixed", "--quick", "--json", "--html", page), page.read_text()


class TestTheCommand:
    def test_every_figure_has_verdicts(self, quick):
        done, _ = quick
        names = [each["name"] for each in done.document["experiments"]]
        assert names == [experiment.name for experiment in PAPER.experiments]
        assert names[:6] == [f"fig-{number}" for number in range(7, 13)]
        for experiment in done.document["experiments"]:
            assert experiment["error"] is None
            assert experiment["figures"]
            for claim in experiment["claims"]:
                assert claim["holds"] or claim["why"]
                assert claim["verdict"] != "not checked" or experiment["name"] == "fig-14"

    def test_the_page_has_a_chart_for_each(self, quick):
        _, page = quick
        for experiment in PAPER.experiments:
            heading = re.escape(f"<h2>{experiment.name}: {experiment.title}</h2>")
            section = re.split(heading, page)[1].partition("</section>")[0]
            assert "<svg" in section

    def test_it_is_called_a_paper(self, reproduce):
        assert "\n  paper:         LLFD" in reproduce("mixed", "theorems", "--quick").out

    def test_migration_is_the_same_in_every_run(self, quick, reproduce):
        def migrated(document):
            lines = next(e for e in document["experiments"] if e["name"] == "fig-9")["figures"]["lines"]
            return {name: [point["migrated_percent"] for point in line] for name, line in lines.items()}

        assert migrated(reproduce("mixed", "fig-9", "--quick", "--json").document) == migrated(
            quick[0].document
        )


class TestCourses:
    SETTING = Setting(keys=400, plans=5, window=3, instances=6, table_limit=80)

    @pytest.mark.parametrize("planner", ["mixed", "lag", "readj"])
    def test_each_plan_is_made_on_top_of_the_one_before(self, planner):
        plans = list(course(self.SETTING, Line(planner), seed=1))
        assert len(plans) == 8
        assert (plans[0].loads.instance == plans[0].loads.home).all()
        for before, after in pairwise(plans):
            assert (after.loads.instance == before.place).all()
            assert len(after.table) <= 80 or after.status is rb.Status.INFEASIBLE

    def test_the_state_is_that_of_the_window(self):
        plans = list(course(self.SETTING, Line("kg"), seed=1))
        per_interval = plans[0].loads.state.sum()
        held = [plan.loads.state.sum() / per_interval for plan in plans]
        assert held == pytest.approx([1, 2, 3, 3, 3, 3, 3, 3])

    def test_load_moves_between_the_instances_of_the_plan(self):
        for before, after in pairwise(course(replace(self.SETTING, keys=5000), Line("mixed"), seed=2)):
            changed = after.loads_before / before.loads_after
            assert (changed < 0.6).sum() == 3  # f = 1: three pairs, each source is halved
            assert (changed > 1).sum() == 3

    def test_a_sweep_has_every_value_line_and_seed(self, tmp_path):
        lines = {"a": Line("mixed"), "b": Line("mixed", own={"window": 1})}
        found = sweep(Lab(str(tmp_path), Size.QUICK), self.SETTING, "theta", (0.1, 0.3), lines, 2)
        assert {name: len(line) for name, line in found.lines.items()} == {"a": 2, "b": 2}
        assert len(found.at("b", 0.3).table) == 2
        over = found.ratio("a", "b", "migrated_percent", 0.1)
        assert over == [
            one / other
            for one, other in zip(
                found.at("a", 0.1).migrated_percent, found.at("b", 0.1).migrated_percent, strict=True
            )
        ]
        assert found.worst("a", "a", "table") == [1, 1]
        assert found.growth("a", "table", 0.1, 0.3) == pytest.approx(
            [1 / ratio for ratio in found.growth("a", "table")]
        )


class TestCompactMixed:
    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize("limit", [20, 60, 400])
    def test_with_a_vector_for_each_key_it_is_mixed(self, seed, limit):
        setting = Setting(keys=600, table_limit=limit, plans=1, instances=7)
        *_, plan = course(setting, Line("mixed"), seed)
        loads = plan.loads
        assert loads.home is not None
        vectors = Vectors(
            loads.instance, loads.instance, loads.home, loads.cost, loads.state, np.ones(600, np.int64)
        )
        compacted = Compacted(vectors, loads.instance, loads.home, loads.cost, loads.state)
        planned = mixed_over(vectors, plan.limits, limit)
        targets = compacted.targets(planned, loads.cost)
        assert planned.loads(7) == pytest.approx(plan.loads_after)
        assert (targets != loads.home).sum() == len(plan.table)
        assert loads.state[targets != loads.instance].sum() == pytest.approx(plan.migrated_bytes)

    @pytest.mark.parametrize("degree", [1, 8, 64])
    def test_every_key_has_one_place_and_vectors_fit(self, degree):
        *_, plan = course(Setting(keys=3000, plans=1, instances=7), Line("mixed"), 3)
        loads = plan.loads
        assert loads.home is not None
        compacted = Compacted.of(loads.instance, loads.home, loads.cost, loads.state, degree)
        limits = 1.08 * np.full(7, compacted.vectors.loads(7).mean())
        planned = mixed_over(compacted.vectors, limits, 3000)
        assert planned.count.sum() == 3000
        assert (planned.loads(7) <= limits * 1.001).all()
        targets = compacted.targets(planned, loads.cost)
        assert ((targets >= 0) & (targets < 7)).all()
