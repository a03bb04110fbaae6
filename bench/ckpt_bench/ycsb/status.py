"""How far a phase is, on stderr: YCSB's lines on request, a bar on a terminal, otherwise nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import datetime
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ckpt_bench.ycsb.measures import Measurements
from ckpt_bench.ycsb.settings import Settings


class Status(Protocol):
    """Told now and then how many operations are done."""

    every_s: float
    """How often it wants to be told."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, done: int, total: int | None, note: str = "") -> None:
        """Show that so many of the operations are done; their total may not be known. The note says what
        goes on when they are."""


class Lines:
    """One line every `status.interval` seconds, in the shape of YCSB's."""

    def __init__(
        self, measurements: Measurements, settings: Settings, write: Callable[[str], object]
    ) -> None:
        self.every_s = float(settings.status_interval)
        self._measurements = measurements
        self._label = settings.label
        self._limit_s = float(settings.maxexecutiontime) or math.inf
        self._write = write
        self._started_s = self._last_s = time.monotonic()
        self._last = 0

    def __enter__(self) -> Self:
        self._started_s = self._last_s = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, done: int, total: int | None, note: str = "") -> None:
        now_s = time.monotonic()
        took_s, since_s = now_s - self._started_s, now_s - self._last_s
        rate = (done - self._last) / since_s if since_s > 0 else 0.0
        self._last, self._last_s = done, now_s
        at = datetime.now().astimezone()
        line = f"{self._label}{at:%Y-%m-%d %H:%M:%S}:{at.microsecond // 1000:03d} {int(took_s)} sec: "
        line += f"{done} operations; "
        if done:
            line += f"{rate:.2f}".rstrip("0").rstrip(".") + " current ops/sec; "
        left_s = self._limit_s - took_s
        if total is not None:
            left_s = min(left_s, (total - done) * took_s / done if done else math.inf)
        if not note and 0 < left_s < math.inf:
            line += f"est completion in {remaining(math.ceil(left_s))} "
        self._write(line + f"{note}; " * bool(note) + self._measurements.summaries())


class Bar:
    """A bar on a terminal; nothing if stderr goes elsewhere."""

    every_s = 0.5

    def __init__(self, what: str, total: int | None, measurements: Measurements) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
        self._what = what
        self._task = self._bar.add_task(what, total=total)
        self._measurements = measurements

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, done: int, total: int | None, note: str = "") -> None:
        self._measurements.collect()
        described = f"{self._what}: {note}" if note else self._what
        self._bar.update(self._task, completed=done, total=total, description=described)


def remaining(seconds: int) -> str:
    """A time to wait, in the units that matter.

    Examples
    --------
    >>> remaining(5), remaining(61), remaining(7260), remaining(90000)
    ('5 seconds', '1 minute', '2 hours 1 minute', '1 day 1 hour')
    """
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    units = [("day", days), ("hour", hours), ("minute", 0 if days else minutes)]
    parts = [f"{count} {unit}{'' if count == 1 else 's'}" for unit, count in units if count]
    return " ".join(parts) if parts else f"{rest} second{'' if rest == 1 else 's'}"
