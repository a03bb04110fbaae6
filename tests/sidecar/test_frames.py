"""Frames: what is encoded is decoded, and no bytes do more than raise ProtocolError."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ckpt import errors
from ckpt.contract.versions import Commit
from ckpt.sidecar import frames, requests
from ckpt.sidecar.frames import ProtocolError, RequestCode
from ckpt.sidecar.requests import decode_request
from ckpt.types import Block, CommitId
from tests.golden import golden_bytes

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


@given(st.sampled_from(list(RequestCode)), st.binary(max_size=200))
@example(RequestCode.GET, b"\0\0" + b"\0" * 8 + b"\0\0" + b"\xff" * 8)
def test_garbage_is_a_request_or_a_protocol_error(operation: RequestCode, body: bytes) -> None:
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


@given(st.sampled_from(list(frames.ErrorKind)), st.text(max_size=6000))
def test_errors_survive_the_wire_shortened(kind: frames.ErrorKind, message: str) -> None:
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


GOLDEN = golden_bytes(Path(__file__).parent / "golden" / "protocol.hex")
"""The Scala client is held to the same bytes, by `tests/spark/test_golden_frames.py`."""
LONG = b"v" * 30
ASKED: dict[str, Any] = {
    "commit": requests.CommitRequest(
        "ns", 7, "b", "c", Block.of([(b"\0\0k1", b"v"), (b"\0\0k", b"")]), [b"\0\0old"]
    ),
    "get": requests.GetRequest("ns", 7, "c", [b"\0\0k1", b"\0\0no"]),
    "load": requests.LoadRequest("ns", 7, None, 256 << 10),
    "history": requests.HistoryRequest("ns"),
    "truncate": requests.TruncateRequest("ns", 6),
    "again": requests.TruncateRequest("ns", 6),
    "stage": requests.StageRequest(Block.of([(b"\0\0k1", LONG)]), []),
    "rest": requests.CommitRequest("ns", 8, "c", "d", Block.of([(b"\0\0k2", LONG)]), []),
}
ROWS = [(b"\0\0k1", b"v"), (b"\0\0k", b"")]
HISTORY = [Commit(CommitId("b"), 6, None, 1), Commit(CommitId("c"), 7, CommitId("b"), 2)]
TOLD: dict[str, list[tuple[frames.ResponseStatus, int, list[frames.Buffer]]]] = {
    "welcome": [(frames.ResponseStatus.DONE, 0, frames.Welcome(1, 100, "log:///x").encode())],
    "committed": [(frames.ResponseStatus.DONE, 1, frames.encode_committed("c", 3))],
    "got": [
        (frames.ResponseStatus.PART, 2, frames.row_block(Block.of(ROWS[:1]))),
        (frames.ResponseStatus.DONE, 2, frames.encode_rows_in_all(1)),
    ],
    "loaded": [
        (frames.ResponseStatus.PART, 3, frames.row_block(Block.of(ROWS))),
        (frames.ResponseStatus.DONE, 3, frames.encode_rows_in_all(2)),
    ],
    "histories": [(frames.ResponseStatus.DONE, 4, frames.encode_history(HISTORY, "c"))],
    "truncated": [(frames.ResponseStatus.DONE, 5, [])],
    "refused": [
        (frames.ResponseStatus.ERROR, 6, frames.encode_error(frames.ErrorKind.VERSION_NOT_FOUND, "gone"))
    ],
    "staged": [(frames.ResponseStatus.DONE, 7, [])],
    "completed": [(frames.ResponseStatus.DONE, 8, frames.encode_committed("d", 1))],
}


@pytest.mark.parametrize("name", ASKED)
def test_requests_are_the_golden_bytes(name: str) -> None:
    request, golden = ASKED[name], GOLDEN[name]
    length, operation, request_id = frames.HEAD.unpack_from(golden)
    assert (length, operation) == (len(golden) - 4, request.operation)
    assert bytes(joined(frames.frame(operation, request_id, request.encode()))) == golden
    decoded = decode_request(operation, memoryview(golden)[frames.HEAD.size :])
    assert bytes(joined(decoded.encode())) == golden[frames.HEAD.size :]


@pytest.mark.parametrize("name", TOLD)
def test_answers_are_the_golden_bytes(name: str) -> None:
    assert b"".join(bytes(joined(frames.frame(*each))) for each in TOLD[name]) == GOLDEN[name]


def test_hellos_are_the_golden_bytes() -> None:
    assert frames.encode_hello("tk") == GOLDEN["hello"]
    assert frames.encode_hello("tk", lifeline=True) == GOLDEN["lifeline"]
    welcome = memoryview(GOLDEN["welcome"])[frames.HEAD.size :]
    assert frames.Welcome.decode(welcome) == frames.Welcome(1, 100, "log:///x")
    assert {"hello", "lifeline", *ASKED, *TOLD} == GOLDEN.keys()


def test_lengths_are_little_endian_whatever_the_machine_is() -> None:
    big = Block(np.array([1], ">u4"), np.array([2], ">u4"), b"k", b"vv")
    assert bytes(joined(frames.row_block(big))) == bytes.fromhex("01000000 01000000 02000000 6b 7676")
