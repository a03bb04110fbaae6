"""`commit_block` is `commit` of the same rows: the same bytes, the same answers, the same refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ckpt
from ckpt.contract.backend import CommitsInBlocks
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt.types import Block
from ckpt_backends.engine.columns import Columns
from ckpt_backends.engine.frame import MAX_RECORDS, FrameKind, build_body

KEYS = st.binary(max_size=3)
PUTS = st.dictionaries(KEYS, st.binary(max_size=40), max_size=8)
COMMITS = st.lists(st.tuples(PUTS, st.sets(KEYS, max_size=4)), min_size=1, max_size=8)
SMALL = "segment_bytes=16KiB&recent_records=16"
ADDRESSES = ("log://{folder}?" + SMALL, "fsspec+file://{folder}?recent_records=16&segment_bytes=4KiB")


def block_of(puts: dict[bytes, bytes]) -> Block:
    """As it comes out of a frame of the protocol: views of memory that is soon used again."""
    block = Block.of(puts.items())
    return Block(
        block.key_lengths, block.value_lengths, memoryview(bytearray(block.keys)), memoryview(block.values)
    )


@given(puts=PUTS, deletes=st.sets(KEYS, max_size=4))
@settings(deadline=None)
def test_a_frame_has_the_same_bytes_either_way(puts: dict[bytes, bytes], deletes: set[bytes]) -> None:
    gone = list(deletes - puts.keys())
    columns = Columns.of(block_of(puts), gone, seed=7)
    assert columns is not None
    made = columns.body(3, b"meta", seed=7)
    expected = build_body(FrameKind.COMMIT, 3, list(puts), list(puts.values()), gone, meta=b"meta")
    assert (made.middle, b"".join(made.values)) == (expected.middle, b"".join(expected.values))
    assert (made.count, made.deletes, made.frame_bytes) == (
        expected.count,
        expected.deletes,
        expected.frame_bytes,
    )


@pytest.mark.parametrize("address", ADDRESSES)
@given(commits=COMMITS)
@settings(deadline=None, max_examples=20)
def test_every_version_reads_as_if_committed_row_by_row(
    tmp_path_factory: pytest.TempPathFactory,
    address: str,
    commits: list[tuple[dict[bytes, bytes], set[bytes]]],
) -> None:
    folder = tmp_path_factory.mktemp("store")
    state: dict[bytes, bytes] = {}
    states = []
    with ckpt.open_backend(address.format(folder=folder)) as backend:
        assert isinstance(backend, CommitsInBlocks)
        for version, (puts, deletes) in enumerate(commits, 1):
            gone = deletes - puts.keys()
            backend.commit_block("store", version, block_of(puts), list(gone))
            state = {key: value for key, value in (state | puts).items() if key not in gone}
            states.append(state)
        for version, expected in enumerate(states, 1):
            assert dict(backend.scan("store", version=version)) == expected
            assert backend.get_many("store", list(expected), version=version) == expected
    with ckpt.open_backend(address.format(folder=folder)) as backend:
        assert dict(backend.scan("store")) == state
        assert list(backend.verify()) == []


def test_what_one_frame_cannot_hold_is_one_commit_all_the_same(tmp_path: Path) -> None:
    puts = {b"%06d" % i: b"v" for i in range(MAX_RECORDS + 1)}
    with ckpt.open_backend(f"log://{tmp_path}/log") as backend:
        assert isinstance(backend, CommitsInBlocks)
        backend.commit_block("store", 1, block_of(puts))
        assert dict(backend.scan("store", version=1)) == puts


@pytest.mark.parametrize("address", ADDRESSES)
def test_refusals_are_those_of_a_commit(tmp_path: Path, address: str) -> None:
    backend = ckpt.open_backend(address.format(folder=tmp_path / "store"))
    assert isinstance(backend, CommitsInBlocks)
    with backend:
        twice = Block.of([(b"be", b"1"), (b"or", b"1"), (b"be", b"2")])
        with pytest.raises(ConfigError, match=r"'store' puts key .*be.* twice"):
            backend.commit_block("store", 1, twice)
        with pytest.raises(ConfigError, match="both put and deleted"):
            backend.commit_block("store", 1, Block.of([(b"be", b"1")]), [b"be"])
        with pytest.raises(ConfigError, match="namespace"):
            backend.commit_block("", 1, Block.of([]))
        assert backend.namespaces() == []
        first = backend.commit_block("store", 1, Block.of([(b"be", b"1")]), [b"or", b"or"])
        with pytest.raises(ConfigError, match="taken"):
            backend.commit_block("store", 2, Block.of([]), commit_id=first)
        assert dict(backend.scan("store")) == {b"be": b"1"}
    with pytest.raises(BackendUnavailableError, match="closed"):
        backend.commit_block("store", 2, Block.of([]))
