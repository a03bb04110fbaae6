"""Eight producers through the SafeKeeper, durable, beside peers written to directly (design §9, row 4)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import ckpt
from ckpt_bench.stores import open_store

PRODUCERS = 8


def in_threads(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("store", ["log", "rocksdict", "lmdb"])
def test_eight_producers(benchmark, timed, tmp_path, store):
    benchmark.group = "4 eight producers, durable, 1 KB each"
    saves = 2000 if timed else 5
    state = b"x" * 1000
    if store == "log":
        keeper = ckpt.SafeKeeper(f"log://{tmp_path}/log")
        words = keeper.namespace("words")

        def produce(producer: int) -> None:
            for n in range(saves):
                ack = words.save(b"%d-%d" % (producer, n), state)
            ack.result()

        close = keeper.close
    else:
        direct = open_store(store, str(tmp_path / store), durable=True)

        def produce(producer: int) -> None:
            for n in range(saves):
                direct.put_many({b"%d-%d" % (producer, n): state})

        close = direct.close
    benchmark.pedantic(lambda: in_threads(produce), rounds=5 if timed else 1)
    close()
