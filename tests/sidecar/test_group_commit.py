"""Stores that commit at once are made durable together: a handful of syncs or PUTs, however many."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ckpt
from ckpt.sidecar import Sidecar, SidecarClient
from ckpt.testing.harness import numbered


@pytest.mark.parametrize("stores", [8, 200])
@pytest.mark.parametrize("scheme", ["log", "fsspec+file"])
def test_stores_that_commit_at_once_share_their_durability(
    start: Callable[..., Sidecar],
    connect: Callable[..., SidecarClient],
    tmp_path: Path,
    scheme: str,
    stores: int,
) -> None:
    backend: Any = ckpt.open_backend(f"{scheme}://{tmp_path}/store")
    client = connect(start(backend))
    for number in range(stores):
        client.commit(f"store-{number}", 1, {b"k": b"v"})
    engine, appended = backend._engine, threading.Semaphore(0)
    append, sync = engine.append, engine.storage.sync

    def append_and_tell(*args: Any, **kwargs: Any) -> Any:
        ticket = append(*args, **kwargs)
        appended.release()
        return ticket

    def sync_when_all_have_come() -> None:
        # A real disk or store takes a while, in which the others come along; here they are waited for.
        engine.storage.sync = sync
        for _ in range(stores):
            assert appended.acquire(timeout=60)
        sync()

    engine.append, engine.storage.sync = append_and_tell, sync_when_all_have_come
    before = client.stats()
    with ThreadPoolExecutor(stores) as pool:
        list(pool.map(lambda n: client.commit(f"store-{n}", 2, numbered(50)), range(stores)))
    after = client.stats()
    assert after["commits"] - before["commits"] == stores
    assert after["backend_durable_writes"] - before["backend_durable_writes"] <= 2
    assert after["group_size"] > 1
    assert all(len(list(backend.scan(f"store-{n}"))) == 51 for n in range(stores))
