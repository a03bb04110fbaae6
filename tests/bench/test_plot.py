"""Charts and pages say everything in text, stand alone, and stay readable whatever the figures are."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest

from ckpt_bench.plot import (
    Bar,
    Chart,
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

SVG = "{http://www.w3.org/2000/svg}"


def texts(chart: str) -> list[str]:
    """What is written in a chart, without its title and tips."""
    return ["".join(each.itertext()) for each in ET.fromstring(chart).iter(f"{SVG}text")]


def of_class(chart: str, name: str) -> list[ET.Element]:
    return [each for each in ET.fromstring(chart).iter() if name in each.get("class", "").split()]


CHARTS: dict[str, Chart] = {
    "bars": bars("<b>", [Bar("a & b", 1.0, "1 ms", 0.5, 2.0), Bar("none", 0.0, "0 ms")]),
    "lines": lines("growth", "keys", "ms", {"ckpt": [(1e5, 0.0), (1e7, 3.0)], "x < y": [(1e5, 1.0)]}),
    "linear lines": lines("growth", "keys", "ms", {"a": [(0.0, 3.0), (8.0, 3e6)]}, x_log=False, y_log=True),
    "percentiles": percentiles("latency", {"READ": [(0, 1.0), (50, 9.0), (99.99, 9e5), (100, 7e6)]}),
    "over time": over_time("rate", "ops/s", {"all": [(s, 5.0 * s) for s in range(90)]}, [Event(3, "GC", 9)]),
    "trade-off": trade_off("cost", "ops/s", "latency", {"log": [Point(9, 2e3, "1 thread"), Point(20, 9e3)]}),
    "no bars": bars("nothing", []),
    "no lines": lines("nothing", "x", "y", {}),
    "no percentiles": percentiles("nothing", {"READ": []}),
    "no time": over_time("nothing", "y", {}),
    "no trade-off": trade_off("nothing", "x", "y", {}),
    "all zero": lines("zero", "x", "y", {"a": [(0.0, 0.0)]}, y_log=True),
    "one value": percentiles("same", {"READ": [(50, 5.0), (100, 5.0)]}),
    "at once": over_time("rate", "ops/s", {"all": [(0, 0.0)]}, [Event(0, "CRASH")]),
}


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_a_whole_drawing_in_both_widths(name: str) -> None:
    chart = CHARTS[name]
    for drawn in (chart, chart.narrow):
        root = ET.fromstring(drawn)
        assert root.tag == f"{SVG}svg"
        assert root.find(f"{SVG}title") is not None
        assert "nan" not in drawn
        assert "inf" not in drawn
        assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-color-scheme: dark" in chart, "a file of its own, for light and dark"


def test_bars_name_everything_in_text() -> None:
    assert texts(bars("t", [Bar("a & b", 1.0, "1 ms")])) == ["a & b", "1 ms"]


def test_series_differ_without_colour() -> None:
    names = [f"series {n}" for n in range(12)]
    chart = lines("many", "x", "y", {name: [(1, n), (2, n)] for n, name in enumerate(names)})
    assert set(names) <= set(texts(chart))
    dashes = [each.get("stroke-dasharray") for each in of_class(chart, "curve")]
    shapes = [each.get("d") for each in of_class(chart, "sample")]
    colours = [each.get("class") for each in of_class(chart, "sample")]
    assert len(set(dashes[:6])) == len(set(shapes[:6])) == 6
    assert len(set(zip(colours, shapes, strict=True))) == 12


def places(chart: str, kind: str) -> list[tuple[float, float]]:
    found = []
    for each in of_class(chart, kind):
        match = re.match(r"translate\(([\d.]+) ([\d.]+)\)", each.get("transform", ""))
        assert match
        found.append((float(match[1]), float(match[2])))
    return found


def test_each_nine_of_a_percentile_has_the_same_room() -> None:
    points = [(p, 10.0) for p in (0, 90, 99, 99.9, 99.99, 100)]
    xs = [x for x, _ in places(percentiles("tail", {"READ": points}), "marker")]
    steps = [b - a for a, b in itertools.pairwise(xs)]
    assert steps[:4] == pytest.approx([steps[0]] * 4, abs=0.2)
    assert steps[4] > 0, "the greatest value lies beyond"


def test_each_decade_of_a_latency_has_the_same_room() -> None:
    points = [(50, 10.0), (90, 100.0), (99, 1000.0), (100, 10_000.0)]
    chart = percentiles("tail", {"READ": points})
    ys = [y for _, y in places(chart, "marker")]
    steps = [a - b for a, b in itertools.pairwise(ys)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.2)
    assert {"10 µs", "100 µs", "1 ms", "10 ms"} <= set(texts(chart))


def test_events_are_marked_and_named_where_they_happened() -> None:
    events = [Event(10, "GC", 20), Event(50, "CRASH"), Event(100, "RECOVER")]
    chart = over_time("rate", "ops/s", {"all": [(0, 1.0), (100, 1.0)]}, events)
    xs = [float(re.match(r"M([\d.]+)", each.get("d", ""))[1]) for each in of_class(chart, "event")]  # type: ignore[index]
    ends = [x for x, _ in places(chart, "marker")]
    assert [(x - ends[0]) / (ends[1] - ends[0]) for x in xs] == pytest.approx([0.1, 0.5, 1.0], abs=0.01)
    assert len(of_class(chart, "span")) == 1
    assert {"GC", "CRASH", "RECOVER"} <= set(texts(chart))
    dashes = {each.get("stroke-dasharray") for each in of_class(chart, "event")}
    assert len(dashes) == 3, "kinds of event differ without colour"


def test_a_crowd_of_events_keeps_every_mark_and_only_the_names_that_fit() -> None:
    events = [Event(n / 10, "GC") for n in range(500)]
    chart = over_time("rate", "ops/s", {"all": [(0, 1.0), (50, 1.0)]}, events)
    assert len(of_class(chart, "event")) == 500
    assert 5 < texts(chart).count("GC") < 100


def test_a_run_of_a_moment_has_an_axis_of_a_second() -> None:
    chart = over_time("rate", "ops/s", {"all": [(0, 5.0)]})
    assert {"0", "0.2", "1"} <= set(texts(chart))


def test_a_long_run_is_averaged_and_loses_nothing() -> None:
    points = [(s, 100.0 if s % 2 else 0.0) for s in range(86_400)]
    chart = over_time("rate", "ops/s", {"all": points})
    assert len(chart) < 20_000
    assert "hours since the start" in texts(chart)
    ys = set(re.findall(r"[\d.]+ ([\d.]+)", of_class(chart, "curve")[0].get("d", "")))
    assert len(ys) == 1, "each span holds as many fast seconds as slow ones"


def test_points_say_what_they_are_unless_that_would_cover_another() -> None:
    apart = [Point(n * 100, 10.0**n, f"{n} threads") for n in range(1, 5)]
    assert sum("threads" in each for each in texts(trade_off("t", "x", "y", {"log": apart}))) == 4
    crowd = [Point(100 + n / 100, 10.0, f"{n} threads") for n in range(40)]
    chart = trade_off("t", "x", "y", {"log": crowd})
    assert 1 <= sum("threads" in each for each in texts(chart)) < 10
    assert "39 threads" in chart, "who points at it is told"


def a_run(faults: Sequence[str] = (), events: Sequence[Event] = ()) -> str:
    return run_page(
        "ckpt bench run",
        "A workload.",
        summary=[("throughput", "10 operations/s")],
        operations=[
            Operation(
                "READ", 1000, 0, 55.5, [(50, 40.0), (90, 70.0), (99, 130.0), (99.9, 900.0), (100, 4e3)]
            ),
            Operation("UPDATE-FAILED", 0, 3, 0.0, []),
        ],
        throughput={"READ": [(0, 400.0), (1, 600.0)]},
        events=events,
        faults=faults,
        figures=[["OVERALL", "RunTime(ms)", "2,000"]],
    )


def test_a_run_has_a_summary_latencies_and_a_course() -> None:
    html = a_run(events=[Event(0.25, "GC", 0.75), Event(1.5, "GC", 1.75)])
    for expected in (
        "10 operations/s",
        "Nothing failed",
        "130 µs",
        "4 ms",
        "RunTime(ms)",
        "0.2 to 0.8, 1.5 to 1.8",
    ):
        assert expected in html
    assert html.count('class="chart"') == 2 * 2


def wide_charts(html: str) -> list[str]:
    return re.findall(r'class="wide">(<svg.*?</svg>)', html, re.DOTALL)


def test_an_operation_looks_the_same_in_both_charts_of_a_run() -> None:
    html = run_page(
        "run",
        "A workload.",
        summary=[],
        operations=[Operation(name, 9, 0, 1.0, [(50, 1.0), (100, 2.0)]) for name in ("READ", "UPDATE")],
        throughput={"UPDATE": [(0, 1.0)], "READ": [(0, 2.0)]},
    )
    charts = wide_charts(html)
    assert [texts(chart)[:2] for chart in charts] == [["READ", "UPDATE"]] * 2


def test_a_few_operations_have_no_rare_percentiles() -> None:
    points = [(50.0, 1.0), (90.0, 2.0), (99.0, 3.0), (99.99, 3.0), (100.0, 3.0)]
    html = run_page("r", "a", summary=[], operations=[Operation("READ", 200, 0, 1.0, points)], throughput={})
    (chart,) = wide_charts(html)
    assert len(of_class(chart, "marker")) == 4
    assert "99.99 %" not in chart


def test_a_run_says_first_what_failed() -> None:
    html = a_run(["READ: 3 ERROR; the first: no route <to> host"])
    assert "Not everything went well: READ: 3 ERROR; the first: no route &lt;to&gt; host." in html
    assert "Nothing failed" not in html


def test_a_page_may_fetch_and_run_nothing() -> None:
    hostile = "</title><script>alert(1)</script><img src=x>"
    html = page(hostile, hostile, [Section(hostile, hostile, CHARTS["bars"], [hostile], [[hostile]])])
    assert not any(word in html for word in ("<script", "<img", "<link"))
    assert "default-src 'none'" in html
