"""The codec notices every changed byte; a StampSet is an exact set; retries end."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.errors import CorruptRecordError
from ckpt_backends.cells.codec import Cell, CellCodec
from ckpt_backends.cells.ledger import LedgerRecord, LedgerState, decode_record, encode_record
from ckpt_backends.cells.retries import Retries
from ckpt_backends.cells.server import NotNowError
from ckpt_backends.cells.stamp_set import StampSet

codec = CellCodec("words", "cells://here")
times = st.none() | st.integers(0, 2**53).map(lambda ms: ms / 1000)


@given(st.binary(), st.binary(), times)
def test_a_cell_comes_back_as_it_was(key: bytes, value: bytes, expires_s: float | None) -> None:
    assert codec.decode(key, codec.encode(key, value, expires_s)) == Cell(value, expires_s)
    assert codec.decode(key, codec.tombstone(key)) == Cell(None)


@given(st.binary(), st.binary(max_size=50), times, st.data())
def test_a_changed_cut_or_misplaced_cell_is_noticed(
    key: bytes, value: bytes, expires_s: float | None, data: st.DataObject
) -> None:
    raw = codec.encode(key, value, expires_s)
    at = data.draw(st.integers(0, len(raw) * 8 - 1))
    flipped = bytearray(raw)
    flipped[at // 8] ^= 1 << at % 8
    for wrong in (bytes(flipped), raw[: at // 8], raw + b"\0", b""):
        with pytest.raises(CorruptRecordError, match="words"):
            codec.decode(key, wrong)
    with pytest.raises(CorruptRecordError):
        codec.decode(key + b"x", raw)
    with pytest.raises(CorruptRecordError):
        CellCodec("others", "cells://here").decode(key, raw)


def test_a_damaged_ledger_record_is_noticed() -> None:
    raw = encode_record(LedgerRecord("x", state=LedgerState(owner="me", epoch=3)))
    assert decode_record(raw, of="here").state == LedgerState(owner="me", epoch=3)
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 1
        with pytest.raises(CorruptRecordError, match="here"):
            decode_record(bytes(damaged), of="here")


@given(st.sets(st.integers(1, 60)), st.integers(0, 70))
def test_a_stamp_set_is_the_set_of_its_stamps(stamps: set[int], asked: int) -> None:
    made = StampSet()
    for stamp in sorted(stamps):
        made = made.plus(stamp)
    assert (asked in made) == (asked in stamps)
    assert made.at_or_below(asked) == max((s for s in stamps if s <= asked), default=None)
    assert made.highest == max(stamps, default=0)
    assert StampSet(made.ranges).ranges == made.ranges


def test_retries_end_with_the_last_error_and_when_the_handle_is_closed() -> None:
    asked = []

    def ask() -> None:
        asked.append(1)
        raise NotNowError(f"number {len(asked)}")

    with pytest.raises(NotNowError):
        Retries(0, threading.Event()).call(ask)
    assert len(asked) == 1
    with pytest.raises(NotNowError):
        Retries(0.3, threading.Event()).call(ask)
    assert len(asked) > 2
    closed = threading.Event()
    closed.set()
    asked.clear()
    with pytest.raises(NotNowError):
        Retries(1e9, closed).call(ask)
    assert len(asked) == 1
