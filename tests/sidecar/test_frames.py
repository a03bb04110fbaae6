"""Frames: what is encoded is decoded, and no bytes do more than raise ProtocolError."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ckpt import errors
from ckpt.contract.versions import Commit
from ckpt.sidecar import frames, requests
from ckpt.sidecar.frames import Operation, ProtocolError
from ckpt.sidecar.requests import decode_request
from ckpt.types import Block, CommitId

TEXT = st.text(max_size=40)
ID = st.none() | st.text(min_size=1, max_size=40)
VERSION = st.none() | st.integers(0, 2**63)
KEYS = st.lists(st.binary(max_size=20), max_size=20)
ROWS = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=50)), max_size=20)
BLOCK = ROWS.map(Block.of)
REQUESTS = st.one_of(
    st.builds(requests.PingRequest),
    st.builds(requests.StatsRequest),
    st.builds(requests.StageRequest, BLOCK, KEYS),
    st.builds(requests.CommitRequest, TEXT, st.integers(0, 2**63), ID, ID, BLOCK, KEYS),
    st.builds(requests.LoadRequest, TEXT, VERSION, ID, st.integers(0, 2**32 - 1)),
    st.builds(requests.GetRequest, TEXT, VERSION, ID, KEYS),
    st.builds(requests.HistoryRequest, TEXT),
    st.builds(requests.TruncateRequest, TEXT, st.integers(0, 2**63)),
    st.builds(requests.DropRequest, TEXT),
    st.builds(requests.NamespacesRequest, TEXT),
)


def joined(buffers: list[Any]) -> memoryview:
    return memoryview(b"".join(bytes(b) for b in buffers))


def plain(request: Any) -> dict[str, Any]:
    """A request as data that can be compared: a block has no equality."""
    values = {name: getattr(request, name) for name in request.__dataclass_fields__}
    return {k: list(v.rows()) if isinstance(v, Block) else v for k, v in values.items()}


@given(REQUESTS)
def test_every_request_survives_the_wire(request: Any) -> None:
    decoded = decode_request(request.operation, joined(request.encode()))
    assert type(decoded) is type(request)
    assert plain(decoded) == plain(request)


@given(REQUESTS, st.data())
def test_a_request_that_is_cut_or_too_long_is_refused(request: Any, data: st.DataObject) -> None:
    body = bytes(joined(request.encode()))
    if body:
        cut = data.draw(st.integers(0, len(body) - 1))
        with pytest.raises(ProtocolError):
            decode_request(request.operation, memoryview(body[:cut]))
    with pytest.raises(ProtocolError, match="too many"):
        decode_request(request.operation, memoryview(body + b"\0"))


@given(st.sampled_from(list(Operation)), st.binary(max_size=200))
@example(Operation.GET, b"\0\0" + b"\0" * 8 + b"\0\0" + b"\xff" * 8)
def test_garbage_is_a_request_or_a_protocol_error(operation: Operation, body: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode_request(operation, memoryview(body))


@given(REQUESTS, st.data())
def test_a_flipped_bit_is_another_request_or_a_protocol_error(request: Any, data: st.DataObject) -> None:
    body = bytearray(joined(request.encode()))
    if body:
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] ^= 1 << data.draw(st.integers(0, 7))
        with contextlib.suppress(ProtocolError):
            decode_request(request.operation, memoryview(body))


@pytest.mark.parametrize(
    "block",
    [
        struct.pack("<I", 2**32 - 1),
        struct.pack("<I", 2**30) + b"\0" * 64,
        struct.pack("<IIIII", 2, 2**32 - 1, 2**32 - 1, 2**32 - 1, 3),
        struct.pack("<III", 1, 2**31, 2**31),
    ],
    ids=["count", "columns", "sums that wrap", "lengths"],
)
def test_lengths_are_checked_before_anything_is_allocated(block: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            frames.decode_rows(memoryview(block))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@given(BLOCK)
def test_rows_stay_columns(block: Block) -> None:
    body = joined(frames.row_block(block))
    assert len(body) == frames.row_block_bytes(block)
    decoded = frames.decode_rows(body)
    assert list(decoded.rows()) == list(block.rows())
    assert decoded.total_bytes == block.total_bytes


def test_a_block_is_not_copied_out_of_its_frame() -> None:
    body = bytearray(joined(frames.row_block(Block.of([(b"key", b"value")]))))
    block = frames.decode_rows(memoryview(body))
    body[-5:] = b"other"
    assert list(block.rows()) == [(b"key", b"other")]


@given(st.lists(st.tuples(TEXT, st.integers(0, 2**63), ID), max_size=10), ID)
def test_histories_survive_the_wire(rows: list[tuple[str, int, str | None]], tip: str | None) -> None:
    commits = [Commit(CommitId(i), v, CommitId(b) if b else None, n) for n, (i, v, b) in enumerate(rows, 1)]
    decoded = frames.decode_history(joined(frames.encode_history(commits, tip or "")))
    assert decoded == (commits, tip)


@given(st.lists(TEXT, max_size=10), st.dictionaries(TEXT, st.floats(allow_nan=False), max_size=10))
def test_names_and_stats_survive_the_wire(names: list[str], stats: dict[str, float]) -> None:
    assert frames.decode_names(joined(frames.encode_names(names))) == names
    assert frames.decode_stats(joined(frames.encode_stats(stats))) == stats


@given(st.sampled_from(list(frames.Kind)), st.text(max_size=6000))
def test_errors_survive_the_wire_shortened(kind: frames.Kind, message: str) -> None:
    error = frames.decode_error(joined(frames.encode_error(kind, message)))
    assert isinstance(error, errors.CkptError)
    if message.isascii() and len(message) <= frames.MAX_MESSAGE_BYTES:
        assert str(error) == message
    assert len(str(error).encode()) <= frames.MAX_MESSAGE_BYTES


@pytest.mark.parametrize(
    "kind",
    [
        errors.ConfigError,
        errors.BackendUnavailableError,
        errors.CorruptRecordError,
        errors.FencedError,
        errors.UnsupportedError,
        errors.VersionNotFoundError,
    ],
)
def test_an_exception_arrives_as_what_it_was(kind: type[errors.CkptError]) -> None:
    error = frames.decode_error(joined(frames.encode_error(frames.kind_of(kind("why")), "why")))
    assert type(error) is kind


def test_what_does_not_fit_is_refused_by_the_encoder() -> None:
    with pytest.raises(errors.ConfigError, match="65535"):
        frames.text("x" * 70_000)
    with pytest.raises(errors.ConfigError, match="token"):
        frames.encode_hello("x" * 2000)
    with pytest.raises(errors.ConfigError, match="version"):
        frames.version_field(-1)
    with pytest.raises(errors.ConfigError, match="part_bytes"):
        requests.LoadRequest("store", None, None, 1 << 32).encode()


def test_the_bytes_are_those_of_the_specification() -> None:
    """Golden bytes: the Scala client was written against the same page."""
    commit = requests.CommitRequest("ns", 7, "b", "c", Block.of([(b"k1", b"v"), (b"k", b"")]), [b"old"])
    assert bytes(joined(frames.frame(commit.operation, 5, commit.encode()))) == bytes.fromhex(
        "3e000000 02 0500000000000000"  # length, COMMIT, id
        "0200 6e73 0700000000000000 0100 62 0100 63"  # namespace, version, base, commit id
        "02000000 02000000 01000000 01000000 00000000 6b316b 76"  # row block
        "01000000 03000000 6f6c64"  # key block
    )
    assert frames.encode_hello("tk", lifeline=True) == b"CKPT" + bytes.fromhex("0100 0100 0200") + b"tk"
    welcome = frames.Welcome(1, 1 << 30, "log:///x")
    assert bytes(joined(welcome.encode())) == bytes.fromhex("0100 00000040 0800") + b"log:///x"
    assert frames.Welcome.decode(joined(welcome.encode())) == welcome
    load = requests.LoadRequest("ns", None, None, 1 << 20)
    assert bytes(joined(load.encode())) == bytes.fromhex("0200 6e73 ffffffffffffffff 0000 00001000")


def test_lengths_are_little_endian_whatever_the_machine_is() -> None:
    big = Block(np.array([1], ">u4"), np.array([2], ">u4"), b"k", b"vv")
    assert bytes(joined(frames.row_block(big))) == bytes.fromhex("01000000 01000000 02000000 6b 7676")
