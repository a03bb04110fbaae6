"""`ckpt bench compare` compares what it says, and says what it could not."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ckpt.cli import main
from ckpt_bench.compare.cases import CASES
from ckpt_bench.compare.worker import Worker
from ckpt_bench.interrupts import Interrupts

Compare = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]

FIRST_COLUMNS = ["case", "store", "baseline", "ratio", "q1", "q3", "rounds", "ops_per_s"]


def test_every_case_has_a_row_for_each_of_its_stores(rows: Rows) -> None:
    found = rows()
    expected = {
        (case.name, store) for case in CASES.values() if case.baseline == "log" for store in case.stores
    }
    assert {(row["case"], row["store"]) for row in found} == expected
    for row in found:
        assert list(row)[:8] == FIRST_COLUMNS
        assert row["baseline"] == "log"
        assert 0 < row["q1"] <= row["ratio"] <= row["q3"]
        assert row["ops_per_s"] > 0
        assert row["rounds"] in (1, 2), "one if a busy machine used up the time of a case"
        assert row["seed"] == 7
        assert (row["store"] != "log") or row["ratio"] == 1.0


def test_tables_name_the_direction_and_the_seed(compare: Compare, tmp_path: Path) -> None:
    html = tmp_path / "page.html"
    done = compare("raw-append-nosync", "--html", str(html))
    assert done.exit_code == 0, done.output
    assert "above 1 the baseline is faster" in done.stdout
    assert "raw-append-nosync" in done.stdout
    assert "seed 7" in done.stderr
    assert "raw-append-nosync (1 of 1)" in done.stderr, "progress is for stderr"
    assert "<svg" in html.read_text()


def test_a_store_that_was_asked_for_and_cannot_take_part_is_named(compare: Compare) -> None:
    done = compare("durable-batch-1", "--store", "raw-append", "--store", "lmdb-keeper")
    assert done.exit_code == 0, done.output
    assert "durable-batch-1: lmdb-keeper cannot take part" in done.stderr


def test_another_baseline_turns_the_ratio_round(rows: Rows) -> None:
    found = rows("durable-batch-1", "--baseline", "raw-append", "--store", "log")
    assert [(row["store"], row["baseline"]) for row in found] == [
        ("raw-append", "raw-append"),
        ("log", "raw-append"),
    ]


def test_a_peer_that_is_not_installed_is_named_and_the_others_are_compared(
    compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ckpt_bench.stores._PACKAGES", frozenset({"lmdb"}))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    done = compare("durable-batch-1", "--store", "lmdb", "--store", "raw-append", "--json")
    assert done.exit_code == 0, done.output
    assert "left out: lmdb is not installed; install the peers with: pip install 'ckpt[bench]'" in done.stderr
    assert [json.loads(line)["store"] for line in done.stdout.splitlines()] == ["log", "raw-append"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--store", "rocksdic"], "no store 'rocksdic' to compare; did you mean 'rocksdict'?"),
        (["open", "--store", "raw-append"], "nothing is left to compare"),
        (["opne"], "'opne' is not"),
        (["--address", "redis"], "NAME=ADDRESS"),
        (["--address", "reddis=redis://h/0"], "no server 'reddis'; did you mean 'redis'?"),
    ],
)
def test_wrong_use_is_one_line(compare: Compare, arguments: list[str], message: str) -> None:
    done = compare(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr.splitlines()[-1]


def test_a_store_that_fails_is_counted_and_sets_the_exit_code(compare: Compare) -> None:
    broken = "redis=redis://127.0.0.1:1/0?connect_timeout_s=0.1"
    done = compare(
        "thesis-mix-writes", "--store", "redis", "--store", "sqlite3", "--address", broken, "--json"
    )
    assert done.exit_code == 1, done.output
    assert [json.loads(line)["store"] for line in done.stdout.splitlines()] == ["log", "sqlite3"]
    assert "thesis-mix-writes: redis failed and is left out from there on: " in done.stderr


def test_ctrl_c_ends_with_the_results_so_far(interrupted: Any, tmp_path: Path) -> None:
    small = ["--quick", "--rounds", "30", "--keys", "200", "--store", "raw-append", "--folder", str(tmp_path)]
    finished = interrupted("batched-puts-1KB (2 of", "compare", "--json", *small)
    assert [row["store"] for row in finished if row["case"] == "batched-puts-100B"] == ["log", "raw-append"]
    assert {row["case"] for row in finished} <= {"batched-puts-100B", "batched-puts-1KB"}
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_a_store_s_process_starts_is_no_traceback(
    interrupted: Any, says_that_a_worker_starts: str, tmp_path: Path
) -> None:
    small = ["--quick", "--rounds", "30", "--keys", "200", "--store", "raw-append", "--folder", str(tmp_path)]
    assert interrupted(says_that_a_worker_starts, "compare", "--json", *small) == []
    assert list(tmp_path.iterdir()) == []


def test_another_ctrl_c_waits_for_no_process_and_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpt_bench.compare.worker._END_S", 600.0)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Interrupts() as interrupts:
            worker = Worker(interrupts)
            [process] = multiprocessing.active_children()
            assert process.pid is not None
            os.kill(process.pid, signal.SIGSTOP)  # it never ends by itself
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                worker.stop()
    finally:
        signal.signal(signal.SIGINT, before)
    assert multiprocessing.active_children() == []


# -- on servers ----------------------------------------------------------------------------------


def test_servers_are_shown_with_their_network_and_durability(
    rows: Rows, dev_server: Callable[[str], str]
) -> None:
    dev_server("redis")  # so that it runs, and this session stops it
    found = {(row["case"], row["store"]): row for row in rows("--servers", "--store", "redis")}
    assert set(found) == {
        (f"thesis-mix-{what}", store) for what in ("writes", "reads") for store in ("log", "redis")
    }
    assert found["thesis-mix-writes", "redis"]["durability"] == "appendfsync always"
    assert found["thesis-mix-writes", "redis"]["network"] == "TCP, loopback"
    assert found["thesis-mix-writes", "log"]["durability"] == "fsync"
    assert found["thesis-mix-writes", "log"]["network"] == "none"


def test_a_server_of_ones_own_keeps_nothing_of_a_comparison(
    compare: Compare, dev_server: Callable[[str], str]
) -> None:
    address = f"{dev_server('redis')}?prefix=compared"
    done = compare("--servers", "--store", "redis", "--address", f"redis={address}")
    assert done.exit_code == 0, done.output
    assert "as the server is set up" in done.stdout
    listed = CliRunner().invoke(main, ["ls", address])
    assert listed.stdout == ""


@pytest.mark.parametrize("server", ["redis", "hbase", "cassandra"])
def test_bulk_calls_beside_those_of_the_driver(
    rows: Rows, request: pytest.FixtureRequest, server: str
) -> None:
    own = {"hbase": "hbase_table", "cassandra": "cassandra_keyspace"}.get(server)
    address = request.getfixturevalue(own) if own else request.getfixturevalue("dev_server")(server)
    found = rows(f"{server}-bulk-puts", f"{server}-bulk-gets", "--address", f"{server}={address}")
    assert {row["store"] for row in found} == set(CASES[f"{server}-bulk-puts"].stores)
    assert len(found) == 2 * len(CASES[f"{server}-bulk-puts"].stores)


def test_the_object_store_beside_a_raw_put_and_slatedb(rows: Rows, dev_server: Callable[[str], str]) -> None:
    pytest.importorskip("slatedb", reason="SlateDB is not installed: pip install 'ckpt[bench]'")
    found = rows("object-batch-100", "--address", f"s3={dev_server('s3')}")
    assert [row["store"] for row in found] == ["s3", "raw-put", "slatedb"]
    assert {row["baseline"] for row in found} == {"s3"}
