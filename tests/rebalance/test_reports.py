"""Reports of tasks: bytes that cannot drift, one clear error for any others, and the loads they come to."""

from __future__ import annotations

import pathlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from ckpt.errors import ConfigError, CorruptRecordError
from ckpt.rebalance.reports import MAX_KEYS, MAX_NAME_BYTES, Report, loads_of

GOLDEN = pathlib.Path(__file__).parent / "golden" / "report.hex"
REPORT = Report(
    batch=17,
    table_version=4,
    instance=2,
    total=1000.5,
    lost=0.25,
    keys=np.array([5, 2718281828, 2**64 - 1], np.uint64),
    cost=np.array([600.0, 0.0, 12.5]),
    rows=np.array([60, 0, 1], np.uint64),
    state=np.array([4096, 1 << 40, 0], np.uint64),
    names=("to be", b"\x00\xff", None),
)


def fields(report: Report) -> tuple[Any, ...]:
    return (
        (report.batch, report.table_version, report.instance, report.total, report.lost),
        [column.tolist() for column in (report.keys, report.cost, report.rows, report.state)],
        list(report.names),
    )


def sealed(raw: bytes) -> bytes:
    return raw + xxh3_64_digest(raw)[::-1]


def test_the_bytes_of_a_report_cannot_drift() -> None:
    """Never change the file: the executors' Scala writes these bytes."""
    data = bytes.fromhex(GOLDEN.read_text())
    assert REPORT.to_bytes() == data
    assert fields(Report.from_bytes(data)) == fields(REPORT)


NAMES = st.none() | st.text(max_size=20) | st.binary(max_size=20)
AMOUNTS = st.floats(0, 1e300)
COUNTS = st.integers(0, 2**62 - 1)


@given(st.dictionaries(st.integers(0, 2**64 - 1), st.tuples(AMOUNTS, COUNTS, COUNTS, NAMES), max_size=10))
@settings(max_examples=60, deadline=None)
def test_a_report_is_what_its_bytes_say(listed: dict[int, tuple[float, int, int, Any]]) -> None:
    rows = [(key, *listed[key]) for key in sorted(listed)]
    keys, cost, counts, state, names = zip(*rows, strict=True) if rows else ((),) * 5
    report = replace(
        REPORT,
        keys=np.array(keys, np.uint64),
        cost=np.array(cost, float),
        rows=np.array(counts, np.uint64),
        state=np.array(state, np.uint64),
        names=names,
    )
    assert fields(Report.from_bytes(report.to_bytes())) == fields(report)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_changed_byte_is_an_error(data: st.DataObject) -> None:
    raw = bytearray(REPORT.to_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptRecordError):
        Report.from_bytes(raw)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_bytes_with_a_right_checksum_are_a_report_or_one_clear_error(data: st.DataObject) -> None:
    raw = bytearray(REPORT.to_bytes()[:-8])
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(6, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(len(raw) - 40, len(raw)))] + data.draw(st.binary(max_size=10))
    try:
        report = Report.from_bytes(sealed(bytes(raw)))
    except CorruptRecordError:
        return
    assert report.loads().total_cost >= 0


def test_huge_counts_and_lengths_are_refused_before_anything_is_allocated() -> None:
    raw = bytearray(REPORT.to_bytes()[:-8])
    raw[26:30] = b"\xff" * 4  # keys
    with pytest.raises(CorruptRecordError, match="not there"):
        Report.from_bytes(sealed(bytes(raw)))
    raw = bytearray(REPORT.to_bytes()[:-8])
    lengths = len(raw) - len("to be") - 2 - 3 * 4
    raw[lengths : lengths + 4] = b"\xff" * 4  # of the first name
    with pytest.raises(CorruptRecordError, match="not there"):
        Report.from_bytes(sealed(bytes(raw)))


def test_another_format_and_another_document_are_named() -> None:
    raw = bytearray(REPORT.to_bytes()[:-8])
    raw[4] = 9
    with pytest.raises(CorruptRecordError, match="format 9 is not known"):
        Report.from_bytes(sealed(bytes(raw)))
    with pytest.raises(CorruptRecordError, match="report of loads: it begins with another magic"):
        Report.from_bytes(sealed(b"ckrt" + bytes(60)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"names": ("a",)}, "as long as its 3 keys"),
        ({"instance": -1}, "instances are from 0"),
        ({"keys": np.array([5, 5, 6], np.uint64)}, "ascending"),
        ({"cost": np.array([1.0, np.nan, 0.0])}, "finite"),
        ({"total": -1.0}, "finite and from 0"),
        ({"rows": np.array([1 << 62, 0, 0], np.uint64)}, "below"),
        ({"names": ("x" * (MAX_NAME_BYTES + 1), None, None)}, "longer than 1024"),
    ],
)
def test_a_report_that_cannot_be_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(REPORT, **changed)


def test_a_report_is_bounded() -> None:
    many = np.arange(MAX_KEYS + 1, dtype=np.uint64)
    with pytest.raises(ConfigError, match="at most 65536"):
        replace(REPORT, keys=many, cost=many * 1.0, rows=many, state=many, names=(None,) * len(many))


def test_the_loads_of_an_interval_are_those_of_all_its_tasks() -> None:
    other = replace(REPORT, instance=0, total=5.0, cost=np.array([1.0, 1.0, 1.0]))
    first_attempt = replace(other, total=99.0)
    loads = loads_of([REPORT, first_attempt, other])
    assert loads.total_cost == pytest.approx(1005.5)
    assert loads.rest is not None
    assert loads.rest.tolist() == pytest.approx([2, 0, 388])
    assert [loads.name(at) for at in range(3)] == ["to be", b"\x00\xff", str(2**64 - 1)]
