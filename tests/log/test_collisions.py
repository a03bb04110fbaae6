"""The whole log while every hash collides with many others: keys are told apart by their bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import ckpt
from ckpt.testing import backend_machine
from ckpt_backends.log import LogBackend, LogOptions, index, recent, runs

TINY = "segment_bytes=16KiB&recent_records=5"


def one_hash(key: bytes, seed: int) -> int:
    """Seven hashes for all keys there are."""
    del seed
    return sum(key) % 7


def few_hashes(keys: Sequence[bytes], seed: int) -> runs.U64:
    return np.fromiter((one_hash(key, seed) for key in keys), np.uint64, len(keys))


@pytest.fixture(scope="module", autouse=True)
def _colliding() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (index, recent):
            patch.setattr(module, "hash_keys", few_hashes)
        patch.setattr(index, "xxh3_64_intdigest", one_hash)
        yield


class TestCollidingLogMachine(
    backend_machine(lambda directory: ckpt.open_backend(f"log://{directory}/log?{TINY}"), max_examples=40)
):
    pass


def test_keys_that_share_a_hash_are_different_keys(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    options = LogOptions(segment_bytes=16 << 10, recent_records=100)
    expected: dict[bytes, bytes] = {}
    for life in range(3):
        with LogBackend(path, options) as backend:
            for i in range(120):
                items = {b"key-%d" % (i * j % 150): b"%d-%d-%d" % (life, i, j) * 9 for j in range(1, 5)}
                gone = [key for i_gone in range(3) if (key := b"key-%d" % (i + i_gone)) not in items]
                backend.put_many("words", items)
                backend.delete_many("words", gone)
                expected.update(items)
                for key in gone:
                    expected.pop(key, None)
            assert dict(backend.scan("words")) == expected
            backend.compact()
            for key in [b"key-%d" % i for i in range(150)]:
                assert backend.get_many("words", [key]).get(key) == expected.get(key)
            assert list(backend.verify()) == []
