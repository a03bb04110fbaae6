"""The short way to a value agrees with the long one, whatever the bytes are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ckpt.errors import CorruptRecordError
from ckpt_backends.cells.codec import CellCodec

codec = CellCodec("words", "cells://here")


def both(key: bytes, raw: bytes, now_s: float) -> tuple[object, object]:
    def outcome(call: object) -> object:
        try:
            return call()  # type: ignore[operator]
        except CorruptRecordError as error:
            return str(error)

    def the_long_way() -> bytes | None:
        cell = codec.decode(key, raw)
        return cell.value if cell.is_alive(now_s) else None

    return outcome(lambda: codec.value(key, raw, now_s)), outcome(the_long_way)


@given(
    key=st.binary(max_size=5),
    value=st.binary(max_size=20),
    expires_s=st.none() | st.floats(0, 1000),
    now_s=st.floats(0, 1000),
    flip=st.none() | st.integers(0, 400),
)
def test_values_are_what_was_stored(
    key: bytes, value: bytes, expires_s: float | None, now_s: float, flip: int | None
) -> None:
    raw = bytearray(codec.encode(key, value, expires_s))
    if flip is not None:
        raw[flip // 8 % len(raw)] ^= 1 << flip % 8
    short, long = both(key, bytes(raw), now_s)
    assert short == long
    if flip is not None:
        assert isinstance(short, str)
    elif expires_s is None:
        assert short == value


@given(raw=st.binary(max_size=30))
def test_other_bytes_are_damage(raw: bytes) -> None:
    short, long = both(b"key", raw, 0.0)
    assert short == long
    assert isinstance(short, str)


def test_a_tombstone_is_no_value() -> None:
    assert both(b"key", codec.tombstone(b"key"), 0.0) == (None, None)
