"""submitted = coalesced + dropped + failed + durable + pending: always, under load, whatever fails."""

from __future__ import annotations

import contextlib
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ckpt
from ckpt.testing.backends import WrappedBackend

PRODUCERS, SAVES = 8, 400


class Unreliable(WrappedBackend):
    """Fails a share of its writes in every way there is, by a seeded choice."""

    def __init__(self, inner: ckpt.Backend, share: float) -> None:
        super().__init__(inner)
        self._random = random.Random(7)
        self._share = share

    def mend(self) -> None:
        self._share = 0.0

    def around(self, method: str, arguments: Any, call: Any) -> Any:
        if method == "write_many" and self._random.random() < self._share:
            if self._random.random() < 0.3:
                call()
            raise self._random.choice(
                [
                    ckpt.BackendUnavailableError("down"),
                    RuntimeError("bug"),
                    OSError("disk"),
                    ckpt.ConfigError("no"),
                ]
            )
        return call()


@pytest.mark.parametrize("policy", [p.value for p in ckpt.Overflow])
@pytest.mark.parametrize("share", [0.0, 0.4], ids=["healthy", "failing"])
def test_every_save_is_accounted_for_at_every_instant(
    memory: ckpt.Backend, policy: str, share: float
) -> None:
    results: list[ckpt.SaveResult] = []
    keeper = ckpt.SafeKeeper(
        Unreliable(memory, share),
        on_result=results.append,
        overflow=policy,
        queue_saves=20,
        max_batch_records=16,
        retry_s=0.01,
    )
    spaces = [keeper.namespace(name, every_events=2, max_states=10) for name in ("one", "two", "three")]
    stop = threading.Event()
    unbalanced: list[Any] = []
    acks: list[list[Any]] = [[] for _ in range(PRODUCERS)]

    def watch() -> None:
        while not stop.is_set():
            unbalanced.extend(a for a in (space.accounts() for space in spaces) if not a.balanced)

    def produce(number: int) -> None:
        choose = random.Random(number)
        for n in range(SAVES):
            space, key = choose.choice(spaces), f"{choose.randrange(30)}"
            action = choose.random()
            if action < 0.7:
                acks[number].append(space.save(key, {"n": n}))
            elif action < 0.8:
                acks[number].append(space.delete(key))
            elif action < 0.85:
                acks[number].append(space.save(key, object()))
            else:
                space.update(key, {"n": n})

    watcher = threading.Thread(target=watch)
    watcher.start()
    threads = [threading.Thread(target=produce, args=(n,)) for n in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with contextlib.suppress(ckpt.CkptError):  # what it raises is on the futures too
        keeper.close()
    stop.set()
    watcher.join(10)
    assert unbalanced == []
    totals = [space.accounts() for space in spaces]
    assert all(a.balanced and a.pending == 0 for a in totals)
    assert sum(a.submitted for a in totals) == len(results)
    assert sum(a.coalesced + a.durable for a in totals) >= sum(r.error is None for r in results) > 0
    assert all(ack.done() for mine in acks for ack in mine)


@pytest.mark.parametrize("policy", ["block", "drop-oldest", "adapt"])
def test_no_update_is_lost_between_memory_queue_and_a_failing_backend(
    memory: ckpt.Backend, policy: str
) -> None:
    """Few states fit into memory and many writes fail: every key still ends in its newest state."""
    unreliable = Unreliable(memory, 0.3)
    keeper = ckpt.SafeKeeper(unreliable, overflow=policy, queue_saves=8, max_batch_records=4, retry_s=0)
    words = keeper.namespace("words", every_events=3, every_s=0.01, ttl_s=0.02, max_states=5)
    newest: dict[bytes, int] = {}

    def produce(number: int) -> None:
        choose = random.Random(number)
        for n in range(SAVES):
            key = f"{number}-{choose.randrange(6)}"
            seen = words.load(key, default=-1)
            assert seen == newest.get(key.encode(), -1)
            newest[key.encode()] = n
            words.update(key, n)

    with ThreadPoolExecutor(PRODUCERS) as pool:
        list(pool.map(produce, range(PRODUCERS)))
    unreliable.mend()
    with contextlib.suppress(ckpt.CkptError):  # failures that later saves have made good are not among them
        keeper.flush()
    keeper.close()
    codec = ckpt.ValueCodec()
    assert {k: codec.decode(v, namespace="words", key=k) for k, v in memory.scan("words")} == newest


@pytest.mark.parametrize("policy", ["block", "coalesce-only", "adapt"])
def test_each_producer_always_sees_its_own_newest_state(memory: ckpt.Backend, policy: str) -> None:
    """Saves, updates, deletes, evictions, time triggers and an eager recovery, all at once."""
    keeper = ckpt.SafeKeeper(memory, overflow=policy, queue_saves=6, max_batch_records=4)
    words = keeper.namespace("words", every_events=2, every_s=0.01, ttl_s=0.01, max_states=6)
    newest: dict[bytes, int] = {}

    def produce(number: int) -> None:
        choose = random.Random(number)
        for n in range(SAVES):
            key = f"{number}-{choose.randrange(4)}".encode()
            action = choose.randrange(6)
            if action < 2:
                newest[key] = n
                words.save(key, n)
            elif action < 4:
                newest[key] = n
                words.update(key, n)
            elif action == 4:
                newest.pop(key, None)
                words.delete(key)
            elif choose.random() < 0.5:
                words.evict(key)
            else:
                words.recover()
            assert words.load(key, default=None) == newest.get(key), (number, n, action)

    with ThreadPoolExecutor(PRODUCERS) as pool:
        list(pool.map(produce, range(PRODUCERS)))
    keeper.close()
    codec = ckpt.ValueCodec()
    assert {k: codec.decode(v, namespace="words", key=k) for k, v in memory.scan("words")} == newest


def test_the_newest_acknowledged_state_of_every_key_is_what_is_stored(memory: ckpt.Backend) -> None:
    """Each producer owns its keys: what it was last told is durable must be there."""
    keeper = ckpt.SafeKeeper(memory, queue_saves=50, max_batch_records=16)
    words = keeper.namespace("words")

    def produce(number: int) -> None:
        for n in range(SAVES):
            ack = words.save(f"{number}-{n % 7}", n)
            if n % 50 == 49:
                ack.result(30)
                assert words.load(f"{number}-{n % 7}") == n

    threads = [threading.Thread(target=produce, args=(n,)) for n in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    keeper.close()
    codec = ckpt.ValueCodec()
    stored = {k: codec.decode(v, namespace="words", key=k) for k, v in memory.scan("words")}
    newest = {b"%d-%d" % (p, n % 7): n for p in range(PRODUCERS) for n in range(SAVES)}
    assert stored == newest
