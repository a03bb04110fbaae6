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
    assert text.startswith("lag: ok\n2 of 5 keys move")
    assert "209%  " in text  # the instance of three keys, of the mean
    keys = text.partition("The 2 heaviest keys:\n")[2].splitlines()[1:]
    assert [line.split()[0] for line in keys] == ["be", "or"]
    assert keys[0].split() == ["be", "37.88%", "8,000", "0", "stays"]
    assert "move to" in keys[1]


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
