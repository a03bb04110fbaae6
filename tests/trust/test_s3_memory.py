"""Scanning and recovering from S3 take as much memory for few keys as for many, but for the index."""

from __future__ import annotations

import gc
import secrets
import tracemalloc
from collections.abc import Callable

import pytest

import ckpt

VALUE_BYTES = 2000
INDEX_BYTES = 150
"""For each key: its index entry, and what sorting and merging entries takes for a moment."""
SIZES = (5_000, 20_000)


@pytest.fixture(scope="module")
def stores(dev_server: Callable[[str], str]) -> dict[int, str]:
    """Addresses of two stores, by their number of keys."""
    base, _, query = dev_server("s3").partition("?")
    made = {}
    for keys in SIZES:
        made[keys] = f"{base}/memory-{secrets.token_hex(6)}?{query}&segment_bytes=1MiB&cache_bytes=2MiB"
        with ckpt.open_backend(made[keys]) as backend:
            for start in range(0, keys, 500):
                puts = {b"key-%06d" % n: secrets.token_bytes(VALUE_BYTES) for n in range(start, start + 500)}
                backend.put_many("words", puts)
                backend.commit("store", start + 1, puts)
    return made


def peak_bytes(work: Callable[[], int], expected: int) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        assert work() == expected
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("namespace", ["words", "store"])
def test_a_scan(stores: dict[int, str], namespace: str) -> None:
    def scan(address: str) -> int:
        with ckpt.open_backend(f"{address}&mode=read") as reader:
            return sum(1 for _ in reader.scan(namespace))

    few, many = (peak_bytes(lambda keys=keys: scan(stores[keys]), keys) for keys in SIZES)
    assert many - few < INDEX_BYTES * (SIZES[1] - SIZES[0])


def test_a_recovery_key_by_key(stores: dict[int, str]) -> None:
    def read(address: str, keys: int) -> int:
        with ckpt.open_backend(f"{address}&mode=read&stale_s=60") as reader:
            found = 0
            for start in range(0, keys, 250):
                found += len(reader.get_many("words", [b"key-%06d" % n for n in range(start, start + 250)]))
            return found

    few, many = (peak_bytes(lambda keys=keys: read(stores[keys], keys), keys) for keys in SIZES)
    assert many - few < INDEX_BYTES * (SIZES[1] - SIZES[0])
