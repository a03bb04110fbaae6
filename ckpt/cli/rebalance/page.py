"""Plans as pages: one HTML file, for light and dark, for a phone and a screen, that fetches nothing."""

from __future__ import annotations

from collections.abc import Sequence

import ckpt.rebalance as rb
from ckpt.cli.rebalance.present import COMPARISON, Table, compared, key_rows, largest_moves, summary
from ckpt.plot import Bar, Pair, Section, bars, page, pairs

_MOVES = 20
"""How many moves a page lists; there may be thousands, and `--json` has them all."""


def plan_page(plan: rb.Plan, source: str, top: int) -> str:
    """A page on one plan: what it does and costs, instances before and after, keys and moves."""
    sections = [
        Section("The plan", _verdict(plan), "", ["", ""], summary(plan)),
        Section(
            "Instances",
            "The load of each instance as a share of the mean, before and after; the line is its limit.",
            _instances(plan),
            [],
            [],
        ),
        _listed(
            "The heaviest keys",
            "Their share of the whole load, the state that they would take along, and what becomes of them.",
            key_rows(plan, top),
        ),
    ]
    if len(plan.moves):
        shown = min(_MOVES, len(plan.moves))
        about = f"{shown:,} of {len(plan.moves):,}, those for which most state travels first."
        sections.append(_listed("Moves", about, largest_moves(plan, _MOVES)))
    return page(f"ckpt rebalance plan: {plan.planner}", f"Planned for {source}. Nothing was moved.", sections)


def comparison_page(plans: Sequence[rb.Plan], source: str) -> str:
    """A page with several plans for the same loads beside each other."""
    chart = bars(
        "State that travels, by planner",
        [Bar(plan.planner, _share(plan), f"{_share(plan):.2%} ({plan.status.value})") for plan in plans],
    )
    sections = [
        Section(
            "Planners",
            "The share of all state that travels. Less is better among plans that keep the limits (ok).",
            chart,
            COMPARISON,
            _texts([compared(plan) for plan in plans]),
            stacks=True,
        )
    ]
    return page("ckpt rebalance plan: planners", f"Planned for {source}. Nothing was moved.", sections)


def _verdict(plan: rb.Plan) -> str:
    return {
        rb.Status.OK: "All limits are kept.",
        rb.Status.NOOP: "All limits were kept already, so nothing moves.",
        rb.Status.GIANT: "Limits are kept but where a giant is: a key heavier than an instance may be.",
        rb.Status.BEST_EFFORT: "Some load stays outside its limit; the table is within its own.",
        rb.Status.INFEASIBLE: "The table would be larger than allowed: this plan must not be applied.",
    }[plan.status]


def _instances(plan: rb.Plan) -> str:
    before, after = plan.loads_before, plan.loads_after
    mean = float(after.mean()) or 1.0
    rows = []
    for d in range(len(before)):
        stays = d < len(after)
        then = f"{after[d] / mean:.0%}" if stays else "given up"
        rows.append(
            Pair(
                f"{d}",
                float(before[d]) / mean,
                float(after[d]) / mean if stays else None,
                f"{before[d] / mean:.0%} to {then}" if stays else f"{before[d] / mean:.0%}, {then}",
                float(plan.limits[d]) / mean if stays else None,
            )
        )
    return pairs("Load of each instance, of the mean", ("before", "after"), rows, limit="limit")


def _listed(title: str, about: str, table: Table) -> Section:
    header, rows = table
    return Section(title, about, "", header, _texts(rows), stacks=True)


def _texts(rows: Sequence[Sequence[object]]) -> list[list[str]]:
    return [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]


def _share(plan: rb.Plan) -> float:
    return plan.migrated_bytes / (float(plan.loads.state.sum()) or 1.0)
