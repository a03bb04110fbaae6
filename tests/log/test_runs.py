"""Index runs and manifests: lookups find what is there; a changed byte is noticed; hashes may collide."""

from __future__ import annotations

import struct

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from ckpt_backends.engine.catalog import Catalog
from ckpt_backends.engine.manifest import (
    Damage,
    Manifest,
    Position,
    SegmentSummary,
    decode_manifest,
    encode_manifest,
)
from ckpt_backends.engine.runs import (
    IndexDamagedError,
    Run,
    encode_run,
    hash_keys,
    pack_location,
    split_locations,
    unpack_location,
)

entries = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2**63)), max_size=60)


def make_run(tables: dict[int, list[tuple[int, int]]]) -> tuple[Run, bytes]:
    slices = []
    for namespace, table in sorted(tables.items()):
        ordered = sorted(table, key=lambda entry: entry[0])
        hashes = np.array([h for h, _ in ordered], np.uint64)
        slices.append((namespace, hashes, np.array([loc for _, loc in ordered], np.uint64)))
    data = b"".join(encode_run(slices))
    return Run("run", memoryview(data)), data


@given(tables=st.dictionaries(st.integers(1, 5), entries, max_size=4))
def test_every_entry_of_a_hash_is_found(tables: dict[int, list[tuple[int, int]]]) -> None:
    run, _ = make_run(tables)
    for namespace in range(1, 6):
        table = tables.get(namespace, [])
        for asked in range(41):
            expected = sorted(loc for h, loc in table if h == asked)
            assert sorted(run.find(namespace, asked)) == expected
        asked_for = np.arange(41, dtype=np.uint64)
        queries, locations = run.find_many(namespace, asked_for)
        found = sorted(zip(queries.tolist(), locations.tolist(), strict=True))
        assert found == sorted(table)
        assert len(run.slice(namespace)[0]) == len(table)
    assert sorted(run.all_locations().tolist()) == sorted(loc for t in tables.values() for _, loc in t)


@settings(max_examples=20)
@given(count=st.integers(2040, 5000), same=st.integers(1, 4200), data=st.data())
def test_a_hash_that_fills_whole_chunks_is_found(count: int, same: int, data: st.DataObject) -> None:
    """Entries that share a hash may span chunks, and chunks may span namespaces."""
    start = data.draw(st.integers(0, count))
    table = [(i, i) for i in range(start)] + [(start, 10_000 + i) for i in range(same)]
    table += [(start + 1 + i, i) for i in range(count - start)]
    run, _ = make_run({1: [(5, 1)] * 100, 2: table, 3: [(start, 7)]})
    assert sorted(run.find(2, start)) == [10_000 + i for i in range(same)]
    assert run.find(3, start) == [7]
    assert run.find(2, start + count + 7) == []


@given(table=entries, place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_changed_bit_of_a_run_is_noticed(table: list[tuple[int, int]], place: int, bit: int) -> None:
    _, data = make_run({1: table, 2: [(1, 2)]})
    changed = bytearray(data)
    changed[place % len(data)] ^= 1 << bit
    with pytest.raises(IndexDamagedError):
        Run("run", memoryview(changed)).all_locations()


@given(table=entries, cut=st.integers(1, 200))
def test_a_run_that_was_cut_off_is_noticed(table: list[tuple[int, int]], cut: int) -> None:
    _, data = make_run({1: table})
    with pytest.raises(IndexDamagedError):
        Run("run", memoryview(data[: max(0, len(data) - cut)]))


@given(segment=st.integers(0, 2**28 - 1), offset=st.integers(0, 2**22 - 1), record=st.integers(0, 2**14 - 1))
def test_a_location_is_three_numbers_in_one(segment: int, offset: int, record: int) -> None:
    location = pack_location(segment, offset * 16, record)
    assert location < 2**64
    assert unpack_location(location) == (segment, offset * 16, record)
    columns = split_locations(np.array([location], np.uint64))
    assert tuple(int(column[0]) for column in columns) == (segment, offset * 16, record)


def test_golden_run() -> None:
    _, data = make_run({1: [(3, pack_location(1, 4096)), (3, pack_location(1, 4096, 1))], 9: [(2**63, 5)]})
    assert data.hex() == GOLDEN_RUN
    assert hash_keys([b"be", b""], 77).tolist() == GOLDEN_HASHES


def manifest() -> Manifest:
    catalog = Catalog()
    catalog.create("words")
    return Manifest(
        log_id=5,
        position=Position(2, 4096, 9),
        durable=8,
        runs=["run-a.idx"],
        segments={1: SegmentSummary(5000, 7), 2: SegmentSummary(4096, 0)},
        catalog=catalog.dump(),
        damages=[Damage(1, 4096, 4200, 3, "torn")],
        needed_bytes=6,
        collected_bytes=7,
        closed=True,
    )


def test_a_manifest_is_read_as_it_was_written() -> None:
    data = encode_manifest(manifest())
    read, restored = decode_manifest(data)
    assert read == manifest()
    assert restored.dump() == manifest().catalog
    assert restored.by_name["words"].id == 1


def test_a_manifest_of_the_first_format_calls_no_log_closed() -> None:
    body = msgspec.to_builtins(manifest())
    del body["closed"]
    data = msgspec.msgpack.encode(body)
    read, _ = decode_manifest(
        struct.pack("<8sIIQ", b"CKPTMAN1", 1, len(data), xxh3_64_intdigest(data)) + data
    )
    assert read == msgspec.structs.replace(manifest(), closed=False)


@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_changed_bit_of_a_manifest_is_noticed(place: int, bit: int) -> None:
    data = bytearray(encode_manifest(manifest()))
    data[place % len(data)] ^= 1 << bit
    with pytest.raises(IndexDamagedError):
        decode_manifest(bytes(data))


@given(data=st.binary(max_size=100))
def test_anything_else_is_no_manifest(data: bytes) -> None:
    with pytest.raises(IndexDamagedError):
        decode_manifest(data)


GOLDEN_RUN = (
    "434b505452554e310100000002000000030000000000000001000000000000000100000000000000000000000000000002"
    "00000000000000090000000000000002000000000000000100000000000000030000000000000001edfd6d7cce1ad8db9c"
    "11aef52b7fe903000000000000000300000000000000000000000000008000004000100000000100400010000000050000"
    "0000000000"
)
GOLDEN_HASHES = [17630398026739443241, 4469296283536996279]


def test_a_head_that_changes_while_the_run_is_open_is_not_believed() -> None:
    """Whoever looks at it first, and whenever: what is found is right, or the run is damaged."""
    _, intact = make_run({1: [(3, 30), (7, 70)], 2: [(5, 50)]})
    for at in range(len(intact) - 3 * 16):
        data = bytearray(intact)
        run, known = (Run("run", memoryview(data)) for _ in range(2))
        assert known.find(2, 5) == [50]
        data[at] ^= 1 << at % 8
        assert (known.find(1, 7), known.find(2, 5), known.find(3, 5)) == ([70], [50], [])
        try:
            assert (run.find(1, 7), run.find(2, 5), run.find(3, 5)) == ([70], [50], [])
            assert run.entries == 3
        except IndexDamagedError:
            pass
