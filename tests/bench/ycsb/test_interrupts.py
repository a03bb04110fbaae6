"""Ctrl-C in every part of a run: there are results, and they say how far it came."""

from __future__ import annotations

import functools
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ckpt_backends.memory import MemoryBackend
from ckpt_bench.interrupts import Interrupts
from ckpt_bench.ycsb import session, upkeep
from ckpt_bench.ycsb.bindings import KeeperBinding
from ckpt_bench.ycsb.measures import Recorder
from ckpt_bench.ycsb.session import Phase
from ckpt_bench.ycsb.settings import Settings

Bench = Callable[..., Any]
Interrupted = Callable[..., tuple[str, str]]


@pytest.fixture
def interrupted() -> Interrupted:
    """(part of a line of progress, arguments) → stdout and stderr of a run that got Ctrl-C then."""

    def run(at: str, *arguments: str) -> tuple[str, str]:
        with subprocess.Popen(
            [sys.executable, "-m", "ckpt", "bench", "run", *arguments, "-s", "-p", "status.interval=1"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        ) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if at in line:
                    break
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        return out, err

    return run


def test_while_a_store_that_keeps_nothing_is_loaded(interrupted: Interrupted) -> None:
    out, err = interrupted("current ops/sec", "memory://", "-P", "workloada", "-p", "recordcount=5000000")
    loaded = int(re.search(r"\[INSERT\], Return=OK, (\d+)", out)[1])  # type: ignore[index]
    assert 0 < loaded < 5_000_000
    assert f"{loaded:,} of 5,000,000 records were loaded, and no operation was carried out" in err


def test_during_the_operations_with_a_page(interrupted: Interrupted, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    _, err = interrupted(
        *("[READ: Count=", "memory://", "-P", "workloada", "-p", "operationcount=100000000"),
        *("-p", "migratecount=2", "-p", f"migrate.to=file://{tmp_path}/copy", "--html", str(page)),
    )
    reached = re.search(r"[\d,]+ of 100,000,000 operations were carried out; not done: 2 MIGRATE", err)
    assert reached is not None
    html = page.read_text()
    assert f"Interrupted: {reached[0]}. Nothing failed until then." in html
    assert "Nothing failed.<" not in html


class Slow(MemoryBackend):
    """Takes writes only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()

    def write_many(self, batches: Mapping[str, Any]) -> None:
        self.may.wait()
        super().write_many(batches)


class Deep(MemoryBackend):
    """In the middle of a write Ctrl-C is pressed; says whether it was closed before the write had ended."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = self.closed = self.disturbed = False

    def put_many(self, namespace: str, items: Mapping[bytes, bytes], *, ttl_s: float | None = None) -> None:
        self.busy = True
        time.sleep(0.2)  # the main thread waits by then
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(0.5)
        self.disturbed |= self.closed
        super().put_many(namespace, items, ttl_s=ttl_s)
        self.busy = False

    def close(self) -> None:
        self.closed = True
        super().close()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C does what it does in a terminal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_an_operation_under_way_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted, and its store is not closed meanwhile."""
    backend = Deep()
    monkeypatch.setattr(session, "open_backend", lambda _: backend)
    results = Phase("memory://", Settings(recordcount=100), lambda _: None, io.StringIO()).load()
    assert (backend.busy, backend.disturbed) == (False, False)
    assert results.interrupted
    assert results.faults == []
    assert results.reached == "1 of 100 records were loaded"
    assert ("INSERT", "Return=OK", 1) in results.rows


@pytest.mark.usefixtures("ctrl_c")
def test_an_operation_that_does_not_end_costs_no_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second Ctrl-C gives up what is under way; the store that it uses is left as it is."""

    class Stuck(MemoryBackend):
        def __init__(self) -> None:
            super().__init__()
            self.reads, self.closed, self.go_on = 0, False, threading.Event()

        def get_many(self, namespace: str, keys: Iterable[bytes], **as_of: Any) -> dict[bytes, bytes]:
            self.reads += 1
            if self.reads > 20:
                for _ in range(2):
                    time.sleep(0.5)
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                self.go_on.wait()
            return super().get_many(namespace, keys, **as_of)

        def close(self) -> None:
            self.closed = True
            super().close()

    backend = Stuck()
    told: list[str] = []
    monkeypatch.setattr(session, "open_used", lambda _: backend)
    settings = Settings(recordcount=10, operationcount=100, updateproportion=0)
    results = Phase("memory://", settings, told.append, io.StringIO()).run()
    assert not backend.closed
    backend.go_on.set()
    assert told[-2:] == [
        "interrupted: ending the operations under way (again: at once)",
        "interrupted: not waiting for the operations under way",
    ]
    found = {(metric, what): value for metric, what, value in results.rows}
    done = found["READ", "Operations"]
    assert 0 < done < 20
    assert results.interrupted
    assert results.faults == []
    assert results.reached == f"{done} of 100 operations were carried out"
    assert "CLEANUP" not in {metric for metric, _ in found}


def test_saves_that_wait_for_room_are_not_made_yet() -> None:
    """Whoever gives up waiting for them finds accounts that balance, and agree with the saves made."""
    backend = Slow()
    settings = Settings(safekeeper=True, keeper_options={"queue_saves": "1"})
    binding = KeeperBinding(backend, settings, Recorder(), lambda *_: None)
    savers = [
        threading.Thread(target=binding.insert, args=(b"user%d" % number, {"field0": b"x"}))
        for number in range(6)
    ]
    for saver in savers:
        saver.start()
    time.sleep(0.3)
    binding.abandon()
    rows = {what: value for _, what, value in binding.rows()}
    assert 0 < rows["Submitted"] < 6
    assert binding.faults() == []
    backend.may.set()
    for saver in savers:
        saver.join()
    binding.close()


@pytest.mark.usefixtures("ctrl_c")
def test_a_migration_under_way_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = MemoryBackend(), Deep()
    source.put_many("usertable", {b"user1": b"state"})
    monkeypatch.setattr(session, "open_used", lambda _: source)
    monkeypatch.setattr(upkeep, "open_to_write", lambda *_, **__: target)
    monkeypatch.setattr(session, "require_possible", lambda *_: None)
    settings = Settings(migratecount=2, migrate_to="file:///elsewhere")
    results = Phase("memory://", settings, lambda _: None, io.StringIO()).run()
    assert (target.busy, target.disturbed, target.closed) == (False, False, True)
    assert results.interrupted
    assert results.faults == []
    assert results.reached == "0 of 0 operations were carried out; not done: 1 MIGRATE"
    assert ("MIGRATE", "Copied(records)", 1) in results.rows


def test_while_saves_become_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Slow()
    told: list[str] = []
    settings = Settings(
        recordcount=100,
        operationcount=100,
        readproportion=0,
        updateproportion=1,
        writeallfields=True,
        safekeeper=True,
        status=True,
        status_interval=1,
    )
    monkeypatch.setattr(session, "open_used", lambda _: backend)
    monkeypatch.setattr(session, "require_records", lambda *_: None)
    phase = Phase("memory://", settings, told.append, io.StringIO())
    monkeypatch.setattr(phase, "_load_first", lambda _: None)

    def press() -> None:
        deadline_s = time.monotonic() + 30
        while not any("not durable yet" in line for line in told) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(0.5)
        backend.may.set()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    finger = threading.Thread(target=press)
    finger.start()
    results = phase.run()
    finger.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)
    found = {(metric, what): value for metric, what, value in results.rows}
    assert results.interrupted
    assert results.faults == []
    assert results.reached == "100 of 100 operations were carried out"
    assert found["SAVE", "Operations"] == found["SAFEKEEPER", "Submitted"] == 100
    assert found["SAFEKEEPER", "Pending"] == 100 - found["SAFEKEEPER", "Coalesced"] > 0
    assert any("sec: 100 operations; 0 current ops/sec; " in line for line in told)


@pytest.mark.usefixtures("ctrl_c")
def test_a_migration_that_does_not_end_costs_no_results(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(MemoryBackend):
        go_on = threading.Event()

        def put_many(
            self, namespace: str, items: Mapping[bytes, bytes], *, ttl_s: float | None = None
        ) -> None:
            for _ in range(2):
                time.sleep(0.5)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            self.go_on.wait()
            super().put_many(namespace, items, ttl_s=ttl_s)

    source, target = Deep(), Stuck()
    MemoryBackend.put_many(source, "usertable", {b"user1": b"state"})
    monkeypatch.setattr(session, "open_used", lambda _: source)
    monkeypatch.setattr(upkeep, "open_to_write", lambda *_, **__: target)
    monkeypatch.setattr(session, "require_possible", lambda *_: None)
    settings = Settings(migratecount=1, migrate_to="file:///elsewhere")
    told: list[str] = []
    results = Phase("memory://", settings, told.append, io.StringIO()).run()
    assert not source.closed
    target.go_on.set()
    assert told[-1] == "interrupted: not waiting for what is under way"
    assert results.interrupted
    assert results.faults == []
    assert results.reached == "0 of 0 operations were carried out; not done: 1 MIGRATE"


def test_one_that_comes_where_nobody_waits_is_kept() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    reached = []
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        reached.append("work")
        with pytest.raises(KeyboardInterrupt), interrupts.heard():
            reached.append("waiting")
        with interrupts.heard():
            reached.append("once")
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert reached == ["work", "once"]
