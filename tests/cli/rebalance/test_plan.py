"""`ckpt rebalance plan`: what it prints is what the plan is, and it changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import ckpt.rebalance as rb

Run = Callable[..., Result]
ROWS = ("be,0,50,8000,0", "or,0,30,1000,0", "not,1,20,2000,1", "to,2,20,500,2", "that,0,12,700,0")
NAMES = {
    *("status", "reason", "planner", "moves", "migrated_bytes", "lower_bound", "table_size"),
    *("loads_before", "loads_after", "plan_s"),
}


@pytest.fixture
def loads(tmp_path: Path) -> str:
    path = tmp_path / "loads.csv"
    path.write_text("\n".join(["key,instance,cost,state,home", *ROWS, ""]))
    return str(path)


def test_the_json_is_the_plan(run: Run, loads: str) -> None:
    shown = json.loads(run("rebalance", "plan", loads, "--theta", "0.3", "--json").stdout)
    plan = rb.plan(rb.read_loads(loads), "lag", theta=0.3)
    assert set(shown) == NAMES
    assert shown["status"] == "ok"
    assert shown["moves"] == [
        {"key": plan.loads.name(at), "from": source, "to": target, "kind": "move"}
        for at, source, target in zip(
            plan.moves.at.tolist(), plan.moves.source.tolist(), plan.moves.target.tolist(), strict=True
        )
    ]
    assert shown["loads_before"] == [92, 20, 20]
    assert shown["loads_after"] == plan.loads_after.tolist()
    assert shown["lower_bound"] <= shown["migrated_bytes"] == plan.migrated_bytes
    assert shown["table_size"] == len(plan.table)


def test_a_reader_sees_instances_keys_and_cost(run: Run, loads: str) -> None:
    text = run("rebalance", "plan", loads, "--theta", "0.3", "--top", "2").stdout
    said = dict(line.split(maxsplit=1) for line in text.partition("\n\n")[0].splitlines())
    plan = rb.plan(rb.read_loads(loads), "lag", theta=0.3)
    assert list(said) == ["plan", "keys", "state", "bound", "table", "peak", "time"]
    assert said["plan"] == "lag: ok"
    assert said["keys"] == "2 of 5 move (move 2)"
    assert said["state"] == "1,700 of 12,200 bytes travel (13.93%)"
    assert said["bound"] == f"{plan.lower_bound:,.0f} bytes at least, for any plan within the limits"
    assert said["table"] == "2 entries afterwards, no limit"
    assert said["peak"] == "209% of the mean before, 114% after"
    assert "209%  " in text  # the instance of three keys, of the mean
    keys = text.partition("The 2 heaviest keys:\n")[2].splitlines()[1:]
    assert [line.split()[0] for line in keys] == ["be", "or"]
    assert keys[0].split() == ["be", "37.88%", "8,000", "0", "stays"]
    assert "move to" in keys[1]


def test_what_cannot_be_kept_is_said_with_its_reason(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "loads.csv"
    light = [f"light{n},{int(n >= 90)},1,1,{int(n >= 90)}" for n in range(100)]
    path.write_text("\n".join(["key,instance,cost,state,home", "large,0,1,1000000,0", *light]))
    said = run("rebalance", "plan", str(path), "--theta", "0.1", "--table-limit", "0").stdout
    assert "plan    lag: best effort" in said
    assert "reason  instance 0 has a load of 91, its limit is" in said
    assert "bound   no plan keeps these limits, whatever it moves" in said
    assert "table   0 entries afterwards, 0 allowed" in said


def test_the_page_has_what_is_printed_and_fetches_nothing(run: Run, loads: str, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    printed = run("rebalance", "plan", loads, "--theta", "0.3", "--html", str(page)).stdout
    html = page.read_text(encoding="utf-8")
    assert printed.startswith("plan   lag: ok"), "what is printed stays"
    for words in (
        "lag: ok",
        "1,700 of 12,200 bytes travel",
        "209% to 114%",
        "37.88%",
        "move to",
        "All limits are",
    ):
        assert words in html
    assert html.count("<section>") == 4
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    nothing = run("rebalance", "plan", loads, "--theta", "9", "--html", str(page), "--json")
    assert json.loads(nothing.stdout)["status"] == "noop"
    assert page.read_text(encoding="utf-8").count("<section>") == 3, "nothing moves"


def test_names_of_keys_are_data_on_the_page(run: Run, tmp_path: Path) -> None:
    path, page = tmp_path / "loads.csv", tmp_path / "plan.html"
    path.write_text("key,instance,cost,state,home\n<script>x</script>,0,9,9,0\nb,0,5,5,0\nc,1,1,1,1\n")
    run("rebalance", "plan", str(path), "--html", str(page))
    assert "<script>" not in page.read_text(encoding="utf-8")
    assert "&lt;script&gt;x" in page.read_text(encoding="utf-8")


def test_all_planners_on_a_page(run: Run, loads: str, tmp_path: Path) -> None:
    page = tmp_path / "planners.html"
    run("rebalance", "plan", loads, "--theta", "0.3", "--compare", "--html", str(page))
    html = page.read_text(encoding="utf-8")
    assert all(f"<td>{name}</td>" in html or f">{name}</td>" in html for name in rb.planner_names())


def test_a_page_that_cannot_be_written_is_told_before_the_work(run: Run, loads: str, tmp_path: Path) -> None:
    done = run("rebalance", "plan", loads, "--html", str(tmp_path / "none" / "plan.html"), code=2)
    assert "there is no folder" in done.output
    assert "planned in" not in done.output


def test_more_instances_and_fewer(run: Run, loads: str) -> None:
    more = json.loads(run("rebalance", "plan", loads, "--instances", "5", "--json").stdout)
    assert (len(more["loads_before"]), len(more["loads_after"])) == (5, 5)
    fewer = run("rebalance", "plan", loads, "--instances", "2", code=2)
    assert "home: a key has its home on instance 2, but there are 2 instances" in fewer.output


def test_a_table_that_would_not_fit_has_an_exit_code(run: Run, loads: str) -> None:
    done = run("rebalance", "plan", loads, "--planner", "llfd", "--table-limit", "0", "--json", code=1)
    assert json.loads(done.stdout)["status"] == "infeasible"


def test_all_planners_beside_each_other(run: Run, loads: str) -> None:
    rows = run("rebalance", "plan", loads, "--theta", "0.3", "--compare").stdout.splitlines()
    assert rows[0].split()[:2] == ["planner", "status"]
    assert [row.split()[0] for row in rows[1:]] == list(rb.planner_names())
    plans = json.loads(run("rebalance", "plan", loads, "--theta", "0.3", "--compare", "--json").stdout)
    whole = [each for each in plans if not {"split", "merge"} & {move["kind"] for move in each["moves"]}]
    best = min(each["migrated_bytes"] for each in whole if each["status"] == "ok")
    assert next(each for each in plans if each["planner"] == "exact")["migrated_bytes"] == best


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--planner", "lagg"], "no planner 'lagg'; did you mean 'lag'?"),
        (["--theta", "-1"], "--theta"),
        (["--instances", "0"], "--instances"),
    ],
)
def test_wrong_use_is_told(run: Run, loads: str, arguments: list[str], says: str) -> None:
    assert says in run("rebalance", "plan", loads, *arguments, code=2).output


def test_a_bad_file_is_named_with_its_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("key,instance,cost,state\nbe,0,5,10\nor,x,1,1\n")
    assert f"ckpt: {path}: line 3" in run("rebalance", "plan", str(path), code=2).output
    assert "cannot be read" in run("rebalance", "plan", str(tmp_path / "none.csv"), code=2).output
    path.write_text("key,instance,state\nbe,0,10\n")
    assert "column cost is missing; needed are key" in run("rebalance", "plan", str(path), code=2).output
    path.write_text("key,instance,costs,state\nbe,0,5,10\n")
    assert (
        "unknown column 'costs'; did you mean 'cost'?" in run("rebalance", "plan", str(path), code=2).output
    )
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    assert f"{folder}" in run("rebalance", "plan", str(folder), code=2).output
    binary = tmp_path / "loads.parquet"
    binary.write_bytes(b"no parquet")
    assert "no readable Parquet file" in run("rebalance", "plan", str(binary), code=2).output
    odd = tmp_path / "loads.txt"
    assert "loads are read from files that end in .csv" in run("rebalance", "plan", str(odd), code=2).output
