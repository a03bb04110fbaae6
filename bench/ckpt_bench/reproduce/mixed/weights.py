"""Figures 19, 20 and 21: the window, and β, which weighs load against state."""

from __future__ import annotations

from ckpt_bench.reproduce.claims import Claim, at_least, at_most
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.mixed.courses import Line, Setting, Sweep, sweep
from ckpt_bench.reproduce.mixed.showing import MIGRATED, TABLE, show
from ckpt_bench.reproduce.spread import spread

MIXED, MINTABLE = "Mixed", "MinTable"
STRICT, USUAL = "MinMig θ=0.02", "MinMig θ=0.08"


def _windows(lab: Lab) -> Sweep:
    setting = lab.pick(
        quick=Setting(keys=500, plans=2, table_limit=100), small=Setting(), full=Setting(keys=1_000_000)
    )
    values = lab.pick(quick=(1, 3), small=(1, 5, 10), full=(1, 5, 10, 15, 20))
    lines = {MIXED: Line("mixed"), MINTABLE: Line("mintable")}
    return sweep(lab, setting, "window", values, lines, lab.pick(quick=2, small=10, full=10))


def _check_windows(found: Sweep) -> list[Claim]:
    least, most = found.values[0], found.values[-1]
    return [
        at_most(
            "Mixed migrates less than MinTable, with any window",
            "migrated state, Mixed / MinTable, largest of all w",
            spread(found.worst(MIXED, MINTABLE, MIGRATED)),
            1.0,
            "with w = 1 the state of a key is in proportion to its load, so there is nothing to choose by",
        ),
        at_most(
            "and gains more from a larger window",
            f"migrated state, Mixed / MinTable, w = {most} over w = {least}",
            spread(
                [
                    large / small
                    for large, small in zip(
                        found.ratio(MIXED, MINTABLE, MIGRATED, most),
                        found.ratio(MIXED, MINTABLE, MIGRATED, least),
                        strict=True,
                    )
                ]
            ),
            1.0,
            "the keys that become hot were hot before",
        ),
    ]


def _betas(lab: Lab) -> Sweep:
    setting = lab.pick(
        quick=Setting(keys=500, plans=2, table_limit=None),
        small=Setting(table_limit=None),
        full=Setting(keys=1_000_000, table_limit=None),
    )
    values = lab.pick(
        quick=(1.0, 1.5, 2.0), small=(1.0, 1.25, 1.5, 1.75, 2.0), full=(1.0, 1.25, 1.5, 1.75, 2.0)
    )
    lines = {STRICT: Line("minmig", own={"theta": 0.02}), USUAL: Line("minmig")}
    seeds = lab.pick(quick=2, small=10, full=10)
    return lab.once("mixed beta", lambda: sweep(lab, setting, "beta", values, lines, seeds))


def _check_table(found: Sweep) -> list[Claim]:
    steep, flat = (found.growth(USUAL, TABLE, *ends) for ends in ((1.0, 1.5), (1.5, 2.0)))
    return [
        at_least(
            "with a larger β the table is smaller, as heavier keys move",
            "entries of the table, β = 1 / β = 2",
            spread(found.growth(USUAL, TABLE, 1.0, 2.0)),
            1.0,
            "the heaviest keys move with any β",
        ),
        at_most(
            "and from β = 1.5 on its size is stable",
            "entries of the table, β = 1.5 / β = 2",
            spread(flat),
            1.5,
            "state still decides between keys of nearly one load",
        ),
        at_least(
            "so that most of the fall is before",
            "entries of the table, β = 1 / β = 1.5, over β = 1.5 / β = 2",
            spread([one / other for one, other in zip(steep, flat, strict=True)]),
            1.0,
            "state still decides between keys of nearly one load",
        ),
    ]


def _check_migration(found: Sweep) -> list[Claim]:
    return [
        at_least(
            f"with a larger β more state is migrated ({name})",
            "migrated state, β = 2 / β = 1",
            spread(found.growth(name, MIGRATED, 2.0, 1.0)),
            1.0,
            "of the heavier keys that move more have little state, as they became hot just now",
        )
        for name in (STRICT, USUAL)
    ]


def _show_migration(found: Sweep) -> Shown:
    return show(found, MIGRATED)


def _show_table(found: Sweep) -> Shown:
    return show(found, TABLE)


_BETA = "Means of ten adjustments, as in the paper; small: 20,000 keys instead of a million."
FIG_19 = Experiment(
    "fig-19",
    "Migration by the window",
    "The larger the window, the more keys there are to choose from, and Mixed migrates less than MinTable.",
    "As for figure 9, with θ = 0.08.",
    _windows,
    _check_windows,
    _show_migration,
)
FIG_20 = Experiment(
    "fig-20",
    "The table of MinMig by β",
    "With β = 1 load per state decides, light keys move and the table is large; it shrinks with β and is "
    "stable from 1.5 to 2.",
    _BETA,
    _betas,
    _check_table,
    _show_table,
)
FIG_21 = Experiment(
    "fig-21",
    "Migration of MinMig by β",
    "β weighs planning for load against planning for state: the larger it is, the more state moves.",
    _BETA,
    _betas,
    _check_migration,
    _show_migration,
)
