"""The bytes of the file backend: what is written is read back, and nothing else is believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.contract.disk import Disk
from ckpt.contract.versions import Commit
from ckpt.types import CommitId
from ckpt_backends.file.commits import CommitFile, squashed, write_commit
from ckpt_backends.file.names import SPELLED_BYTES, file_name, spelled_key
from ckpt_backends.file.records import (
    DamagedFileError,
    KeyRecord,
    decode_note,
    decode_record,
    encode_note,
    encode_record,
)

deltas = st.dictionaries(st.binary(max_size=12), st.none() | st.binary(max_size=60), max_size=12)


@given(st.binary(max_size=2 * SPELLED_BYTES), st.binary(max_size=2 * SPELLED_BYTES))
def test_names_are_unique_and_spell_short_keys(one: bytes, other: bytes) -> None:
    name = file_name(one)
    assert (name.casefold() == file_name(other).casefold()) == (one == other)
    assert name.isascii()
    assert name.isalnum()
    assert len(name) <= 140
    assert spelled_key(name) == (one if len(one) <= SPELLED_BYTES else None)


@given(st.text(max_size=20))
def test_other_names_are_refused(name: str) -> None:
    try:
        key = spelled_key(name)
    except ValueError:
        return
    assert key is None or file_name(key) == name


@pytest.mark.parametrize(
    "name", ["", "x", "K", "k1", "kDDINI", "kddini=", "h" + "0" * 63, "h" + "g" * 64, "lock"]
)
def test_what_looks_like_a_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a key"):
        spelled_key(name)


@given(st.binary(max_size=200), st.binary(max_size=200), st.none() | st.floats(1, 1e12))
def test_records_are_read_back(key: bytes, value: bytes, expires_s: float | None) -> None:
    data = b"".join(encode_record(key, value, expires_s))
    assert decode_record(data) == KeyRecord(key, value, expires_s)


@given(st.binary(max_size=20), st.binary(max_size=20), st.data())
def test_a_changed_record_is_refused(key: bytes, value: bytes, data: st.DataObject) -> None:
    good = b"".join(encode_record(key, value, None))
    bit = data.draw(st.integers(0, len(good) * 8 - 1))
    flipped = bytearray(good)
    flipped[bit // 8] ^= 1 << bit % 8
    cut = data.draw(st.integers(0, len(good) - 1))
    for bad in (bytes(flipped), good[:cut], good + b"\0"):
        with pytest.raises(DamagedFileError):
            decode_record(bad)


@given(st.binary(max_size=100))
def test_garbage_is_no_record_and_no_note(garbage: bytes) -> None:
    with pytest.raises(DamagedFileError):
        decode_record(garbage)
    with pytest.raises(DamagedFileError):
        decode_note(garbage)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.integers() | st.none()))
def test_notes_are_read_back(fields: dict[str, object]) -> None:
    assert decode_note(encode_note(fields)) == fields


@given(deltas)
def test_commits_are_read_back(delta: dict[bytes, bytes | None]) -> None:
    commit = Commit(CommitId("id"), 7, CommitId("base"), 3, replaces=True)
    fd = os.memfd_create("commit")
    try:
        write_commit(Disk(), fd, "wörds", commit, sorted(delta.items()))
        file = CommitFile(Disk(), f"/proc/self/fd/{fd}")
        assert (file.namespace, file.commit) == ("wörds", commit)
        assert dict(file.changes(fd)) == delta
        assert [key for key, _ in file.changes(fd)] == sorted(delta)
        assert file.find([*delta, b"never there, for it is too long"]) == delta
        assert file.check() == []
    finally:
        os.close(fd)


def test_records_larger_than_what_is_read_ahead(tmp_path: Path) -> None:
    delta: dict[bytes, bytes | None] = {b"%05d" % n: bytes([n % 256]) * (n * 37 % 5000) for n in range(500)}
    delta[b"big"] = os.urandom(1 << 20)
    path = tmp_path / "commit"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        write_commit(Disk(), fd, "words", Commit(CommitId("id"), 1, None, 1), sorted(delta.items()))
        file = CommitFile(Disk(), str(path))
        assert dict(file.changes(fd)) == delta
        assert file.find([b"big", b"00499"]) == {b"big": delta[b"big"], b"00499": delta[b"00499"]}
    finally:
        os.close(fd)


def test_a_damaged_record_of_a_commit_hurts_its_own_key_only(tmp_path: Path) -> None:
    path = tmp_path / "commit"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        delta = {b"a": b"first value", b"b": b"second value", b"c": b"third value"}
        write_commit(Disk(), fd, "words", Commit(CommitId("id"), 1, None, 1), sorted(delta.items()))
        path.write_bytes(path.read_bytes().replace(b"second", b"SECOND"))
        file = CommitFile(Disk(), str(path))
        assert file.find([b"a", b"c", b"d"]) == {b"a": b"first value", b"c": b"third value"}
        with pytest.raises(DamagedFileError, match="checksum of the record"):
            file.find([b"b"])
        with pytest.raises(DamagedFileError):
            list(file.changes(fd))
    finally:
        os.close(fd)


def test_a_damaged_index_of_a_commit_hurts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "commit"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        delta = {b"a": b"1", b"b": b"2"}
        write_commit(Disk(), fd, "words", Commit(CommitId("id"), 1, None, 1), sorted(delta.items()))
        data = bytearray(path.read_bytes())
        data[-20] ^= 0xFF
        path.write_bytes(data)
        file = CommitFile(Disk(), str(path))
        assert file.find([b"a", b"b", b"c"]) == delta
        assert file.check() == ["the checksum of its index does not match"]
    finally:
        os.close(fd)


@given(st.lists(deltas, max_size=5))
def test_squashing_is_applying_deltas_in_order(chain: list[dict[bytes, bytes | None]]) -> None:
    state: dict[bytes, bytes | None] = {}
    for delta in chain:
        state |= delta
    expected = sorted((key, value) for key, value in state.items() if value is not None)
    assert list(squashed([iter(sorted(delta.items())) for delta in reversed(chain)])) == expected
