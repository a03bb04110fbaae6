"""Rows, cells and heads of HBase: whatever the key and the value, what was written is what is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.errors import CorruptRecordError
from ckpt_backends.cells.codec import CellCodec
from ckpt_backends.hbase import rows
from ckpt_backends.hbase.head import HANDLE_BYTES, Head
from ckpt_backends.hbase.rows import RowNames

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8) | st.text(
    "\0\x01ab", min_size=1, max_size=4
)
KEYS = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([29_999, 30_000, 30_001, 65_536]).flatmap(
        lambda size: st.binary(max_size=3).map(lambda tail: b"k" * size + tail)
    ),
)
LONGEST_ROW = 32_767


@given(st.text("\0ab", max_size=4), NAMES, KEYS)
def test_a_row_leads_back_to_its_key_and_fits_into_hbase(prefix: str, namespace: str, key: bytes) -> None:
    names = RowNames(prefix)
    start = names.data(namespace)
    row = rows.row_of(start, key)
    assert 1 <= len(row) <= LONGEST_ROW
    assert rows.key_of(start, row, rows.decode(rows.encode(key, b"value"))) == key
    assert names.namespace(names.meta(namespace)) == namespace


def test_the_longest_names_fit_into_hbase() -> None:
    start = RowNames("\0" * 255).data("\0" * 1024)
    assert len(rows.row_of(start, b"\0" * 65_536)) <= LONGEST_ROW


@given(st.text("\0ab", max_size=3), st.text("\0ab", max_size=3), NAMES, NAMES, KEYS)
def test_rows_of_one_namespace_never_lie_in_another(
    one: str, other: str, namespace: str, another: str, key: bytes
) -> None:
    if (one, namespace) == (other, another):
        return
    row = rows.row_of(RowNames(one).data(namespace), key)
    start = RowNames(other).data(another)
    assert not row.startswith(start)
    assert RowNames(one).meta(namespace) != RowNames(other).meta(another)
    assert not RowNames(one).meta(namespace).startswith(start)


@given(st.lists(KEYS, unique=True, max_size=12))
def test_keys_come_in_order_from_rows_in_order(keys: list[bytes]) -> None:
    start = RowNames("").data("words")
    found = sorted((rows.row_of(start, key), key) for key in keys)
    assert [key for _, key in rows.in_key_order(start, found)] == sorted(keys)


@given(KEYS, KEYS)
def test_a_scan_of_a_prefix_covers_its_keys(prefix: bytes, tail: bytes) -> None:
    start = RowNames("").data("words")
    first, behind = rows.scan_range(start, prefix)
    assert first <= rows.row_of(start, prefix + tail) < behind


@given(KEYS, st.integers(0, 3 * rows.PART_BYTES // 2))
def test_values_come_back_from_their_parts(key: bytes, size: int) -> None:
    value = (b"%08d" % size) * (size // 8 + 1)
    value = value[:size]
    stored = rows.decode(rows.encode(key, value))
    if stored.parts:
        parts = list(rows.parts(value))
        assert len(parts) == stored.parts
        assert stored.value_bytes == len(value)
        assert b"".join(parts) == value
    else:
        assert stored.value == value
    assert not stored.is_tombstone
    assert rows.decode(rows.tombstone(key)).is_tombstone


@given(KEYS, st.sampled_from([0, 1, 100, rows.INLINE_BYTES + 1]), st.data())
def test_no_changed_byte_goes_unnoticed(key: bytes, size: int, data: st.DataObject) -> None:
    start, codec = RowNames("").data("words"), CellCodec("words", "hbase://")
    value = codec.encode(key, b"v" * size)
    cell = data.draw(st.sampled_from([rows.encode(key, value), rows.tombstone(key)]))
    at = data.draw(st.integers(0, min(len(cell), 40) - 1) | st.just(len(cell) - 1))
    changed = cell[:at] + bytes([cell[at] ^ data.draw(st.integers(1, 255))]) + cell[at + 1 :]
    stored = rows.decode(changed)
    assert not stored.is_tombstone
    assert not stored.parts
    with pytest.raises(CorruptRecordError):
        codec.decode(key, stored.value or b"")
    row = rows.row_of(start, key)
    assert rows.key_of(start, row, stored) in (key, row[len(start) :])


def test_a_long_key_in_the_row_of_another_is_not_taken_for_it() -> None:
    start = RowNames("").data("words")
    stored = rows.decode(rows.encode(b"k" * 40_000, b"value"))
    row = rows.row_of(start, b"l" * 40_000)
    assert rows.key_of(start, row, stored) == row[len(start) :]


STEPS = st.lists(st.sampled_from(["register", "finish", "abandon", "fence", "clear"]), max_size=20)


@given(STEPS, st.data())
def test_a_head_shows_what_was_finished_under_its_fence_and_nothing_else(
    steps: list[str], data: st.DataObject
) -> None:
    head, running, shown = Head(), [], set()
    for step in steps:
        if step == "register":
            head, stamp = head.registered(b"h" * HANDLE_BYTES)
            running.append(stamp)
        elif step in ("finish", "abandon") and running:
            stamp = running.pop(data.draw(st.integers(0, len(running) - 1)))
            head = head.finished([stamp]) if step == "finish" else head.abandoned([stamp])
            shown |= {stamp} if step == "finish" else set()
        elif step == "fence":
            head, running = head.fenced(head.fence + 1, own=()), []
        elif step == "clear":
            head, shown, running = head.cleared(), set(), []
        head = Head.decode(head.encoded())
    assert {stamp for stamp in range(head.next + 2) if head.shows(stamp)} == shown


def test_no_two_heads_are_the_same_bytes() -> None:
    assert Head().encoded() != Head().encoded()


@given(st.data())
def test_a_damaged_head_is_reported(data: st.DataObject) -> None:
    raw = Head().registered(b"h" * HANDLE_BYTES)[0].encoded()
    at = data.draw(st.integers(0, len(raw) - 1))
    changed = raw[:at] + bytes([raw[at] ^ data.draw(st.integers(1, 255))]) + raw[at + 1 :]
    for damaged in (changed, raw[:at], raw + b"x"):
        with pytest.raises(CorruptRecordError):
            Head.decode(damaged)
