"""`verify`, `repair`, `gc`: bad records are named, nothing is destroyed, space comes back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import ckpt

Run = Callable[..., Result]


def damage(address: str, needle: bytes) -> None:
    """Flip one bit of a stored value, in whichever file it lies."""
    for base, _, names in os.walk(address.partition("://")[2]):
        for name in names:
            path = Path(base, name)
            data = bytearray(path.read_bytes())
            at = data.find(needle)
            if at >= 0:
                data[at] ^= 1
                path.write_bytes(bytes(data))
                return
    raise AssertionError("the value is nowhere in the store")


@pytest.fixture
def damaged(address: str) -> str:
    with ckpt.open_backend(address) as backend:
        for n in range(5):
            backend.put_many("words", {b"key-%d" % n: b"needle-%d-needle" % n})
    damage(address, b"needle-3-needle")
    return address


class TestVerify:
    def test_a_sound_store(self, run: Run, run_json: Callable[..., list[Any]], store: str) -> None:
        assert run("verify", store).stdout == "no bad records\n"
        [summary] = run_json("verify", store)
        assert summary["bad_records"] == 0

    def test_bad_records_are_named(self, run: Run, damaged: str) -> None:
        result = run("verify", damaged, code=1)
        *records, summary = result.stdout.splitlines()
        assert any("key-3" in line for line in records)
        assert "needle" not in result.output
        assert summary.startswith(f"{len(records)} bad record")
        assert all(line.count("'words'") <= 1 and "  " not in line for line in records)

    def test_json(self, run_json: Callable[..., list[Any]], damaged: str) -> None:
        *records, summary = run_json("verify", damaged, code=1)
        assert summary["bad_records"] == len(records) > 0
        assert any(record["key"] == "key-3" and record["namespace"] == "words" for record in records)

    def test_reading_the_bad_record_fails_with_one_line(self, run: Run, damaged: str) -> None:
        assert len(run("cat", damaged, "words", "key-3", code=1).stderr.splitlines()) == 1


class TestRepair:
    def test_what_is_bad_is_set_aside_and_the_rest_stays(self, run: Run, damaged: str) -> None:
        run("repair", damaged)
        run("verify", damaged)
        with ckpt.open_backend(damaged) as backend:
            kept = dict(backend.scan("words"))
        assert kept == {b"key-%d" % n: b"needle-%d-needle" % n for n in (0, 1, 2, 4)}

    def test_json_says_where_it_lies(self, run_json: Callable[..., list[Any]], damaged: str) -> None:
        [report] = run_json("repair", damaged)
        assert len(report["quarantined"]) >= 1
        assert os.path.exists(report["quarantine"])

    def test_a_store_that_cannot_repair_says_so(self, run: Run) -> None:
        assert "cannot repair itself" in run("repair", "memory://", code=2).stderr


class TestGc:
    def test_space_comes_back_and_nothing_else_changes(
        self, run: Run, run_json: Callable[..., list[Any]], store: str
    ) -> None:
        run("gc", store)
        [report] = run_json("gc", store)
        assert set(report) >= {"bytes_before", "bytes_after"}
        assert run("cat", store, "words", "be").stdout == '{"count": 2}\n'

    def test_a_store_without_garbage(self, run: Run) -> None:
        assert "nothing to do" in run("gc", "memory://").stdout
