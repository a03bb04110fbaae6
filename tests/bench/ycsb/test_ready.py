"""What is missing, or cannot be, is said in one line before anything is done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Bench = Callable[..., Any]


@pytest.mark.parametrize("scheme", ["log", "file"])
def test_a_run_makes_no_store(bench: Bench, tmp_path: Path, scheme: str) -> None:
    done = bench("run", f"{scheme}://{tmp_path}/mistyped", "-P", "workloada", code=2)
    assert "no store at" in done.err
    assert "ckpt bench load" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_only_inserts_or_crashes_may_make_one(bench: Bench, tmp_path: Path) -> None:
    bench(
        *("run", f"log://{tmp_path}/a?durability=os", "-p", "readproportion=0", "-p", "updateproportion=0"),
        *("-p", "insertproportion=1", "-p", "operationcount=5", "-p", "requestdistribution=latest"),
    )
    bench("run", f"log://{tmp_path}/b", "-p", "crashcount=1", "-p", "crash.seconds=0.1")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("distribution", ["uniform", "latest", "exponential"])
@pytest.mark.parametrize("inserts", [0, 0.001])
def test_a_run_that_does_not_know_how_many_records_there_are_is_refused(
    bench: Bench, tmp_path: Path, distribution: str, inserts: float
) -> None:
    """Whichever is the distribution, and not looked for a record for ever."""
    address = f"log://{tmp_path}/store?durability=os"
    bench("load", address, "-p", "recordcount=10")
    done = bench(
        *("run", address, "-p", f"requestdistribution={distribution}", "-p", f"insertproportion={inserts}"),
        *("-p", "operationcount=10"),
        code=2,
    )
    assert done.err == (
        "ckpt: there are no records to choose from; set recordcount to how many were loaded\n"
    )


@pytest.mark.parametrize("distribution", ["uniform", "zipfian", "latest", "hotspot", "sequential"])
def test_a_run_that_only_inserts_chooses_no_records(bench: Bench, tmp_path: Path, distribution: str) -> None:
    address = f"log://{tmp_path}/store?durability=os"
    inserts = ("-p", "readproportion=0", "-p", "updateproportion=0", "-p", "insertproportion=1")
    done = bench(
        *("run", address, *inserts, "-p", f"requestdistribution={distribution}", "-p", "operationcount=5")
    )
    assert done.figures["INSERT"]["Return=OK"] == 5
    bench("run", address, "-P", "workloadc", "-p", "recordcount=5", "-p", "operationcount=20")


@pytest.mark.parametrize("distribution", ["latest", "exponential"])
def test_recent_records_are_read_also_where_another_client_loaded_them(
    bench: Bench, tmp_path: Path, distribution: str
) -> None:
    address = f"log://{tmp_path}/store?durability=os"
    bench("load", address, "-p", "recordcount=10")
    bench(
        *("run", address, "-P", "workloadc", "-p", f"requestdistribution={distribution}"),
        *("-p", "recordcount=10", "-p", "insertcount=0", "-p", "operationcount=20"),
    )


def test_an_empty_table_is_to_be_loaded_first(bench: Bench, tmp_path: Path) -> None:
    address = f"log://{tmp_path}/store?durability=os"
    bench("load", address, "-P", "workloada", "-p", "recordcount=10")
    done = bench("run", address, "-P", "workloada", "-p", "table=other", code=2)
    assert "table 'other' of log://" in done.err
    assert "has no records; fill it first: `ckpt bench load`" in done.err


@pytest.mark.parametrize("loaded", ["true", "false"])
def test_a_table_that_was_loaded_the_other_way_says_so(bench: Bench, tmp_path: Path, loaded: str) -> None:
    address = f"log://{tmp_path}/store?durability=os"
    bench("load", address, "-P", "checkpoint", "-p", "recordcount=10", "-p", f"safekeeper={loaded}")
    other = "false" if loaded == "true" else "true"
    done = bench(
        "run", address, "-P", "checkpoint", "-p", "recordcount=10", "-p", f"safekeeper={other}", code=2
    )
    assert (
        f"if it was loaded with safekeeper={loaded}, run with that too, or load the table again" in done.err
    )


def test_a_load_of_nothing_is_refused(bench: Bench, tmp_path: Path) -> None:
    done = bench("load", f"log://{tmp_path}/store", code=2)
    assert "there are no records to load; say how many, such as -p recordcount=1000" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-p", "timeseries.granularity=0"), "timeseries.granularity is 1 or more"),
        (("-P", "{}"), "is a folder; name a workload file in it"),
        (
            ("-p", "fieldlengthdistribution=histogram", "-p", "fieldlengthhistogram={}/hist.txt"),
            "fieldlengthhistogram: cannot read ",
        ),
    ],
)
def test_wrong_files_and_numbers(
    bench: Bench, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    given = [each.format(tmp_path) for each in arguments]
    assert message in bench("run", "memory://", "-P", "workloada", *given, code=2).err


def test_options_are_checked_before_a_store_that_keeps_nothing_is_loaded(bench: Bench) -> None:
    done = bench("run", "memory://", "-P", "workloada", "-p", "gccount=1", code=2)
    assert "loading" not in done.err
    done = bench("run", "memory://", "-P", "workloadc", "-p", "readproportion=0", code=2)
    assert "loading" not in done.err
    done = bench(
        *("run", "memory://", "-P", "workloadc", "-p", "migratecount=1", "-p", "migrate.to=lgo:///x"), code=2
    )
    assert done.err == "ckpt: no backend for scheme 'lgo'; did you mean 'log'?\n"
