"""`ckpt rebalance simulate`: the figures are those of the simulator, and bad input is one clear line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import ckpt.rebalance.simulate as sim
from ckpt.rebalance.simulate.generators import DriftingZipf, read_intervals

Run = Callable[..., Result]
SMALL = ("-p", "keys=500", "-p", "tuples=3000", "--instances", "3", "--intervals", "4")


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    path = tmp_path / "stream.csv"
    rows = [
        f"{interval},{key},{count},{count / 10},{count * 10}"
        for interval in range(3)
        for key, count in zip("abcdef", (60, 30, 20, 10, 5, 5), strict=True)
    ]
    path.write_text("\n".join(["interval,key,tuples,cost,state", *rows, ""]))
    return str(path)


def test_the_json_is_the_simulation(run: Run) -> None:
    shown = json.loads(
        run("rebalance", "simulate", *SMALL, "--planner", "mixed", "--seed", "7", "--json").stdout
    )
    stream = DriftingZipf(keys=500, tuples=3000, instances=3, intervals=4, seed=7)
    (found,) = shown
    expected = sim.run(stream, sim.Cluster(3), sim.Balancing("mixed")).document()
    assert found.pop("plan_s") != []
    del expected["plan_s"]
    assert found == expected


def test_planners_run_beside_each_other_on_the_same_stream(run: Run) -> None:
    out = run("rebalance", "simulate", *SMALL, *(f"--planner={name}" for name in ("kg", "lag", "pkg"))).stdout
    header, *rows = (line.split() for line in out.splitlines())
    assert header[:3] == ["planner", "skew", "most"]
    assert [row[0] for row in rows] == ["kg", "lag", "pkg"]
    kg, lag, pkg = (float(row[1]) for row in rows)
    assert pkg < lag < kg
    assert [row[3] for row in rows][::2] == ["0.00%", "0.00%"]


def test_a_file_is_read_and_cut(run: Run, recorded: str) -> None:
    arguments = (recorded, "--instances", "2", "--interval-s", "5", "--theta", "0.1", "--protocol", "reload")
    found = json.loads(run("rebalance", "simulate", *arguments, "--intervals", "2", "--json").stdout)[0]
    assert found["tuples"] == pytest.approx([130, 130])
    stream = read_intervals(recorded)[:2]
    expected = sim.run(
        stream, sim.Cluster(2, 5.0), sim.Balancing("lag", theta=0.1, protocol=sim.reload_tasks)
    ).document()
    assert found["latency_s"] == expected["latency_s"]


def test_an_instance_dies_and_a_controller_waits(run: Run) -> None:
    died = json.loads(
        run("rebalance", "simulate", *SMALL, "--fail", "1@12", "--controller", "--json").stdout
    )[0]
    calm = json.loads(run("rebalance", "simulate", *SMALL, "--controller", "--json").stdout)[0]
    assert max(died["latency_s"]) > max(calm["latency_s"])
    assert calm["status"][0] == "imbalanced"


def test_a_page_has_a_chart_for_each_figure(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run("rebalance", "simulate", *SMALL, "--planner", "kg", "--planner", "lag", "--html", str(page))
    text = page.read_text()
    for title in ("Skew", "Migrated state", "Throughput", "Latency", "Routing table"):
        section = text.partition(f"<h2>{title}</h2>")[2].partition("</section>")[0]
        assert "<svg" in section
        assert "lag" in section


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "keyz=5"], "workload zipf has no property 'keyz'; did you mean 'keys'?"),
        (["-p", "keys=many"], "-p keys=many: keys must be a whole number"),
        (["--planner", "lagg"], "no planner 'lagg'; did you mean 'lag'?"),
        (["--fail", "3"], "--fail 3: name an instance and a time, such as 3@120"),
        (["--fail", "99@1"], "instance 99 cannot die"),
        (["stream.csv", "--workload", "zipf"], "give either a file or --workload"),
        (["stream.csv", "-p", "keys=5"], "-p is for generated streams"),
        (["--html", "/no/such/folder/page.html"], "there is no folder /no/such/folder"),
    ],
)
def test_bad_input_is_one_line(run: Run, arguments: list[str], message: str) -> None:
    result = run("rebalance", "simulate", *arguments, code=2)
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_file_without_rows_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("interval,key\n")
    assert "has no rows" in run("rebalance", "simulate", str(path), code=2).stderr
