"""The whole log while every hash collides with many others: keys are told apart by their bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import ckpt
from ckpt.testing import backend_machine
from ckpt.types import Block, cut
from ckpt_backends.engine import columns, index, reading, recent, runs
from ckpt_backends.engine.hashing import hash_pieces
from ckpt_backends.log import LogBackend, LogOptions
from tests.effort import effort

TINY = "segment_bytes=16KiB&recent_records=5"


def one_hash(key: bytes, seed: int) -> int:
    """Seven hashes for all keys there are."""
    del seed
    return sum(key) % 7


def few_hashes(keys: Sequence[bytes], seed: int) -> runs.U64:
    return np.fromiter((one_hash(key, seed) for key in keys), np.uint64, len(keys))


def few_hashes_of_pieces(blob: bytes, lengths: npt.NDArray[np.uint32], seed: int | None = None) -> runs.U64:
    """Keys are hashed with a seed; what is hashed without one is the check of a value."""
    return hash_pieces(blob, lengths) if seed is None else few_hashes(cut(blob, lengths), seed)


@pytest.fixture(scope="module", autouse=True)
def _colliding() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (index, recent):
            patch.setattr(module, "hash_keys", few_hashes)
        for module in (recent, columns):
            patch.setattr(module, "hash_pieces", few_hashes_of_pieces)
        patch.setattr(index, "xxh3_64_intdigest", one_hash)
        patch.setattr(reading, "native", None)  # hashes on its own; test_native.py has collisions for it
        yield


class TestCollidingLogMachine(
    backend_machine(
        lambda directory: ckpt.open_backend(f"log://{directory}/log?{TINY}"), max_examples=effort(10, 300)
    )
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


@pytest.mark.parametrize("rows", [5, 30])
def test_commits_as_columns_hold_every_key_of_a_hash(tmp_path: Path, rows: int) -> None:
    expected: dict[bytes, bytes] = {}
    with ckpt.open_backend(f"log://{tmp_path}/log?{TINY}") as backend:
        assert isinstance(backend, LogBackend)
        for version in range(1, 6):
            items = {b"key-%d" % (version * i): b"%d" % i for i in range(rows)}
            backend.commit_block("store", version, Block.of(items.items()))
            expected |= items
        assert dict(backend.scan("store")) == expected
        assert backend.get_many("store", list(expected)) == expected
