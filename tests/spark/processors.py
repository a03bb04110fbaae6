"""Stateful processors for `transformWithState`: what they put out tells all that their state holds.

A module of its own, so that Python workers and the drivers that are killed can load it by its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

SILENCE_MS = 4 * 60_000
DAY_MS = 86_400_000
AT_ONCE_MS = 1
"""Over before the next batch begins."""
CLOSING_MS = 1_893_996_000_000
"""Later than all rows but the last."""


class Tally(StatefulProcessor):
    """Counts a word in a value, keeps its amounts in a list and its ids in a map, and closes it by a timer.

    Rows need the columns `id` and `amount`.
    """

    OUTPUT = "word string, n long, sum long, ids long, closed boolean"
    LIVES_MS: int | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.number = handle.getValueState("number", "n long", self.LIVES_MS)
        self.amounts = handle.getListState("amounts", "amount long", self.LIVES_MS)
        self.ids = handle.getMapState("ids", "id long", "n long", self.LIVES_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        (n,) = self.number.get() if self.number.exists() else (0,)
        for row in rows:
            n += 1
            self.amounts.appendValue((row.amount,))
            self.ids.updateValue((row.id,), (n,))
        self.number.update((n,))
        self.handle.registerTimer(CLOSING_MS)
        yield self._row(key, closed=False)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        yield self._row(key, closed=True)

    def close(self) -> None:
        pass

    def _row(self, key: Any, *, closed: bool) -> Any:
        (n,) = self.number.get()
        total = sum(amount for (amount,) in self.amounts.get())
        return Row(word=key[0], n=n, sum=total, ids=sum(1 for _ in self.ids.iterator()), closed=closed)


class LastingTally(Tally):
    """The same with a time to live that outlasts the test, beside a value whose time is always over."""

    LIVES_MS = DAY_MS

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.gone = handle.getValueState("gone", "n long", AT_ONCE_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        assert not self.gone.exists()
        yield from super().handleInputRows(key, rows, timerValues)
        self.gone.update((1,))


class Ledger(StatefulProcessor):
    """A value, a list, a map and an event-time timer for each word, by every call that they have.

    Rows need the columns `id`, `amount` and `ms`, the event time in milliseconds.
    """

    OUTPUT = "word string, event string, state string"
    TOTAL = "n long, sum long"
    MORE_OF_TOTAL: tuple[Any, ...] = ()

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", self.TOTAL)
        self.amounts = handle.getListState("amounts", "amount long")
        self.by_id = handle.getMapState("by_id", "id long", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        was = self.total.get() if self.total.exists() else (0, 0)
        n, total = was[:2]
        newest = 0
        for row in rows:
            n, total, newest = n + 1, total + row.amount, max(newest, row.ms)
            self._list(row)
            self._map(row)
        self.total.update((n, total, *self.MORE_OF_TOTAL))
        if n % 13 == 0:
            self.total.clear()
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(newest + SILENCE_MS)
        yield self._row(key, f"rows after {list(was)}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        event = f"silent until {expiredTimerInfo.getExpiryTimeInMs()}"
        self.amounts.clear()
        self.by_id.clear()
        yield self._row(key, event)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803
        self.total.update((0, initialState.amount, *self.MORE_OF_TOTAL))
        self.amounts.put([(initialState.amount,)])

    def close(self) -> None:
        pass

    def _list(self, row: Any) -> None:
        if row.amount % 7 == 0 and self.amounts.exists():
            self.amounts.put([(0,), *((amount,) for (amount,) in self.amounts.get() if amount % 2)])
        elif row.amount % 11 == 0:
            self.amounts.clear()
        self.amounts.appendList([(row.amount,), (-row.amount,)])
        self.amounts.appendValue((row.id,))

    def _map(self, row: Any) -> None:
        (seen,) = self.by_id.getValue((row.id,)) if self.by_id.containsKey((row.id,)) else (0,)
        self.by_id.updateValue((row.id,), (seen + 1,))
        if row.amount % 5 == 0:
            self.by_id.removeKey((row.id,))

    def _row(self, key: Any, event: str) -> Any:
        state = {
            "total": self.total.get() if self.total.exists() else None,
            "amounts": [amount for (amount,) in self.amounts.get()],
            "by_id": sorted((k, v) for (k,), (v,) in self.by_id.iterator()),
            "ids": sorted(k for (k,) in self.by_id.keys()),  # noqa: SIM118
            "numbers": sorted(v for (v,) in self.by_id.values()),
            "timers": sorted(self.handle.listTimers()),
        }
        return Row(word=key[0], event=event, state=json.dumps(state))


class OfFrames(StatefulProcessor):
    """Makes a processor of rows one of pandas' frames, for `transformWithStateInPandas`."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        plain = (Row(**values) for frame in rows for values in frame.to_dict("records"))
        return map(frame_of, super().handleInputRows(key, plain, timerValues))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        return map(frame_of, super().handleExpiredTimer(key, timerValues, expiredTimerInfo))


class TallyOfFrames(OfFrames, Tally):
    """The same on frames."""


class LedgerOfFrames(OfFrames, Ledger):
    """The same on frames."""


class LedgerWithAMark(LedgerOfFrames):
    """A later version of it, whose total has another field."""

    TOTAL = "n long, sum long, mark string"
    MORE_OF_TOTAL = ("marked",)


class Fading(StatefulProcessor):
    """State of each kind that is over with the next batch, and that stays; timers by the clock."""

    OUTPUT = "word string, event string, state string"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.values = {
            ttl: handle.getValueState(f"value_{ttl}", "n long", ttl) for ttl in (AT_ONCE_MS, DAY_MS)
        }
        self.lists = {ttl: handle.getListState(f"list_{ttl}", "n long", ttl) for ttl in (AT_ONCE_MS, DAY_MS)}
        self.maps = {
            ttl: handle.getMapState(f"map_{ttl}", "id long", "n long", ttl) for ttl in (AT_ONCE_MS, DAY_MS)
        }

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        yield self._row(key, "before")
        for row in rows:
            for ttl in (AT_ONCE_MS, DAY_MS):
                self.values[ttl].update((row.amount,))
                self.lists[ttl].appendValue((row.amount,))
                self.maps[ttl].updateValue((row.id % 3,), (row.amount,))
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + AT_ONCE_MS)
        yield self._row(key, "after")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        yield self._row(key, "timer")

    def close(self) -> None:
        pass

    def _row(self, key: Any, event: str) -> Row:
        state = {
            name: [
                self.values[ttl].get() if self.values[ttl].exists() else None,
                [n for (n,) in self.lists[ttl].get()],
                sorted((k, v) for (k,), (v,) in self.maps[ttl].iterator()),
            ]
            for name, ttl in (("gone", AT_ONCE_MS), ("stays", DAY_MS))
        }
        return Row(word=key[0], event=event, state=json.dumps(state))


def frame_of(row: Row) -> pd.DataFrame:
    return pd.DataFrame([row.asDict()])
