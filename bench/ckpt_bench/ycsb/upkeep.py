"""What a store is asked besides reads and writes, while they go on: recovery, garbage collection, migration.

Each is done as often as its property says, spread evenly over the operations of the run (or over its time) by
a thread of its own, so that the throughput over time shows what it costs the others. What is left when the
operations are done is done then.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from ckpt.cli.stores import require_two_stores
from ckpt.contract.addresses import parse_address
from ckpt.contract.backend import Backend, Compacts, ScansInBlocks
from ckpt.contract.opening import open_to_read, open_to_write
from ckpt.contract.registry import load_factory
from ckpt.errors import CkptError, ConfigError
from ckpt.moving import copying as transfer
from ckpt_bench.ycsb.bindings import counted, status_of
from ckpt_bench.ycsb.measures import Recorder, Row
from ckpt_bench.ycsb.records import key_name
from ckpt_bench.ycsb.settings import Interval, Settings

FIRST_READ = "RECOVER-FIRST-READ"
_LOOK_S = 0.01
_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened during a run: from when to when, in seconds since its start."""

    name: str
    from_s: float
    to_s: float


def require_possible(address: str, backend: Backend, settings: Settings) -> None:
    """Return if the store can do what the settings ask for besides operations; otherwise a ConfigError."""
    shown, persistent = backend.address, backend.capabilities.persistent
    if settings.crashcount and not persistent:
        raise ConfigError(f"crashcount: {shown} keeps nothing that could survive a crash")
    if settings.recovercount and not persistent:
        raise ConfigError(f"recovercount: {shown} keeps nothing that could be recovered")
    if settings.gccount and not isinstance(backend, Compacts):
        raise ConfigError(f"gccount: {shown} has no garbage that it collects on request")
    if settings.migratecount:
        load_factory(parse_address(settings.migrate_to).scheme)
        require_two_stores(address, settings.migrate_to)


class Upkeep(threading.Thread):
    """Carries out what the settings ask for beside the operations of a run."""

    def __init__(
        self,
        address: str,
        backend: Backend,
        settings: Settings,
        *,
        recorder: Recorder,
        stop: threading.Event,
        cancelled: threading.Event,
        reached: Callable[[], float],
        on_error: Callable[[str, Exception], None],
        say: Callable[[str], object],
    ) -> None:
        super().__init__(name="ckpt-bench-upkeep", daemon=True)
        self.events: list[Event] = []
        self.failure: BaseException | None = None
        self._address = address
        self._backend = backend
        self._settings = settings
        self._recorder = recorder
        self._stop_event = stop
        self._cancelled = cancelled
        self._reached = reached
        self._on_error = on_error
        self._say = say
        self._wide = settings.measurement_interval is not Interval.OP
        self._rest, self._ended = threading.Event(), threading.Event()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._begun_ns = time.perf_counter_ns()
        does: dict[str, tuple[int, Callable[[int], None]]] = {
            "RECOVER": (settings.recovercount, self._recover),
            "GC": (settings.gccount, self._collect_garbage),
            "MIGRATE": (settings.migratecount, self._migrate),
        }
        self._due = sorted(
            (
                ((number + 1) / (count + 1), name, do)
                for name, (count, do) in does.items()
                for number in range(count)
            ),
            key=lambda due: due[0],
        )
        self._done = 0

    # -- the thread ------------------------------------------------------------------------------

    def finish(self) -> None:
        """The operations are done: do at once what is left, and return when it is done."""
        self._rest.set()
        while self.ident is not None and not self._ended.wait(_PATIENCE_S):  # as the event of a client
            self._say(f"not done yet: {counted(self.left())}")

    def run(self) -> None:
        self._begun_ns = time.perf_counter_ns()
        try:
            for share, name, do in self._due:
                while self._reached() < share and not self._rest.is_set() and not self._cancelled.is_set():
                    self._rest.wait(_LOOK_S)
                if self._cancelled.is_set():
                    return
                self._carry_out(name, do)
                self._done += 1
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self.failure = error
            self._stop_event.set()
        finally:
            self._ended.set()

    def left(self) -> Counter[str]:
        """How often what was not done."""
        return Counter(name for _, name, _ in self._due[self._done :])

    def _carry_out(self, name: str, do: Callable[[int], None]) -> None:
        started_ns = time.perf_counter_ns()
        try:
            do(started_ns)
        except (CkptError, OSError) as error:
            self._recorder.statuses[name, status_of(error)] += 1
            self._record(f"{name}-FAILED", started_ns)
            self._on_error(name, error)
            return
        self._record(name, started_ns)
        from_s, to_s = ((at - self._begun_ns) / 1e9 for at in (started_ns, time.perf_counter_ns()))
        self.events.append(Event(name, from_s, to_s))
        self._say(f"{name} from {from_s:.2f} s to {to_s:.2f} s")

    def _record(self, name: str, started_ns: int) -> None:
        ended_ns = time.perf_counter_ns()
        starts = (started_ns,) * (2 if self._wide else 1)
        self._recorder.of(name).extend((*starts, ended_ns))

    # -- what is done ----------------------------------------------------------------------------

    def _recover(self, started_ns: int) -> None:
        """Open the store as one that comes after a failure does: the first read, then everything."""
        table = self._settings.table
        with open_to_read(self._address) as reader:
            reader.get_many(table, [key_name(self._settings.insertstart, self._settings)])
            self._record(FIRST_READ, started_ns)
            if isinstance(reader, ScansInBlocks):
                records = sum(len(block) for block in reader.scan_blocks(table))
            else:
                records = sum(1 for _ in reader.scan(table))
        self._counts["RECOVER", "Records"] += records

    def _collect_garbage(self, started_ns: int) -> None:
        del started_ns
        assert isinstance(self._backend, Compacts)
        report = self._backend.compact()
        # others write meanwhile, so a store may be larger after it
        self._counts["GC", "Reclaimed(bytes)"] += max(report.bytes_before - report.bytes_after, 0)
        self._counts["GC", "Written(bytes)"] += report.bytes_written

    def _migrate(self, started_ns: int) -> None:
        del started_ns
        with open_to_write(self._settings.migrate_to, create=True) as target:
            [done] = transfer.copy(self._backend, target, namespaces=[self._settings.table], overwrite=True)
        self._counts["MIGRATE", "Copied(records)"] += done.copied_keys
        self._counts["MIGRATE", "Copied(bytes)"] += done.copied_bytes

    def rows(self) -> list[Row]:
        """What it did, in numbers."""
        return [(name, what, count) for (name, what), count in sorted(self._counts.items())]
