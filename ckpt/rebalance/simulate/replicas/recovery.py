"""What follows a failure: the three steps of ftlb-2019 §3.2 for single keys, or the reload of a whole task.

**Step 1, triggered.** Once the failure is known, every instance that has a backup of a lost active key is
told to recover it.

**Step 2, confirmed.** What the failed instance had done cannot be asked of it. It is read off the operator
downstream, which has the results: for each key the version, the number of tuples whose results it received.

**Step 3, recovered.** The backup with the most tuples becomes active. If it is *behind* what downstream has,
it goes on with the tuples that wait at it, and its results count from the first that downstream does not
have. If it is *ahead*, its state replaces the one downstream. Then it goes on like any active instance.

Keys without backups come back from the store, on the instances that would have their first backup: their last
checkpoint is loaded there, and the tuples since then, which upstream still has, are applied again.
`reload_task` treats all keys of the failed instance like that, on one new instance: the paper's TaskB.

Every figure follows from the copies. A result reaches downstream once: `lost` and `repeated` count what a
recovery gets wrong if replicas applied tuples in unlike orders, because the sorting buffer was too small.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.loads import F64, I32, U64
from ckpt.rebalance.routing import preferred
from ckpt.rebalance.simulate.replicas.copies import Bool, Copies
from ckpt.rebalance.simulate.replicas.sorting import I64
from ckpt.rebalance.table import NO_BACKUP

VERSION_BYTES = 16
"""A key and its version, as downstream tells it."""


class Direction(enum.StrEnum):
    """Where the state that a key goes on with comes from."""

    BEHIND = "behind"
    """From a backup that had to catch up with what downstream had."""
    LEVEL = "level"
    """From a backup that had applied exactly that."""
    AHEAD = "ahead"
    """From a backup that had applied more; its state replaced the one downstream."""
    STORE = "store"
    """From a checkpoint and the tuples since."""


@dataclass(frozen=True, eq=False)
class KeysRecovered:
    """One entry per key that was active on the failed instance; times count from the failure."""

    keys: U64
    replicas: I64
    """How many backups each key has."""
    direction: npt.NDArray[np.str_]
    """Values of `Direction`."""
    target: I32
    """Where each key is active from now on; the number of instances stands for a new one."""
    took_s: F64
    """Until its results come again, all that were due."""
    loaded_bytes: F64
    """What was read from the store or sent downstream for each key."""
    delivered_s: F64
    """Per tuple of the stream: when its result reached downstream."""
    affected: Bool
    """Per tuple of the stream: whether its key is one of these."""
    lost: int
    """Tuples whose result never does."""
    repeated: int
    """Tuples that a result contains twice."""

    def mean_s(self, replicas: int | None = None) -> float:
        """How long a key took in the mean, of those with so many replicas; nan if there are none."""
        some = np.ones(len(self.keys), np.bool_) if replicas is None else self.replicas == replicas
        return float(self.took_s[some].mean()) if some.any() else float("nan")

    def throughput(self, from_s: float, until_s: float) -> float:
        """Results per second for these keys that reached downstream between two times of the stream."""
        if not until_s > from_s:
            raise ConfigError(f"from {from_s} to {until_s} is no time")
        came = (self.delivered_s >= from_s) & (self.delivered_s < until_s)
        return float(np.count_nonzero(came & self.affected)) / (until_s - from_s)


def recover(copies: Copies) -> KeysRecovered:
    """Key by key: from backups where there are any, else from the store."""
    return _Recovery(copies).recovered(whole_task=False)


def reload_task(copies: Copies) -> KeysRecovered:
    """The whole failed instance on a new one, from the store, whatever backups there are (TaskB)."""
    return _Recovery(copies).recovered(whole_task=True)


class _Recovery:
    def __init__(self, copies: Copies) -> None:
        if copies.failure is None:
            raise ConfigError("nothing failed: give `replicate` a failure")
        self._copies, self._failure, self._settings = copies, copies.failure, copies.settings
        self._keys, self._owner = np.unique(copies.tuples.keys, return_inverse=True)
        places = copies.router.route(self._keys)
        self._active, self._backups = places.active, places.backups
        self._of_key = self._owner[copies.number]
        # Results of instances that live arrive as they are made; those of the failed one until it died.
        self._delivered_s = np.full(len(copies.tuples), np.inf)
        mine = np.flatnonzero(copies.active)
        self._delivered_s[copies.number[mine]] = copies.done_s[mine] + self._settings.network.latency_s
        latency_s = copies.latency_s
        self._usual_s = float(np.median(latency_s[np.isfinite(latency_s)])) - self._settings.tuple_s
        """From a tuple's timestamp until an instance begins to apply it."""
        self._lost = self._repeated = 0
        self._sent_bytes: dict[int, float] = {}
        """By each instance downstream, one key after the other."""

    def recovered(self, *, whole_task: bool) -> KeysRecovered:
        """All keys that were active on the failed instance."""
        at_s, settings = self._failure.at_s, self._settings
        lost = np.flatnonzero(self._active == self._failure.instance)
        held = np.zeros(len(lost), np.int64) if whole_task else self._held(lost)
        triggered_s = at_s + settings.detect_s + settings.network.latency_s
        confirmed_s = triggered_s + 2 * settings.network.latency_s
        confirmed_s += VERSION_BYTES * len(lost) / settings.network.bandwidth_bytes_s
        instances = self._copies.router.table.instances
        direction = np.full(len(lost), Direction.STORE.value, dtype="<U6")
        target = np.full(len(lost), instances, np.int32)
        ends_s, loaded = np.full(len(lost), at_s), np.zeros(len(lost))
        for at in np.flatnonzero(held).tolist():
            direction[at], target[at], ends_s[at], loaded[at] = self._take_over(int(lost[at]), confirmed_s)
        alone = np.flatnonzero(held == 0)
        if not whole_task and instances > 1:
            target[alone] = self._spread(lost[alone])
        for place in np.unique(target[alone]).tolist():
            mine = alone[target[alone] == place]
            ends_s[mine], loaded[mine] = self._from_store(lost[mine], place, triggered_s)
        return KeysRecovered(
            self._keys[lost],
            self._held(lost),
            direction,
            target,
            ends_s - at_s,
            loaded,
            self._delivered_s,
            np.isin(self._owner, lost),
            self._lost,
            self._repeated,
        )

    def _held(self, keys: I64) -> I64:
        backups = self._backups[keys]
        return np.asarray(np.count_nonzero(backups != NO_BACKUP, axis=1), np.int64)

    def _spread(self, keys: I64) -> I32:
        """The instances that would have the first backup, or the next in each key's order."""
        order = preferred(self._keys[keys], self._copies.router.table.instances, 1)[:, 0]
        home = self._copies.router.table.place(self._keys[keys])
        other = (home + 1) % self._copies.router.table.instances
        return np.asarray(np.where(order == self._failure.instance, other, order), np.int32)

    def _copies_of(self, key: int, instance: int) -> I64:
        copies = self._copies
        mine = (self._of_key == key) & (copies.instance == instance) & np.isfinite(copies.done_s)
        return np.flatnonzero(mine)

    def _take_over(self, key: int, confirmed_s: float) -> tuple[str, int, float, float]:
        copies, settings = self._copies, self._settings
        had = copies.number[self._copies_of(key, self._failure.instance)]
        by_backup = {
            int(place): self._copies_of(key, int(place)) for place in self._backups[key] if place != NO_BACKUP
        }

        def applied(place: int) -> int:
            return int(np.count_nonzero(copies.done_s[by_backup[place]] <= confirmed_s))

        place = max(by_backup, key=lambda one: (applied(one), -one))
        done_s, numbers = copies.done_s[by_backup[place]], copies.number[by_backup[place]]
        version, reached = len(had), applied(place)
        state = 0.0
        if reached > version:  # AHEAD: the backup's state replaces the one downstream
            direction, contained = Direction.AHEAD, numbers[:reached]
            state = float(self._state_bytes(numbers[:reached], self._failure.at_s))
            sent = self._sent_bytes[place] = self._sent_bytes.get(place, 0.0) + state
            ready_s = confirmed_s + settings.network.latency_s + sent / settings.network.bandwidth_bytes_s
        else:
            direction = Direction.LEVEL if reached == version else Direction.BEHIND
            contained = had
            ready_s = confirmed_s
            if reached < version:  # the last tuple that downstream has is applied again, without a result
                ready_s = float(done_s[min(version, len(done_s)) - 1])
        follows = numbers[len(contained) :]
        self._delivered_s[contained] = np.minimum(self._delivered_s[contained], ready_s)
        delivered_s = done_s[len(contained) :] + settings.network.latency_s
        self._delivered_s[follows] = np.maximum(delivered_s, ready_s)
        all_of_it = np.concatenate([contained, follows])
        every = np.flatnonzero(self._owner == key)
        self._lost += len(np.setdiff1d(every, all_of_it))
        self._repeated += len(all_of_it) - len(np.unique(all_of_it))
        return direction.value, place, ready_s, state

    def _from_store(self, keys: I64, place: int, triggered_s: float) -> tuple[F64, F64]:
        """Keys that one instance loads, one after the other, and brings up to date beside its own work."""
        copies, settings, at_s = self._copies, self._settings, self._failure.at_s
        busy = copies.busy
        speed = max(1 - float(busy[place]), 0.05) if place < len(busy) else 1.0
        tuple_s = settings.tuple_s / speed
        stored_s = at_s - at_s % settings.checkpoint_s
        mine = np.flatnonzero(np.isin(self._of_key, keys) & (copies.instance == self._failure.instance))
        done_s = np.full(len(copies.tuples), np.inf)  # where they were active
        done_s[copies.number[mine]] = copies.done_s[mine]
        numbers = np.flatnonzero(np.isin(self._owner, keys))
        rank = np.searchsorted(keys, self._owner[numbers])
        in_store = done_s[numbers] <= stored_s
        held = in_store & (copies.tuples.time_s[numbers] > at_s - settings.window_s)
        loaded = np.bincount(rank[held], minlength=len(keys)) * float(settings.tuple_bytes)
        read_s = float(loaded.sum()) / settings.network.bandwidth_bytes_s
        free_s = triggered_s + settings.network.latency_s + read_s
        ends_s = np.full(len(keys), free_s)
        for number, key in zip(numbers[~in_store].tolist(), rank[~in_store].tolist(), strict=True):
            sent_s = float(copies.tuples.time_s[number])
            # What upstream sends again is in order; what it sends for the first time has to be sorted.
            came_s = sent_s + (settings.network.latency_s if sent_s <= triggered_s else self._usual_s)
            free_s = max(free_s, came_s) + tuple_s
            if sent_s <= triggered_s:
                ends_s[key] = free_s
            if not np.isfinite(done_s[number]):  # downstream has the results of the others
                self._delivered_s[number] = free_s + settings.network.latency_s
        return ends_s, np.asarray(loaded, np.float64)

    def _state_bytes(self, numbers: I64, at_s: float) -> int:
        inside = self._copies.tuples.time_s[numbers] > at_s - self._settings.window_s
        return int(np.count_nonzero(inside)) * self._settings.tuple_bytes
