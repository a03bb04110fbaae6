"""Every page of the command line in a real browser: charts are there, fit, can be read; nothing is logged."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ckpt.cli import main
from ckpt.plot import Pair, pairs
from ckpt_bench.plot import (
    Bar,
    Event,
    Operation,
    Point,
    Section,
    bars,
    lines,
    over_time,
    page,
    percentiles,
    run_page,
    trade_off,
)
from ckpt_bench.spark.present import report as spark_report
from tests.effort import sample

LEAST_LETTERS_PX = 9.5
MOST_OVERLAP = 0.1
"""How much of a text the box of another may cover: boxes are larger than letters."""

MEASURE = """(() => {
  const box = r => r.toJSON();
  const shown = e => e.checkVisibility() && e.getBoundingClientRect().width > 0;
  const rgb = c => c.match(/[\\d.]+/g).slice(0, 3).map(Number);
  return {
    width: document.documentElement.clientWidth,
    needs: document.documentElement.scrollWidth,
    paper: rgb(getComputedStyle(document.body).backgroundColor),
    ink: rgb(getComputedStyle(document.body).color),
    sections: document.querySelectorAll("section").length,
    paragraphs: [...document.querySelectorAll("h1, h2, p, .table")].map(e => box(e.getBoundingClientRect())),
    charts: [...document.querySelectorAll("svg.chart")].filter(shown).map(svg => ({
      title: svg.querySelector("title").textContent,
      box: box(svg.getBoundingClientRect()),
      texts: [...svg.querySelectorAll("text")].map(t => ({
        words: t.textContent,
        colour: rgb(getComputedStyle(t).fill),
        letters: parseFloat(getComputedStyle(t).fontSize) * svg.getBoundingClientRect().width
          / svg.viewBox.baseVal.width,
        box: box(t.getBoundingClientRect())})),
      marks: [...svg.querySelectorAll("rect, .curve, .marker, .event")].map(m => ({
        kind: m.getAttribute("class"),
        box: box(m.getBoundingClientRect()),
        colour: rgb(getComputedStyle(m)[/curve|event/.test(m.getAttribute("class")) ? "stroke" : "fill"])})),
    })),
  };
})()"""


def spark_page() -> str:
    def batches(middle: int) -> list[dict[str, int]]:
        return [{"took_ms": middle + n, "cpu_ms": 2 * middle, "commit_ms": n, "files": 7} for n in range(5)]

    took = {"ckpt": 2100, "default": 7700, "rocksdb": 13000, "nothing": 1900}
    names = ("ckpt", "default", "rocksdb")
    sizes = (10_000, 100_000, 1_000_000, 10_000_000)
    return spark_report(
        {
            "batches": {
                "partitions": 200,
                "rows": 100_000,
                "keys": 1_000_000,
                "providers": {name: batches(ms) for name, ms in took.items()},
            },
            "restart": {
                "partitions": 200,
                "keys": 2_000_000,
                "floor_ms": [2900, 3000],
                "providers": {
                    name: {"empty_ms": [3000, 3100], "restarted_ms": [3500 + 900 * n, 3700 + 900 * n]}
                    for n, name in enumerate(names)
                },
            },
            "growth": {
                "partitions": 200,
                "rows": 100_000,
                "providers": {
                    name: {str(size): batches(10 + n * size // 10_000) for size in sizes}
                    for n, name in enumerate(names)
                },
            },
            "memory": {
                "partitions": 200,
                "keys": 10**6,
                "heap_bytes_per_key": dict(zip(names, (90, 220, 3), strict=True)),
            },
            "files": {
                "providers": {
                    name: [{"partitions": 200, "batches": 10, "files": 40 * 10**n}]
                    for n, name in enumerate(names)
                }
            },
        }
    )


def busy_run() -> str:
    """A run that had everything: operations of very different latencies, GC, crashes, faults."""
    choose = random.Random(6)
    shares = [100 - 100 / 1.15**n for n in range(70)]
    medians = {"READ": 9, "UPDATE": 900, "SAVE": 4, "DURABLE": 12_000, "Intended-READ": 14, "SCAN": 250_000}
    operations = [
        Operation(
            name,
            123_456,
            3,
            us * 1.4,
            [*((p, us * (1 - p / 100) ** -0.4) for p in shares), (100.0, us * 3e3)],
        )
        for name, us in medians.items()
    ]
    events = [Event(s, "GC", s + 2.5) for s in range(5, 300, 11)]
    events += [Event(61.0, "CRASH"), Event(61.5, "RECOVER", 63), Event(290, "CRASH"), Event(299, "MIGRATE")]
    throughput = {
        name: [(s, 0.0 if s in (61, 62) else rate * choose.uniform(0.8, 1.2)) for s in range(300)]
        for name, rate in (("READ", 61_000.0), ("UPDATE", 58_500.0), ("SCAN", 130.0))
    }
    return run_page(
        "ckpt bench run",
        "run on log:///var/lib/a-rather-long-directory-name/that-has-no-space-to-break-a-line-at/checkpoints-of-words",
        summary=[("throughput", "119,630 operations/s"), ("time", "300 s"), ("errors", "18")],
        operations=operations,
        throughput=throughput,
        events=events,
        faults=[
            "SCAN: 3 ERROR; the first: no answer from redis://127.0.0.1:6379/0 after 30 s; is it running?"
        ],
        figures=[["OVERALL", "Throughput(ops/sec)", "119630.1"]] * 30,
    )


def every_chart() -> str:
    """Charts with figures that are hard to lay out."""
    stores = ("log", "rocksdict", "lmdb", "sqlite3", "diskcache", "one file per key", "raw append", "SlateDB")
    curve = {
        name: [
            Point(1000.0 * threads**0.7 * (n + 1), 90.0 * threads**1.3 / (n + 1), f"{threads} threads")
            for threads in (1, 2, 4, 8, 16)
        ]
        for n, name in enumerate(stores)
    }
    growth = {
        name: [(10.0**e, 0.3 * (n + 1) * 10 ** (e / 3)) for e in range(4, 8)] for n, name in enumerate(stores)
    }
    rows = [
        Bar(
            f"durable puts, batch of {10**n}, behind the same queue",
            10.0**n,
            f"{10**n:,} of 1,000 [0.91 1.27]",
            0,
            12.0**n,
        )
        for n in range(4)
    ]
    charts = {
        "trade-off": trade_off("throughput against latency", "operations/s", "latency, 99 %", curve),
        "growth": lines("growth", "keys", "ms", growth, y_log=True),
        "linear": lines("linear", "instances", "MB/s", growth, x_log=False),
        "bars": bars("long names", rows),
        "tail": percentiles(
            "tail", {name: [(p, 10.0 + n) for p in (0, 50, 100)] for n, name in enumerate(stores)}
        ),
        "hours": over_time("hours", "operations/s", {"all": [(s, 50 + s % 7) for s in range(0, 40_000, 10)]}),
        "pairs": pairs(
            "pairs",
            ("before", "after"),
            [
                Pair(f"instance {n}", 9.0 - n, None if n == 3 else 5.0, f"{900 - 100 * n} % to 500 %", 5.5)
                for n in range(5)
            ],
            limit="limit",
        ),
        "moment": over_time(
            "moment", "operations/s", {"all": [(0, 5.0)]}, [Event(0.1, "CRASH"), Event(0.2, "GC")]
        ),
    }
    return page("Every chart", "With figures.", [Section(n, n, c, ["a"], [["b"]]) for n, c in charts.items()])


def simulated(folder: Path) -> str:
    """The page of `ckpt rebalance simulate` for a small stream."""
    html = folder / "simulated.html"
    planners = [f"--planner={name}" for name in ("kg", "pkg", "lag", "mixed")]
    arguments = ["-p", "keys=2000", "--intervals", "12", "--instances", "5", *planners, "--html", str(html)]
    done = CliRunner().invoke(main, ["rebalance", "simulate", *arguments])
    assert done.exit_code == 0, done.output
    return html.read_text(encoding="utf-8")


def written_by(*command: str) -> Callable[[Path], str]:
    """The page that a command writes, at sizes that say nothing about speed."""

    def write(folder: Path) -> str:
        html = folder / "written.html"
        done = CliRunner().invoke(main, ["bench", *command, "--html", str(html)])
        assert done.exit_code == 0, done.output
        return html.read_text(encoding="utf-8")

    return write


def plan_page(*options: str) -> Callable[[Path], str]:
    """The page of `ckpt rebalance plan` for skewed loads on fifteen instances, one of which is given up."""

    def write(folder: Path) -> str:
        rows = [f"key {n},{n % 15},{1000 // n},{n * 97},{n % 14}" for n in range(1, 400)]
        loads, html = folder / "loads.csv", folder / "plan.html"
        loads.write_text("\n".join(["key,instance,cost,state,home", *rows, f"{'long ' * 30},0,1,1,0"]))
        limits = ("--instances", "14", "--theta", "0.3")
        done = CliRunner().invoke(
            main, ["rebalance", "plan", str(loads), *limits, "--html", str(html), *options]
        )
        assert done.exit_code == 0, done.output
        return html.read_text(encoding="utf-8")

    return write


PAGES: dict[str, Callable[[Path], str]] = {
    "spark": lambda _: spark_page(),
    "run with everything": lambda _: busy_run(),
    "every chart": lambda _: every_chart(),
    "bench run": written_by("run", "memory://", "-P", "workloada", "-p", "recordcount=200", "--threads", "2"),
    "bench compare": written_by(
        "compare", "durable-batch-100", "raw-append-nosync", "--quick", "--rounds", "2"
    ),
    "bench growth": written_by("growth", "--quick", "--keys", "300,1e3", "--store", "log", "--store", "lmdb"),
    "bench plan": written_by("plan", "race", "growth", "--quick"),
    "rebalance plan": plan_page(),
    "rebalance plan --compare": plan_page("--compare"),
    "rebalance simulate": simulated,
    "bench reproduce": written_by("reproduce", "s4", "fig-4.1", "fig-4.2", "table-5.1", "--quick"),
}


@pytest.mark.parametrize("name", sample(list(PAGES), 2))
def test_a_page_is_readable_on_a_phone_and_on_a_screen_in_light_and_dark(
    name: str, tmp_path: Path, chromium: Any
) -> None:
    path = tmp_path / "page.html"
    path.write_text(PAGES[name](tmp_path), encoding="utf-8")
    seen = set()
    for width, dark in itertools.product((360, 1280), (False, True)):
        with looking(chromium, path, width, dark) as look:
            found = look.evaluate(MEASURE)
            assert look.logged == []
            assert look.fetched == []
        assert found["width"] == width
        check_layout(found)
        check_colours(found, dark)
        seen.add(tuple(chart["title"] for chart in found["charts"]))
    assert len(seen) == 1, "a phone shows the same charts as a screen"
    assert seen.pop(), "there are charts"


@pytest.mark.proof
def test_verdicts_need_no_scrolling_sideways_on_a_phone(tmp_path: Path, chromium: Any) -> None:
    path = tmp_path / "page.html"
    path.write_text(PAGES["bench reproduce"](tmp_path), encoding="utf-8")
    sideways = """[...document.querySelectorAll("section")].filter(s => /verdicts/.test(s.textContent))
      .map(s => s.querySelector(".table")).map(t => t.scrollWidth - t.clientWidth)"""
    for width in (360, 400, 1280):
        with looking(chromium, path, width, dark=False) as look:
            found = look.evaluate(sideways)
        assert len(found) == 3
        assert max(found) <= 0, width


def looking(chromium: Any, path: Path, width: int, dark: bool) -> AbstractContextManager[Any]:
    look: AbstractContextManager[Any] = chromium.look(path, width, dark=dark)
    return look


def check_layout(found: dict[str, Any]) -> None:
    assert found["needs"] <= found["width"], "the page scrolls sideways"
    for box in found["paragraphs"]:
        assert box["left"] >= 0
        assert box["right"] <= found["width"]
    for chart in found["charts"]:
        outer, title = chart["box"], chart["title"]
        assert outer["width"] > 250, title
        assert outer["height"] > 30, title
        assert outer["left"] >= 0, title
        assert outer["right"] <= found["width"], title
        assert chart["marks"], f"{title}: nothing is drawn"
        for mark in chart["marks"]:
            assert mark["box"]["width"] + mark["box"]["height"] > 0, f"{title}: {mark}"
            assert inside(mark["box"], outer), f"{title}: {mark} leaves the chart"
        for written in chart["texts"]:
            assert written["letters"] >= LEAST_LETTERS_PX, (
                f"{title}: {written['words']!r} is too small to read"
            )
            assert inside(written["box"], outer), f"{title}: {written['words']!r} leaves the chart"
        for one, other in itertools.combinations(chart["texts"], 2):
            assert covered(one["box"], other["box"]) <= MOST_OVERLAP, (
                f"{title} at {found['width']}: {one['words']!r} covers {other['words']!r}"
            )


def inside(inner: dict[str, float], outer: dict[str, float]) -> bool:
    """Give or take a line's width."""
    return (
        inner["left"] >= outer["left"] - 2
        and inner["right"] <= outer["right"] + 2
        and inner["top"] >= outer["top"] - 2
        and inner["bottom"] <= outer["bottom"] + 2
    )


def covered(one: dict[str, float], other: dict[str, float]) -> float:
    """How much of the smaller box the two share."""
    width = min(one["right"], other["right"]) - max(one["left"], other["left"])
    height = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
    least = min(one["width"] * one["height"], other["width"] * other["height"])
    return max(width, 0) * max(height, 0) / least if least else 0.0


def check_colours(found: dict[str, Any], dark: bool) -> None:
    assert (luminance(found["paper"]) < 0.1) == dark
    assert contrast(found["ink"], found["paper"]) >= 7
    for chart in found["charts"]:
        for written in chart["texts"]:
            assert contrast(written["colour"], found["paper"]) >= 4.5, written
        for mark in chart["marks"]:
            assert contrast(mark["colour"], found["paper"]) >= 3, mark


def luminance(colour: list[float]) -> float:
    """As the guidelines for accessible pages define it."""
    red, green, blue = (c / 3294.6 if c <= 10 else math.pow((c / 255 + 0.055) / 1.055, 2.4) for c in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: list[float], other: list[float]) -> float:
    least, most = sorted((luminance(one), luminance(other)))
    return (most + 0.05) / (least + 0.05)


def test_the_browser_would_have_told(tmp_path: Path, chromium: Any) -> None:
    """What the other tests find missing is found when it is there."""
    path = tmp_path / "bad.html"
    viewport = '<meta name="viewport" content="width=device-width">'
    script = '<script>console.error("no"); x.y</script>'
    path.write_text(f'{viewport}<p style="width: 900px"><img src="there-is-none.png">{script}')
    with looking(chromium, path, 360, dark=False) as look:
        found = look.evaluate(MEASURE)
        assert any("there-is-none.png" in address for address in look.fetched)
        assert any("['no']" in line for line in look.logged)
        assert any(line.startswith("exception") for line in look.logged)
    assert found["needs"] > found["width"]


def test_a_page_refuses_what_it_does_not_hold_itself(tmp_path: Path, chromium: Any) -> None:
    path = tmp_path / "page.html"
    whole = page("title", "about", [])
    path.write_text(whole.replace("</body>", '<script>document.title = "run"</script></body>'))
    with looking(chromium, path, 360, dark=False) as look:
        assert look.evaluate("document.title") == "title"
        assert any("Content Security Policy" in line for line in look.logged)
