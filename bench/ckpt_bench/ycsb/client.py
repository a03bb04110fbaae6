"""Threads that carry out a workload: each its share of the operations, at its share of the target rate.

With a target, operation n is due at a fixed time after the start, whether or not those before it were late:
the *intended* latency counts from there, so that a store that stalls cannot hide it by slowing its callers
(coordinated omission).
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ckpt.errors import CkptError
from ckpt_bench.ycsb.bindings import NOT_FOUND, Binding, status_of
from ckpt_bench.ycsb.choosing import Chooser, operations, scan_lengths
from ckpt_bench.ycsb.generators import InsertedKeys, endless
from ckpt_bench.ycsb.measures import Recorder
from ckpt_bench.ycsb.records import Fields, Record, key_name
from ckpt_bench.ycsb.settings import Interval, Settings

_BRIEF_S = 0.02
_clock = time.perf_counter_ns


class Client(threading.Thread):
    """One thread's share of a phase. `done` says how many operations it has carried out."""

    def __init__(
        self,
        number: int,
        quota: int | None,
        *,
        settings: Settings,
        binding: Binding,
        recorder: Recorder,
        stop: threading.Event,
        on_error: Callable[[str, Exception], None],
        random: np.random.Generator,
    ) -> None:
        super().__init__(name=f"ckpt-bench-{number}", daemon=True)
        self.done = 0
        self.ended = threading.Event()
        """Set when all is done; up to Python 3.12 Ctrl-C in `join` makes a thread look as if it were."""
        self.quota = quota
        self.failure: BaseException | None = None
        """What ended this thread, if it was not an error of the store."""
        self._settings = settings
        self._binding = binding
        self._stop_event = stop
        self._on_error = on_error
        self._random = random
        self._fields = Fields(settings, random)
        self._recorder = recorder
        self._arrays: dict[str, array[int]] = {}
        self._wide = settings.measurement_interval is not Interval.OP
        self._intended_ns = 0
        self._tracked = frozenset(settings.latencytrackederrors.split(","))
        self._insert_name = binding.write_names.get("INSERT", "INSERT")
        self._update_name = binding.write_names.get("UPDATE", "UPDATE")

    # -- the loop --------------------------------------------------------------------------------

    def steps(self) -> Iterator[Callable[[], bool]]:
        """What to do, one operation after the other; False from one ends the thread."""
        raise NotImplementedError

    def end(self) -> None:
        """What is left when the loop has ended."""

    def run(self) -> None:
        try:
            self._loop()
            self.end()
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self.failure = error
            self._stop_event.set()
        finally:
            self.ended.set()

    def _loop(self) -> None:
        stopped = self._stop_event.is_set
        steps = self.steps()
        target = self._settings.target / self._settings.threadcount
        tick_ns = 1e9 / target if target else 0.0
        if tick_ns >= 1e6:  # so that slow threads do not all ask at the same moment
            self._sleep_until(_clock() + int(self._random.random() * tick_ns))
        quota = float("inf") if self.quota is None else self.quota
        started_ns = _clock()
        done = 0
        while done < quota and not stopped():
            if not next(steps)():
                break
            done += 1
            self.done = done
            if tick_ns:
                due_ns = started_ns + int(done * tick_ns)
                self._sleep_until(due_ns)
                self._intended_ns = due_ns

    def _sleep_until(self, due_ns: int) -> None:
        while (left_s := (due_ns - _clock()) / 1e9) > 0:
            if left_s > _BRIEF_S:
                if self._stop_event.wait(left_s - _BRIEF_S):
                    return
            else:
                time.sleep(left_s)

    # -- timing ----------------------------------------------------------------------------------

    def _timed(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """What the call returns, timed under that name; None if it failed, and then under another one."""
        started_ns = _clock()
        try:
            result = call(*arguments)
        except (CkptError, OSError) as error:
            self._fail(name, status_of(error), started_ns, _clock())
            self._on_error(name, error)
            return None
        ended_ns = _clock()
        if result is None or result is False:
            self._fail(name, NOT_FOUND, started_ns, ended_ns)
            return None
        self._record(name, started_ns, ended_ns)
        return result

    def _put(self, key: bytes, record: Record) -> bool:
        self._binding.insert(key, record, self._intended_ns)
        return True

    def _record(self, name: str, started_ns: int, ended_ns: int) -> None:
        times = self._arrays.get(name)
        if times is None:
            times = self._arrays[name] = self._recorder.of(name)
        if self._wide:
            times.append(self._intended_ns or started_ns)
        times.append(started_ns)
        times.append(ended_ns)

    def _fail(self, name: str, status: str, started_ns: int, ended_ns: int) -> None:
        each = self._settings.reportlatencyforeacherror or status in self._tracked
        self._recorder.statuses[name, status] += 1
        self._record(f"{name}-{status if each else 'FAILED'}", started_ns, ended_ns)


class Loader(Client):
    """Inserts records; the first that cannot be inserted ends it, unless the settings say otherwise."""

    def __init__(self, *arguments: Any, numbers: Iterator[int], **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._numbers = numbers
        self._batch: dict[bytes, Record] = {}

    def steps(self) -> Iterator[Callable[[], bool]]:
        step = self._insert if self._settings.batchsize == 1 else self._insert_later
        while True:
            yield step

    def end(self) -> None:
        if self._batch:
            self._write_batch()

    def _insert(self) -> bool:
        key = key_name(next(self._numbers), self._settings)
        return self._tried(self._put, key, self._fields.all(key))

    def _insert_later(self) -> bool:
        key = key_name(next(self._numbers), self._settings)
        self._batch[key] = self._fields.all(key)
        return len(self._batch) < self._settings.batchsize or self._write_batch()

    def _write_batch(self) -> bool:
        batch, self._batch = self._batch, {}
        return self._tried(self._put_many, batch)

    def _put_many(self, batch: dict[bytes, Record]) -> bool:
        self._binding.insert_many(batch, self._intended_ns)
        return True

    def _tried(self, call: Callable[..., bool], *arguments: Any) -> bool:
        settings = self._settings
        for attempt in range(settings.insertion_retry_limit + 1):
            if attempt:
                self._stop_event.wait(settings.insertion_retry_interval * self._random.uniform(0.8, 1.2))
            if self._timed(self._insert_name, call, *arguments):
                return True
        return settings.insertion_keep_going


class Worker(Client):
    """Reads, updates, inserts and scans, as often as the proportions say."""

    def __init__(self, *arguments: Any, chooser: Chooser, inserted: InsertedKeys, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._keys = chooser.keys(self._random)
        self._inserted = inserted
        self._lengths = endless(scan_lengths(self._settings), self._random)

    def steps(self) -> Iterator[Callable[[], bool]]:
        does: dict[str, Callable[[], bool]] = {
            "READ": self._read,
            "UPDATE": self._update,
            "INSERT": self._insert,
            "SCAN": self._scan,
            "READ-MODIFY-WRITE": self._read_modify_write,
        }
        return map(does.__getitem__, operations(self._settings, self._random))

    def _field(self) -> str | None:
        return None if self._settings.readallfields else self._fields.any_name()

    def _changes(self, key: bytes) -> Record:
        return self._fields.all(key) if self._settings.writeallfields else self._fields.one(key)

    def _read(self) -> bool:
        key = next(self._keys)
        record = self._timed("READ", self._binding.read, key, self._field())
        if self._settings.dataintegrity:
            self._verify(key, record)
        return True

    def _update(self) -> bool:
        key = next(self._keys)
        self._timed(self._update_name, self._binding.update, key, self._changes(key), self._intended_ns)
        return True

    def _insert(self) -> bool:
        number = self._inserted.take()
        key = key_name(number, self._settings)
        try:
            self._timed(self._insert_name, self._put, key, self._fields.all(key))
        finally:
            self._inserted.acknowledge(number)
        return True

    def _scan(self) -> bool:
        started_ns = _clock()
        records = self._timed(
            "SCAN", self._binding.scan, next(self._keys), next(self._lengths), self._field()
        )
        if records:
            ended_ns = _clock()
            each_ns = (ended_ns - started_ns) // len(records)
            self._record("SCAN-LATENCY-PER-RECORD", ended_ns - each_ns, ended_ns)
        return True

    def _read_modify_write(self) -> bool:
        key = next(self._keys)
        field, changes = self._field(), self._changes(key)
        started_ns = _clock()
        record = self._timed("READ", self._binding.read, key, field)
        changed = self._timed(self._update_name, self._binding.update, key, changes, self._intended_ns)
        if record is not None and changed:
            self._record("READ-MODIFY-WRITE", started_ns, _clock())
        else:
            self._record("READ-MODIFY-WRITE-FAILED", started_ns, _clock())
        if self._settings.dataintegrity:
            self._verify(key, record)
        return True

    def _verify(self, key: bytes, record: Record | None) -> None:
        """Like YCSB: nothing where something should be is ERROR, something else is UNEXPECTED_STATE."""
        started_ns = _clock()
        if not record:
            status = "ERROR"
        else:
            status = "OK" if self._fields.is_integral(key, record) else "UNEXPECTED_STATE"
        if status == "OK":
            self._record("VERIFY", started_ns, _clock())
        else:
            self._fail("VERIFY", status, started_ns, _clock())
