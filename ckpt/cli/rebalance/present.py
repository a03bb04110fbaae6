"""How plans look: in a terminal, as bars and tables; as JSON, with names that scripts rely on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import ckpt.rebalance as rb
from ckpt.cli.show import shown

Table = tuple[Sequence[str], list[Sequence[object]]]

COMPARISON = ("planner", "status", "max load", "moves", "migrated", "table", "ms")
"""`max load` is of the mean, `migrated` is a share of all state."""

_BAR = 20
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def document(plan: rb.Plan) -> dict[str, Any]:
    """The plan as JSON can hold it."""
    moves = plan.moves
    return {
        "planner": plan.planner,
        "status": plan.status.value,
        "reason": plan.reason,
        "moves": [
            {"key": _name(plan.loads, at), "from": source, "to": target, "kind": str(kind)}
            for at, source, target, kind in zip(
                moves.at.tolist(), moves.source.tolist(), moves.target.tolist(), moves.kind, strict=True
            )
        ],
        "migrated_bytes": plan.migrated_bytes,
        "lower_bound": plan.lower_bound,
        "table_size": len(plan.table),
        "loads_before": plan.loads_before.tolist(),
        "loads_after": plan.loads_after.tolist(),
        "plan_s": plan.plan_s,
    }


def summary(plan: rb.Plan) -> list[tuple[str, str]]:
    """What the plan does, what it costs and what it has to cost: (what, value) in words."""
    return [
        ("plan", f"{plan.planner}: {plan.status.value}"),
        *([("reason", plan.reason)] if plan.reason else []),
        ("keys", f"{_moving(plan)} of {len(plan.loads):,} move{_by_kind(plan.moves)}"),
        ("state", _state(plan)),
        ("bound", _bound(plan)),
        ("table", _table(plan)),
        ("peak", f"{_peak(plan.loads_before):.0%} of the mean before, {_peak(plan.loads_after):.0%} after"),
        ("time", f"planned in {1000 * plan.plan_s:.0f} ms"),
    ]


def _moving(plan: rb.Plan) -> str:
    return f"{len(np.unique(plan.moves.at)):,}"


def _by_kind(moves: rb.Moves) -> str:
    kinds, counts = np.unique(moves.kind, return_counts=True)
    listed = ", ".join(f"{kind} {count:,}" for kind, count in zip(kinds, counts.tolist(), strict=True))
    return f" ({listed})" if listed else ""


def _state(plan: rb.Plan) -> str:
    total = float(plan.loads.state.sum())
    share = plan.migrated_bytes / total if total else 0.0
    return f"{plan.migrated_bytes:,.0f} of {total:,.0f} bytes travel ({share:.2%})"


def _bound(plan: rb.Plan) -> str:
    if plan.lower_bound > float(plan.loads.state.sum()) * (1 + 1e-9):
        return "no plan keeps these limits, whatever it moves"
    return f"{plan.lower_bound:,.0f} bytes at least, for any plan within the limits"


def _table(plan: rb.Plan) -> str:
    count = len(plan.table)
    limit = "no limit" if plan.table_limit is None else f"{plan.table_limit:,} allowed"
    return f"{count:,} {'entry' if count == 1 else 'entries'} afterwards, {limit}"


def _peak(loads: rb.loads.F64) -> float:
    mean = float(loads.mean())
    return float(loads.max()) / mean if mean else 0.0


def instances(plan: rb.Plan) -> Table:
    """The load of each instance before and after, as bars and as shares of the mean."""
    before, after = plan.loads_before, plan.loads_after
    mean = float(after.mean()) or 1.0
    most = max(float(before.max()), float(after.max())) or 1.0
    rows: list[Sequence[object]] = []
    for d in range(len(before)):
        row = [d, bar(before[d] / most), f"{before[d] / mean:.0%}"]
        stays = d < len(after)
        over = " over" if stays and after[d] > plan.limits[d] else ""
        row += [bar(after[d] / most), f"{after[d] / mean:.0%}{over}"] if stays else ["", "given up"]
        rows.append(row)
    return ("instance", "before", "of the mean", "after", "of the mean"), rows


def key_rows(plan: rb.Plan, top: int) -> Table:
    """The heaviest keys with their share of the load, and what becomes of them."""
    loads = plan.loads
    heaviest = np.argsort(-loads.cost, kind="stable")[:top].tolist()
    kinds = {at: f"{kind} to {target}" for at, target, kind in _each(plan.moves)}
    total = loads.total_cost or 1.0
    rows: list[Sequence[object]] = [
        [
            str(_name(loads, at)),
            f"{loads.cost[at] / total:.2%}",
            f"{loads.state[at]:,.0f}",
            int(loads.instance[at]),
            kinds.get(at, "stays"),
        ]
        for at in heaviest
    ]
    return ("key", "of the load", "bytes", "instance", "plan"), rows


def largest_moves(plan: rb.Plan, top: int) -> Table:
    """The moves that most state travels for."""
    moves = plan.moves
    total = float(plan.loads.state.sum()) or 1.0
    rows: list[Sequence[object]] = [
        [
            str(_name(plan.loads, int(moves.at[k]))),
            str(moves.kind[k]),
            f"{moves.source[k]} to {moves.target[k]}",
            f"{moves.state_bytes[k]:,.0f}",
            f"{moves.state_bytes[k] / total:.2%}",
        ]
        for k in np.argsort(-moves.state_bytes, kind="stable")[:top].tolist()
    ]
    return ("key", "kind", "instances", "bytes", "of all state"), rows


def compared(plan: rb.Plan) -> Sequence[object]:
    """The row of a plan in a comparison."""
    state = float(plan.loads.state.sum()) or 1.0
    mean = float(plan.loads_after.mean()) or 1.0
    return (
        plan.planner,
        plan.status.value,
        f"{float(plan.loads_after.max()) / mean:.3f}",
        len(plan.moves),
        f"{plan.migrated_bytes / state:.2%}",
        len(plan.table),
        f"{1000 * plan.plan_s:.1f}",
    )


def bar(share: float) -> str:
    """A bar of text for a share of the longest one, to an eighth of a letter.

    Examples
    --------
    >>> bar(1.0) == 20 * "█", bar(0.0), bar(0.525)
    (True, '', '██████████▌')
    """
    eighths = round(share * _BAR * 8)
    return _EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _each(moves: rb.Moves) -> Any:
    return zip(moves.at.tolist(), moves.target.tolist(), moves.kind, strict=True)


def _name(loads: rb.Loads, at: int) -> str | int:
    name = loads.name(at)
    return shown(name) if isinstance(name, bytes) else name
