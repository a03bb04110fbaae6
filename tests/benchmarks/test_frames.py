"""A batch comes back from its frame as it was: the log's and the sidecar's, beside bare serialisers.

The log's frame has a checksum for its columns and one for each value, and both are compared when it is read.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ckpt.sidecar.frames import FrameFields
from ckpt.sidecar.requests import CommitRequest
from ckpt.types import Block, cut
from ckpt_backends.engine.frame import Frame, FrameKind, build_body, lengths_of_ends, seal
from ckpt_backends.engine.native import native
from tests.benchmarks.work import one_batch

Rows = dict[bytes, bytes]
NAMESPACE, SEED = 7, 15


class Form(NamedTuple):
    """From rows to bytes and back."""

    make: Callable[[Rows], bytes]
    read: Callable[[bytes], Rows]


def log_frame(rows: Rows) -> bytes:
    body = build_body(FrameKind.DATA, NAMESPACE, list(rows), list(rows.values()))
    return b"".join(seal(body, sequence=2, durable=1, epoch=3, seed=SEED, layer=0))


def compiled_log_frame(rows: Rows) -> bytes:
    if native is None:
        pytest.skip("the log is not compiled: pip install --editable . with a C compiler")
    sealed = native.sealed_puts(rows, NAMESPACE, 2, 1, 3, SEED)
    assert sealed is not None
    return sealed[0]


def rows_of_log_frame(data: bytes) -> Rows:
    frame = Frame(memoryview(data), 0, SEED)
    frame.require_intact()
    values = cut(frame.value_blob(), lengths_of_ends(frame.value_ends_column()))
    return dict(zip(frame.keys(), values, strict=True))


def request_frame(rows: Rows) -> bytes:
    return b"".join(CommitRequest("store", 2, "base", "id", Block.of(rows.items()), ()).encode())


def rows_of_request_frame(data: bytes) -> Rows:
    return dict(CommitRequest.decode(FrameFields(memoryview(data))).puts.rows())


FORMS: Mapping[str, Form] = {
    "log": Form(log_frame, rows_of_log_frame),
    "log-compiled": Form(compiled_log_frame, rows_of_log_frame),
    "sidecar": Form(request_frame, rows_of_request_frame),
    "msgspec": Form(msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Rows).decode),
    "pickle": Form(lambda rows: pickle.dumps(rows, protocol=5), pickle.loads),
}


@pytest.mark.parametrize("records", [1, 1000])
@pytest.mark.parametrize("name", FORMS)
def test_make(benchmark: BenchmarkFixture, name: str, records: int) -> None:
    benchmark.group = f"make a frame of {records:,} x 100 B"
    rows = one_batch(records=records, value_bytes=100)
    assert FORMS[name].read(benchmark(FORMS[name].make, rows)) == rows


@pytest.mark.parametrize("records", [1, 1000])
@pytest.mark.parametrize("name", [name for name in FORMS if name != "log-compiled"])
def test_read(benchmark: BenchmarkFixture, name: str, records: int) -> None:
    benchmark.group = f"read a frame of {records:,} x 100 B"
    rows = one_batch(records=records, value_bytes=100)
    assert benchmark(FORMS[name].read, FORMS[name].make(rows)) == rows
