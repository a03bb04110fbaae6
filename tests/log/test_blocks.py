"""`scan_blocks` is `scan` in columns: the same rows, the same errors, the same calm under changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ckpt
from ckpt.contract.backend import Counts, ScansInBlocks
from ckpt.errors import BackendUnavailableError, CorruptRecordError, UnsupportedError, VersionNotFoundError
from ckpt.testing.harness import numbered
from ckpt_backends.log import LogBackend
from tests.effort import effort

KEYS = st.binary(max_size=3)
COMMITS = st.lists(
    st.tuples(st.dictionaries(KEYS, st.binary(max_size=40), max_size=8), st.sets(KEYS, max_size=4)),
    max_size=8,
)
SMALL = "segment_bytes=16KiB&recent_records=16"


def rows(backend: ckpt.Backend, namespace: str, **read: object) -> list[tuple[bytes, bytes]]:
    assert isinstance(backend, ScansInBlocks)
    return [row for block in backend.scan_blocks(namespace, **read) for row in block.rows()]


@given(commits=COMMITS, block_bytes=st.integers(1, 200), keep_from=st.integers(0, 8))
@settings(deadline=None, max_examples=effort(15, 300))
def test_blocks_hold_the_rows_of_a_scan_at_every_version(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[tuple[dict[bytes, bytes], set[bytes]]],
    block_bytes: int,
    keep_from: int,
) -> None:
    folder = tmp_path_factory.mktemp("log")
    with ckpt.open_backend(f"log://{folder}?{SMALL}") as backend:
        for version, (puts, deletes) in enumerate(commits, 1):
            backend.commit("store", version, puts, deletes - puts.keys())
            backend.commit("other", version, puts)
        if 0 < keep_from <= len(commits):
            backend.truncate("store", keep_from)
        for version in range(keep_from if keep_from <= len(commits) else 0, len(commits) + 1):
            expected = list(backend.scan("store", version=version))
            assert rows(backend, "store", version=version, block_bytes=block_bytes) == expected
    with ckpt.open_backend(f"log://{folder}?mode=read") as reader:
        assert rows(reader, "store") == list(reader.scan("store"))


@given(
    puts=st.dictionaries(st.binary(max_size=30), st.binary(max_size=300), max_size=60),
    block_bytes=st.integers(1, 2000),
)
@settings(deadline=None, max_examples=effort(15, 300))
def test_a_block_is_as_long_as_was_asked_or_one_row(
    tmp_path_factory: pytest.TempPathFactory, puts: dict[bytes, bytes], block_bytes: int
) -> None:
    with LogBackend(str(tmp_path_factory.mktemp("log"))) as backend:
        backend.commit("store", 1, puts)
        for block in backend.scan_blocks("store", block_bytes=block_bytes):
            assert len(block) == 1 or block.total_bytes + 8 * len(block) <= block_bytes


def test_plain_namespaces_can_be_read_in_blocks_too(tmp_path: Path) -> None:
    now_s = 1000.0
    with ckpt.open_backend(f"log://{tmp_path}", clock=lambda: now_s) as backend:
        backend.put_many("words", numbered(100))
        backend.delete_many("words", [b"key-000007"])
        backend.put_many("words", {b"short": b"life"}, ttl_s=5)
        assert dict(rows(backend, "words")) == dict(backend.scan("words"))
        assert (b"short", b"life") in rows(backend, "words")
        now_s = 1010.0
        assert dict(rows(backend, "words")) == dict(backend.scan("words"))
        assert rows(backend, "nothing") == []
        with pytest.raises(UnsupportedError, match="plain"):
            backend.scan_blocks("words", version=1)


def test_arguments_are_checked_when_it_is_called(tmp_path: Path) -> None:
    with LogBackend(str(tmp_path)) as backend:
        backend.commit("store", 1, numbered(10))
        with pytest.raises(VersionNotFoundError):
            backend.scan_blocks("store", version=2)
        blocks = backend.scan_blocks("store")
    with pytest.raises(BackendUnavailableError, match="closed"):
        next(blocks)
    with pytest.raises(BackendUnavailableError, match="closed"):
        backend.scan_blocks("store")


def test_a_scan_that_has_begun_is_not_disturbed(tmp_path: Path) -> None:
    with ckpt.open_backend(f"log://{tmp_path}?{SMALL}") as backend:
        backend.commit("store", 1, numbered(400, b"old"))
        expected = list(backend.scan("store"))
        blocks = backend.scan_blocks("store", block_bytes=500)
        seen = list(next(blocks).rows())
        backend.commit("store", 2, numbered(400, b"new"))
        backend.truncate("store", 2)
        backend.compact()
        backend.drop("store")
        seen += [row for block in blocks for row in block.rows()]
        assert seen == expected


@pytest.mark.parametrize("read", ["scan", "scan_blocks"])
def test_writers_do_not_wait_for_a_scan_that_looks_for_its_rows(tmp_path: Path, read: str) -> None:
    with LogBackend(str(tmp_path)) as backend, ThreadPoolExecutor(1) as pool:
        backend.commit("store", 1, numbered(100))
        index = backend._engine.index
        merge = index.layered_locations

        def merge_while_another_commits(*args: Any) -> Any:
            index.layered_locations = merge
            pool.submit(backend.commit, "other", 1, numbered(5)).result(20)
            return merge(*args)

        index.layered_locations = merge_while_another_commits
        seen = getattr(backend, read)("store")
        assert sum(len(block.key_lengths) if read == "scan_blocks" else 1 for block in seen) == 100
        assert len(list(backend.scan("other"))) == 5


@pytest.mark.parametrize("whole", [True, False])
def test_a_flipped_bit_in_a_value_is_reported_with_its_namespace(tmp_path: Path, whole: bool) -> None:
    with LogBackend(str(tmp_path)) as backend:
        backend.commit("store", 1, {b"a": b"first", b"b": b"precious", b"c": b"last"})
        if not whole:
            backend.commit("store", 2, {}, [b"a"])
        backend.commit("sound", 1, {b"k": b"v"})
    for segment in (tmp_path / "segments").glob("*.seg"):
        segment.write_bytes(segment.read_bytes().replace(b"precious", b"preciouS"))
    with LogBackend(str(tmp_path)) as backend:
        with pytest.raises(CorruptRecordError, match=r"'store'.*ckpt verify") as caught:
            rows(backend, "store")
        assert "precious" not in str(caught.value)
        assert rows(backend, "sound") == [(b"k", b"v")]


def test_writes_that_become_durable_are_counted(tmp_path: Path) -> None:
    with LogBackend(str(tmp_path)) as backend:
        assert isinstance(backend, Counts)
        before = backend.counts()["durable_writes"]
        for version in (1, 2, 3):
            backend.commit("store", version, {b"k": b"v"})
        assert backend.counts()["durable_writes"] == before + 3
