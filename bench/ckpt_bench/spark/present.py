"""The figures of a comparison as tables and charts; nothing is measured here.

A ratio is always the other's figure over ckpt's, pair by pair: above 1, ckpt needs less.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ckpt_bench.interleaved import quartiles
from ckpt_bench.plot import Bar, Section, bars, lines, page
from ckpt_bench.spark.contestants import CONTESTANTS, OURS

Figures = Mapping[str, Any]


def sections(figures: Figures) -> dict[str, Section]:
    """What every part has found, in the order in which they ran."""
    return {part: _SHOW[part](found) for part, found in figures.items()}


def report(figures: Figures) -> str:
    """A page with all charts and tables."""
    about = "ckpt beside Spark's own state stores, in turn. A ratio is the other's figure over ckpt's."
    return page("ckpt bench spark", about, list(sections(figures).values()))


# -- the parts -----------------------------------------------------------------------------------


def _batches(found: Figures) -> Section:
    providers: Mapping[str, Sequence[Figures]] = found["providers"]
    took = {name: [batch["took_ms"] for batch in batches] for name, batches in providers.items()}
    rows, marks = [], []
    for name, batches in providers.items():
        time_ms = quartiles(took[name])
        rows.append(
            [
                name,
                f"{time_ms.middle:,.0f}",
                f"{time_ms.low:,.0f} {time_ms.high:,.0f}",
                _ratio(took, name),
                f"{statistics.median(b['cpu_ms'] for b in batches):,.0f}",
                f"{statistics.median(b['commit_ms'] for b in batches):,.0f}",
                f"{batches[-1]['files']:,}" if CONTESTANTS[name].stateful else "-",
            ]
        )
        marks.append(Bar(name, time_ms.middle, f"{time_ms.middle:,.0f} ms", time_ms.low, time_ms.high))
    return Section(
        "Micro-batches",
        f"{found['partitions']:,} partitions, {found['rows']:,} rows a batch, {found['keys']:,} keys. "
        f"{' '.join(f'{name}: {CONTESTANTS[name].about}.' for name in providers)}",
        bars("Time of a micro-batch, median and quartiles, in milliseconds", marks),
        ["provider", "ms", "quartiles", "of ckpt's", "cpu ms", "commit ms", "files"],
        rows,
    )


def _restart(found: Figures) -> Section:
    # Above one start for all, not above each provider's own empty one: that has costs of the provider, too.
    above = {
        name: [ms - floor_ms for ms, floor_ms in zip(of["restarted_ms"], found["floor_ms"], strict=True)]
        for name, of in found["providers"].items()
    }
    rows, marks = [], []
    for name, of in found["providers"].items():
        time_ms = quartiles(above[name])
        empty, restarted = (statistics.median(of[what]) for what in ("empty_ms", "restarted_ms"))
        rows.append(
            [
                name,
                f"{empty:,.0f}",
                f"{restarted:,.0f}",
                f"{time_ms.middle:,.0f}",
                f"{time_ms.low:,.0f} {time_ms.high:,.0f}",
                _share(above, name),
            ]
        )
        marks.append(Bar(name, time_ms.middle, f"{time_ms.middle:,.0f} ms", time_ms.low, time_ms.high))
    return Section(
        "Restart after kill -9",
        f"From the start of the query to its first committed batch, with {found['keys']:,} keys in "
        f"{found['partitions']:,} partitions, above that of an empty query on a store that keeps nothing "
        f"({statistics.median(found['floor_ms']):,.0f} ms), which no provider can be quicker than.",
        bars(
            "What a restart costs above an empty query on a store that keeps nothing, in milliseconds", marks
        ),
        ["provider", "empty ms", "restarted ms", "above ms", "quartiles", "ckpt's of it"],
        rows,
    )


def _share(above: Mapping[str, Sequence[int]], name: str) -> str:
    """What ckpt pays of what another provider pays, pair by pair."""
    if name == OURS or OURS not in above or min(above[name]) <= 0:
        return "-"
    return _spread([ours / theirs for ours, theirs in zip(above[OURS], above[name], strict=True)])


def _growth(found: Figures) -> Section:
    series: dict[str, list[tuple[float, float]]] = {}
    rows = []
    for name, sizes in found["providers"].items():
        commits = {int(size): [b["commit_ms"] for b in batches] for size, batches in sizes.items()}
        series[name] = [(size, statistics.median(of)) for size, of in commits.items()]
        least = min(commits)
        for size, of in commits.items():
            time_ms = quartiles(of)
            rows.append(
                [
                    name,
                    f"{size:,}",
                    f"{time_ms.middle:,.0f}",
                    f"{time_ms.low:,.0f} {time_ms.high:,.0f}",
                    _spread([one / base for one, base in zip(of, commits[least], strict=True) if base]),
                    f"{statistics.median(b['took_ms'] for b in sizes[str(size)]):,.0f}",
                ]
            )
    return Section(
        "Growth",
        f"Commit time, summed over {found['partitions']:,} partitions, of batches of {found['rows']:,} rows.",
        lines("Commit time by size of the state", "keys in the state", "commit, ms", series),
        ["provider", "keys", "commit ms", "quartiles", "of the smallest's", "batch ms"],
        rows,
    )


def _memory(found: Figures) -> Section:
    each: Mapping[str, float] = found["heap_bytes_per_key"]
    return Section(
        "Memory",
        f"Heap after garbage collection for {found['keys']:,} keys: a long, and a count.",
        bars("Heap of one key in bytes", [Bar(n, max(b, 0), f"{b:,.0f} bytes") for n, b in each.items()]),
        ["provider", "bytes a key", "of ckpt's"],
        [[name, f"{of:,.0f}", _ratio({n: [b] for n, b in each.items()}, name)] for name, of in each.items()],
    )


def _files(found: Figures) -> Section:
    rows = [
        [name, f"{of['partitions']:,}", f"{of['batches']:,}", f"{of['files']:,}"]
        for name, counts in found["providers"].items()
        for of in counts
    ]
    last = {name: counts[-1] for name, counts in found["providers"].items() if counts}
    return Section(
        "Files",
        "Files that hold the state, by partitions and batches.",
        bars(
            "Files at the end",
            [Bar(name, of["files"], f"{of['files']:,} files") for name, of in last.items()],
        ),
        ["provider", "partitions", "batches", "files"],
        rows,
    )


_SHOW: Mapping[str, Callable[[Figures], Section]] = {
    "batches": _batches,
    "restart": _restart,
    "growth": _growth,
    "memory": _memory,
    "files": _files,
}


# -- numbers -------------------------------------------------------------------------------------


def _ratio(figures: Mapping[str, Sequence[float]], name: str) -> str:
    """Median and quartiles of the figures over ckpt's, pair by pair."""
    if name == OURS or OURS not in figures:
        return "-"
    pairs = zip(figures[name], figures[OURS], strict=True)
    return _spread([theirs / own for theirs, own in pairs if own > 0])


def _spread(ratios: Sequence[float]) -> str:
    if not ratios:
        return "-"
    return str(quartiles(ratios))
