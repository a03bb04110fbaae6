"""Frames and segment headers: what is written is read back, byte for byte, and nothing else is."""

from __future__ import annotations

import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_backends.engine.frame import (
    ALIGN,
    MAX_RECORDS,
    BadFrameError,
    Frame,
    FrameKind,
    build_body,
    seal,
    split_batch,
)
from ckpt_backends.engine.search import find_next_frame
from ckpt_backends.engine.segment import SegmentHeader, segment_seed
from ckpt_backends.log import LogBackend

keys = st.binary(max_size=30)
values = st.binary(max_size=60)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)


def frame_bytes(
    puts: dict[bytes, bytes],
    deletes: list[bytes] = [],  # noqa: B006 - never changed
    *,
    kind: FrameKind = FrameKind.DATA,
    meta: bytes = b"",
    expires_ms: int = 0,
    sequence: int = 1,
    seed: int = 0,
    layer: int = 0,
    epoch: int = 3,
) -> bytes:
    body = build_body(
        kind, 7, list(puts), list(puts.values()), deletes, meta=meta, expires_ms=expires_ms, layer=layer
    )
    sealed = seal(body, sequence=sequence, durable=sequence - 1, epoch=epoch, seed=seed, layer=layer)
    data = b"".join(sealed)
    assert len(data) == body.frame_bytes
    return data


@given(
    puts=st.dictionaries(keys, values, max_size=8),
    deletes=st.lists(keys, unique=True, max_size=4),
    kind=st.sampled_from(FrameKind),
    meta=st.binary(max_size=20),
    expires_ms=u64,
    sequence=st.integers(1, 2**64 - 1),
    seed=u64,
    layer=u64,
    before=st.integers(0, 4),
)
def test_a_frame_is_read_as_it_was_written(
    puts: dict[bytes, bytes],
    deletes: list[bytes],
    kind: FrameKind,
    meta: bytes,
    expires_ms: int,
    sequence: int,
    seed: int,
    layer: int,
    before: int,
) -> None:
    data = frame_bytes(
        puts,
        deletes,
        kind=kind,
        meta=meta,
        expires_ms=expires_ms,
        sequence=sequence,
        seed=seed,
        layer=layer,
    )
    assert len(data) % ALIGN == 0
    offset = before * ALIGN
    frame = Frame(memoryview(bytes(offset) + data), offset, seed)
    frame.require_intact()
    assert (frame.kind, frame.namespace, frame.layer, frame.sequence) == (kind, 7, layer, sequence)
    assert (frame.durable, frame.expires_ms, frame.meta) == (sequence - 1, expires_ms, meta)
    assert (frame.puts, frame.deletes, frame.end) == (len(puts), len(deletes), offset + len(data))
    assert frame.keys() == [*puts, *deletes]
    assert [frame.key(i) for i in range(frame.count)] == [*puts, *deletes]
    assert [frame.value(i) for i in range(frame.puts)] == list(puts.values())
    assert not frame.continues


@given(puts=st.dictionaries(keys, values, min_size=1, max_size=5), seed=u64, other=u64)
def test_a_frame_of_another_segment_is_no_frame(puts: dict[bytes, bytes], seed: int, other: int) -> None:
    data = memoryview(frame_bytes(puts, seed=seed))
    if seed != other:
        with pytest.raises(BadFrameError):
            Frame(data, 0, other)
        assert find_next_frame(data, 0, len(data), other) is None


@given(puts=st.dictionaries(keys, values, min_size=1, max_size=5), bit=st.integers(0, 7), data=st.data())
def test_a_changed_bit_is_noticed(puts: dict[bytes, bytes], bit: int, data: st.DataObject) -> None:
    whole = frame_bytes(puts, [b"gone"])
    used = Frame(memoryview(whole), 0, 0)
    place = data.draw(st.integers(0, used.values_at + used.values_bytes - 1))
    changed = bytearray(whole)
    changed[place] ^= 1 << bit
    with pytest.raises(BadFrameError):
        Frame(memoryview(changed), 0, 0).require_intact()


@given(puts=st.dictionaries(keys, values, min_size=1, max_size=5), data=st.data())
def test_a_torn_frame_is_no_frame(puts: dict[bytes, bytes], data: st.DataObject) -> None:
    whole = frame_bytes(puts)
    used = Frame(memoryview(whole), 0, 0)
    cut = data.draw(st.integers(0, used.values_at + used.values_bytes - 1))
    with pytest.raises(BadFrameError):
        Frame(memoryview(whole[:cut]), 0, 0).require_intact()
    torn = whole[:cut] + bytes(len(whole) - cut)
    if torn != whole:
        with pytest.raises(BadFrameError):
            Frame(memoryview(torn), 0, 0).require_intact()


@given(junk=st.binary(max_size=200), puts=st.dictionaries(keys, values, min_size=1, max_size=3))
def test_the_next_frame_is_found_behind_anything(junk: bytes, puts: dict[bytes, bytes]) -> None:
    junk += b"CKF1" + bytes(-(len(junk) + 4) % ALIGN)
    data = memoryview(junk + frame_bytes(puts, seed=5))
    found = find_next_frame(data, 0, len(data), 5)
    assert found is not None
    assert found.keys() == list(puts)
    assert found.offset == len(junk)
    assert find_next_frame(data, 0, len(data), 5, until=len(junk)) is None
    assert find_next_frame(data, 0, found.end - 1, 5) is None


@given(
    stale=st.lists(st.dictionaries(keys, values, min_size=1, max_size=3), max_size=5),
    start=st.integers(0, 100),
    gap=st.integers(0, 5),
)
def test_who_knows_the_epoch_finds_the_same_frame(
    stale: list[dict[bytes, bytes]], start: int, gap: int
) -> None:
    """Among frames that a recycled file held before: of another epoch, and with checksums of another seed."""
    older = b"".join(frame_bytes(puts, seed=4, epoch=2) for puts in stale)
    data = memoryview(older + bytes(ALIGN * gap) + frame_bytes({b"k": b"v"}, seed=5) + older)
    slowly, quickly = (find_next_frame(data, start, len(data), 5, epoch=epoch) for epoch in (None, 3))
    assert (slowly and slowly.offset) == (quickly and quickly.offset)
    assert slowly is not None or start > len(older) + ALIGN * gap


def test_one_record_is_written_as_any_other_batch() -> None:
    """The short way for a single put gives the same bytes as the general one."""
    single = build_body(FrameKind.DATA, 1, [b"key"], [b"value"])
    general = build_body(FrameKind.DATA, 1, [b"key"], [b"value"], [b"other"])
    assert single.middle[4:12] == general.middle[8:16]
    assert single.middle.endswith(b"key")


@pytest.mark.parametrize("count", [0, 1, MAX_RECORDS, MAX_RECORDS + 1, 3 * MAX_RECORDS])
def test_a_batch_is_cut_into_frames_that_hold_it(count: int) -> None:
    names = [b"%d" % i for i in range(count)]
    gone = [b"gone %d" % i for i in range(count // 2)]
    parts = list(split_batch(names, names, gone))
    assert [k for part, _, _ in parts for k in part] == names
    assert [v for _, part, _ in parts for v in part] == names
    assert [d for _, _, part in parts for d in part] == gone
    assert all(len(k) + len(d) <= MAX_RECORDS for k, _, d in parts)


def test_values_may_be_views_of_any_shape(tmp_path: Path) -> None:
    views = {
        b"numbers": memoryview(array.array("I", [1, 2, 3])),
        b"gaps": memoryview(b"abcdefgh")[::2],
        b"square": memoryview(b"abcd").cast("B", (2, 2)),
        b"empty": memoryview(b""),
        b"array": bytearray(b"xyz"),
    }
    expected = {key: bytes(value) for key, value in views.items()}
    with LogBackend(str(tmp_path / "log")) as backend:
        backend.put_many("words", views)
        for key, value in views.items():
            backend.put_many("single", {key: value})
        backend.commit("store", 1, views)
        assert all(dict(backend.scan(name)) == expected for name in ("words", "single", "store"))
        assert list(backend.verify()) == []


def test_long_keys_fill_a_frame_as_long_values_do() -> None:
    long = [b"%d" % i * (1 << 20) for i in range(10, 80)]
    parts = list(split_batch(long, [b""] * len(long), long))
    assert max(sum(map(len, [*k, *d])) for k, _, d in parts) <= 64 << 20
    assert [k for part, _, _ in parts for k in part] == long


# -- golden bytes: a log that was written once is read for ever -----------------------------------


def test_golden_frame() -> None:
    data = frame_bytes({b"be": b"2", b"or": b"10"}, [b"not"], sequence=9, seed=0xC0FFEE, expires_ms=1234)
    assert data.hex() == GOLDEN_FRAME
    assert Frame(memoryview(data), 0, 0xC0FFEE).value(1) == b"10"


def test_golden_segment_header() -> None:
    header = SegmentHeader(
        log_id=0x1122334455667788,
        number=5,
        data_start=4096,
        previous=4,
        previous_end=65_536,
        first_sequence=77,
    )
    assert header.encode().hex() == GOLDEN_HEADER
    assert SegmentHeader.decode(bytes.fromhex(GOLDEN_HEADER)) == header
    assert segment_seed(header.log_id, header.number) == GOLDEN_SEED


GOLDEN_FRAME = (
    "434b4631010100000900000000000000080000000000000003000000070000000000000000000000"
    "03000000010000000000000007000000d204000000000000f7b11a115e50e8e203000000aff8a3a7"
    "020000000400000007000000010000000300000014a35d2f32c839ed62656f726e6f743231300000"
    "0000000000000000"
)
GOLDEN_HEADER = (
    "434b50545345473101000000001000008877665544332211050000000000000004000000000000000000010000000000"
    "4d00000000000000f6665182d53d9642"
)
GOLDEN_SEED = 7904951607663717778


@given(log_id=u64, number=u64, previous=u64, previous_end=u64, first=u64, place=st.integers(0, 63))
def test_a_segment_header_is_read_as_it_was_written_or_not_at_all(
    log_id: int, number: int, previous: int, previous_end: int, first: int, place: int
) -> None:
    header = SegmentHeader(log_id, number, 4096, previous, previous_end, first)
    data = bytearray(header.encode())
    assert SegmentHeader.decode(bytes(data)) == header
    data[place] ^= 0x10
    with pytest.raises(BadFrameError):
        SegmentHeader.decode(bytes(data))
