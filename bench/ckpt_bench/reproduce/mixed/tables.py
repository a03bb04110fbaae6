"""Figures 17 and 18: what the limit of the table costs, and how a table without limit grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckpt_bench.plot import lines
from ckpt_bench.reproduce.claims import Claim, at_least, at_most, between
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.mixed.courses import Line, Setting, Sweep, course, sweep
from ckpt_bench.reproduce.mixed.showing import MIGRATED, TABLE, described, show
from ckpt_bench.reproduce.spread import Rounds, ratios, spread

STRICT, USUAL, LOOSE, MINTABLE = "Mixed θ=0.02", "Mixed θ=0.08", "Mixed θ=0.15", "MinTable θ=0.08"
_LIMITED = {
    STRICT: Line("mixed", own={"theta": 0.02}),
    USUAL: Line("mixed"),
    LOOSE: Line("mixed", own={"theta": 0.15}),
    MINTABLE: Line("mintable"),
}


def _limits(lab: Lab) -> Sweep:
    setting = lab.pick(quick=Setting(keys=500, plans=2), small=Setting(plans=8), full=Setting(keys=1_000_000))
    values = lab.pick(
        quick=(4, 512), small=(2**5, 2**8, 2**10, 2**12), full=tuple(2**i for i in range(5, 17))
    )
    return sweep(lab, setting, "table_limit", values, _LIMITED, lab.pick(quick=2, small=10, full=10))


def _check_limits(found: Sweep) -> list[Claim]:
    least, most = found.values[0], found.values[-1]
    return [
        at_least(
            "a table with enough room lowers the migrated state greatly",
            f"migrated state of Mixed, N_A = {least:,} / N_A = {most:,}",
            spread(found.growth(USUAL, MIGRATED, least, most)),
            1.5,
            "every instance changes in each interval, so that much has to move whatever the table may have",
        ),
        between(
            "with too small a table Mixed does what MinTable does",
            f"migrated state, Mixed / MinTable, at N_A = {least:,}",
            spread(found.ratio(USUAL, MINTABLE, MIGRATED, least)),
            0.8,
            1.25,
            "Mixed then moves back all entries, but takes keys by load per state and not by load",
        ),
        at_least(
            "the stricter the balance, the larger a table it needs",
            f"entries of the table of Mixed at N_A = {most:,}, θ = 0.02 / θ = 0.15",
            spread(found.ratio(STRICT, LOOSE, TABLE, most)),
            1.0,
            "the table is full with either",
        ),
    ]


@dataclass(frozen=True, slots=True)
class Growth:
    """How many entries the table of MinMig has after so many adjustments, one figure for each seed."""

    setting: Setting
    seeds: int
    steps: Sequence[int]
    entries: Mapping[float, Sequence[Rounds]]
    """θ → by step."""

    @property
    def expected(self) -> float:
        """(N_D - 1) / N_D · K."""
        return (self.setting.instances - 1) / self.setting.instances * self.setting.keys


def _growth(lab: Lab) -> Growth:
    steps = lab.pick(quick=(5, 20), small=(10, 30, 100, 300), full=(10, 30, 100, 300, 1000))
    keys = lab.pick(quick=300, small=5000, full=10_000)
    seeds = lab.pick(quick=2, small=10, full=10)
    setting = Setting(keys=keys, table_limit=None, plans=max(steps))
    entries: dict[float, list[list[float]]] = {}
    for theta in (0.02, 0.15):
        columns = []
        for seed in range(seeds):
            lab.say(f"θ = {theta}, {max(steps)} adjustments, seed {seed + 1} of {seeds}")
            plans = course(setting, Line("minmig", own={"theta": theta}), seed)
            sizes = [float(len(plan.table)) for plan in plans]
            columns.append([sizes[step - 1] for step in steps])
        entries[theta] = [list(row) for row in zip(*columns, strict=True)]
    return Growth(setting, seeds, steps, entries)


def _check_growth(found: Growth) -> list[Claim]:
    (strict, of_strict), (loose, of_loose) = sorted(found.entries.items())
    last = [max(both) / min(both) for both in zip(of_strict[-1], of_loose[-1], strict=True)]
    return [
        at_least(
            "the table grows faster with a stricter balance",
            f"entries after {found.steps[0]} adjustments, θ = {strict:g} / θ = {loose:g}",
            spread(ratios(of_strict[0], of_loose[0])),
            1.0,
            "most of what moves is what has changed, whatever is tolerated",
        ),
        at_most(
            "and ends at one size for all tolerances",
            f"entries after {found.steps[-1]} adjustments, larger / smaller of both θ",
            spread(last),
            1.1,
            "that many adjustments are not enough for the looser one",
        ),
        between(
            "which is (N_D - 1) / N_D · K, about 9,350 of 10,000",
            f"entries after {found.steps[-1]} adjustments / {found.expected:,.0f}, θ = {strict:g}",
            spread([entries / found.expected for entries in of_strict[-1]]),
            0.9,
            1.1,
            "that many adjustments are not enough",
        ),
    ]


def _show_limits(found: Sweep) -> Shown:
    return show(found, MIGRATED, x_log=True)


def _show_growth(found: Growth) -> Shown:
    points = {
        f"θ={theta:g}": [
            (float(step), spread(each).median) for step, each in zip(found.steps, rows, strict=True)
        ]
        for theta, rows in found.entries.items()
    }
    chart = lines("Entries of the table by adjustments", "adjustments", "entries", points, x_log=False)
    rows = [
        [f"{step:,}", *(spread(of[at]).text(",.0f") for of in found.entries.values())]
        for at, step in enumerate(found.steps)
    ]
    header = ["adjustments", *(f"θ={theta:g}" for theta in found.entries)]
    return Shown(chart, header, rows, [described(found.setting, found.seeds, without="theta")])


FIG_17 = Experiment(
    "fig-17",
    "Migration by the limit of the table",
    "With N_A below 1,000 Mixed acts as MinTable and migrates much; from 2,000 on the migrated state falls "
    "greatly. Stricter tolerances need larger tables.",
    "Small: 20,000 keys instead of a million, so that smaller tables are enough.",
    _limits,
    _check_limits,
    _show_limits,
)
FIG_18 = Experiment(
    "fig-18",
    "The table of MinMig by the number of adjustments",
    "Without a limit the table grows, faster with a stricter tolerance, until it has (N_D - 1) / N_D of all "
    "keys: about 9,350 of 10,000.",
    "Small: 5,000 keys instead of 10,000, so that fewer adjustments are enough.",
    _growth,
    _check_growth,
    _show_growth,
)
