"""Writers killed with `kill -9` under load: no acknowledged write is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ckpt
from ckpt.testing.crash_ledger import (
    Acknowledged,
    CommitReport,
    CrashLedger,
    Drop,
    Save,
    Truncate,
    Write,
    value_of,
)
from tests.effort import effort


def kill(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ckpt.testing.crash", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_log_survives_kills(record_property: Callable[[str, object], None]) -> None:
    rounds = effort(10, 1000)
    ran = kill("--rounds", str(rounds))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{rounds} kills" in ran.stdout
    assert "none lost" in ran.stdout
    record_property("rounds", rounds)
    record_property("lost", 0)


def test_a_file_store_survives_kills(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    rounds = effort(3, 100)
    ran = kill("--rounds", str(rounds), "--address", f"file://{tmp_path}/store")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    record_property("rounds", rounds)
    record_property("lost", 0)


def test_a_store_that_exists_is_refused(tmp_path: Path) -> None:
    ran = kill("--rounds", "1", "--address", f"log://{tmp_path}")
    assert ran.returncode == 2
    assert "exists already" in ran.stdout


def test_a_loss_is_shown_with_the_seed_and_the_store(tmp_path: Path) -> None:
    # A memory store loses everything with its process.
    ran = kill("--rounds", "5", "--address", "memory://lost", "--seed", "77", "--seconds-per-round", "1")
    assert ran.returncode == 1
    assert "LOSS in round" in ran.stdout
    assert "seed 77" in ran.stdout
    assert "memory://lost" in ran.stdout


class TestLedger:
    """What the ledger accepts and what it calls a loss; the memory backend holds whatever a test wants."""

    @pytest.fixture
    def backend(self, tmp_path: Path) -> ckpt.Backend:
        return ckpt.open_backend(f"memory://{tmp_path}")

    def test_an_acknowledged_write_must_be_there(self, backend: ckpt.Backend) -> None:
        ledger = CrashLedger()
        ledger.report(Write(1, "words", [b"a", b"b"], []))
        ledger.report(Acknowledged(1))
        backend.put_many("words", {b"a": value_of(1, b"a")})
        assert any("b'b' is missing" in problem for problem in ledger.compare(backend))

    def test_a_write_under_way_may_be_there_or_not(self, backend: ckpt.Backend) -> None:
        for is_there in (False, True):
            ledger = CrashLedger()
            ledger.report(Write(1, "words", [b"a"], []))
            if is_there:
                backend.put_many("words", {b"a": value_of(1, b"a")})
            assert list(ledger.compare(backend)) == []
            assert ledger.survivors == is_there

    def test_half_of_a_batch_is_a_loss(self, backend: ckpt.Backend) -> None:
        ledger = CrashLedger()
        ledger.report(Write(1, "words", [b"a", b"b"], []))
        backend.put_many("words", {b"a": value_of(1, b"a")})
        assert list(ledger.compare(backend))

    def test_what_was_never_written_is_a_loss(self, backend: ckpt.Backend) -> None:
        backend.put_many("words", {b"a": b"1"})
        assert list(CrashLedger().compare(backend)) == ["namespace 'words' was never written"]

    def test_commits_must_be_whole_and_in_their_chain(self, backend: ckpt.Backend) -> None:
        ledger = CrashLedger()
        for message in (
            CommitReport(1, "store", 1, None, [b"a"], []),
            Acknowledged(1),
            CommitReport(2, "store", 2, None, [b"b"], [b"a"]),
            Acknowledged(2),
            Truncate(3, "store", 2),
        ):
            ledger.report(message)
        backend.commit("store", 1, {b"a": value_of(1, b"a")}, commit_id="commit-1")
        backend.commit("store", 2, {b"b": value_of(2, b"b")}, commit_id="commit-2")
        assert any("b'a' was never written" in problem for problem in ledger.compare(backend))

    def test_a_drop_under_way_may_have_happened(self, backend: ckpt.Backend) -> None:
        ledger = CrashLedger()
        for message in (Write(1, "words", [b"a"], []), Acknowledged(1), Drop(2, "words")):
            ledger.report(message)
        assert list(ledger.compare(backend)) == []

    def test_a_save_may_be_newer_than_acknowledged_but_not_older(self, backend: ckpt.Backend) -> None:
        ledger = CrashLedger()
        with ckpt.SafeKeeper(backend) as keeper:
            for number in (1, 2, 3):
                ledger.report(Save(number, "saves", b"k", False))
            ledger.report(Acknowledged(2))
            keeper.namespace("saves").save("k", {"number": 1, "text": "x" * (7919 % 700)}).result()
            assert any("holds save 1" in problem for problem in ledger.compare(backend))
