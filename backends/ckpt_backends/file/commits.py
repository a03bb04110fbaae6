"""One file per commit: the whole delta, sorted by key, with an index that finds a key without reading it all.

```
offset  bytes
0       4     magic "ckpt"
4       1     "c": a commit's file
5       1     format version, 1
6       2     zero
8       8     number of records n
16      8     length of all records
24      4     length of the description
28      4     zero
32      8     xxh3-64 of the index
40      8     xxh3-64 of bytes 0 to 40 and the description
48            description: a JSON object (namespace, id, version, base, sequence, replaces)
              n records in ascending order of their keys
              index: n hashes (xxh3-64 of the key) in ascending order, then the n offsets of their records
```
A record is `key length (4), 1 if deleted (4), value length (8), xxh3-64 of these and what follows (8), key,
value`; offsets count from the start of the file. Records and index can each be told right without the other,
so a damaged record hurts its own key only, and a damaged index nothing. All numbers are little-endian.
"""

from __future__ import annotations

import heapq
import json
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

import numpy as np
import numpy.typing as npt
import xxhash

from ckpt.contract.disk import Disk
from ckpt.contract.versions import Commit
from ckpt.types import CommitId
from ckpt_backends.file.records import DamagedFileError

_HEADER = struct.Struct("<4sBBHQQIIQ")
_CHECKSUM = struct.Struct("<Q")
_FIXED_BYTES = _HEADER.size + _CHECKSUM.size
_RECORD = struct.Struct("<IIQ")
_RECORD_BYTES = _RECORD.size + _CHECKSUM.size
_MAGIC, _KIND, _FORMAT = b"ckpt", ord("c"), 1
_CHUNK_BYTES = 1 << 18

Change = tuple[bytes, bytes | None]
"""A key and its new value, or None where the commit deletes it."""


def write_commit(disk: Disk, fd: int, namespace: str, commit: Commit, changes: Iterable[Change]) -> None:
    """Write a commit's file; the changes come in ascending order of their keys, each key once."""
    description = json.dumps({"namespace": namespace, **asdict(commit)}, sort_keys=True).encode()
    start = end = written = _FIXED_BYTES + len(description)
    hashes: list[int] = []
    offsets: list[int] = []
    pending: list[bytes | memoryview] = []
    for key, value in changes:
        lengths = _RECORD.pack(len(key), value is None, len(value or b""))
        checksum = xxhash.xxh3_64(lengths)
        checksum.update(key)
        checksum.update(value or b"")
        hashes.append(xxhash.xxh3_64_intdigest(key))
        offsets.append(end)
        pending += (lengths + _CHECKSUM.pack(checksum.intdigest()), key, value or b"")
        end += _RECORD_BYTES + len(key) + len(value or b"")
        if end - written >= _CHUNK_BYTES:
            written += disk.pwrite(fd, pending, written)
            pending.clear()
    order = np.argsort(np.array(hashes, dtype="<u8"), kind="stable")
    columns = (np.array(hashes, dtype="<u8")[order], np.array(offsets, dtype="<u8")[order])
    index = b"".join(column.tobytes() for column in columns)
    disk.pwrite(fd, [*pending, index], written)
    header = _HEADER.pack(
        _MAGIC,
        _KIND,
        _FORMAT,
        0,
        len(hashes),
        end - start,
        len(description),
        0,
        xxhash.xxh3_64_intdigest(index),
    )
    seal = _CHECKSUM.pack(xxhash.xxh3_64_intdigest(header + description))
    disk.pwrite(fd, [header, seal, description], 0)


class CommitFile:
    """One commit's file, read: its description now, its index on first use, its records when asked for."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._index: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]] | None = None
        fd = self.open()
        try:
            self._read_description(fd)
        finally:
            disk.close(fd)

    def open(self) -> int:
        """A descriptor of the file; the caller closes it."""
        return self._disk.open(self.path, os.O_RDONLY)

    def find(self, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """What this commit does to those keys; the others are left out. Opens the file only if it must."""
        hashes, offsets = self._loaded_index()
        wanted = np.array([xxhash.xxh3_64_intdigest(key) for key in keys], dtype=np.uint64)
        first = np.searchsorted(hashes, wanted, "left").tolist()
        last = np.searchsorted(hashes, wanted, "right").tolist()
        hits = [(key, a, b) for key, a, b in zip(keys, first, last, strict=True) if a < b]
        if not hits:
            return {}
        found: dict[bytes, bytes | None] = {}
        fd = self.open()
        try:
            for key, a, b in hits:
                for offset in offsets[a:b].tolist():
                    stored, value, _ = self._record(fd, offset, b"")
                    if stored == key:
                        found[key] = value
        finally:
            self._disk.close(fd)
        return found

    def changes(self, fd: int) -> Iterator[Change]:
        """Every change in ascending order of keys; DamagedFileError where one cannot be read."""
        offset = self._start
        chunk, chunk_start = b"", offset
        while offset < self._end:
            if offset + _RECORD_BYTES > chunk_start + len(chunk):
                chunk, chunk_start = self._disk.pread(fd, _CHUNK_BYTES, offset), offset
            key, value, size = self._record(fd, offset, memoryview(chunk)[offset - chunk_start :])
            yield key, value
            offset += size

    def check(self) -> list[str]:
        """Read everything; what is wrong with it."""
        reasons = []
        fd = self.open()
        try:
            try:
                if sum(1 for _ in self.changes(fd)) != self.count:
                    reasons.append("the number of its records is not what its header says")
            except DamagedFileError as damage:
                reasons.append(str(damage))
            try:
                self._read_index(fd)
            except DamagedFileError as damage:
                reasons.append(str(damage))
        finally:
            self._disk.close(fd)
        return reasons

    # -- parts of the file -----------------------------------------------------------------------

    def _read_description(self, fd: int) -> None:
        size = os.fstat(fd).st_size
        fixed = self._disk.pread(fd, _FIXED_BYTES, 0)
        if len(fixed) < _FIXED_BYTES:
            raise DamagedFileError(f"{len(fixed)} bytes are too few for a commit")
        header = _HEADER.unpack_from(fixed)
        magic, kind, version, _, count, records_bytes, description_bytes, _, index_checksum = header
        if (magic, kind, version) != (_MAGIC, _KIND, _FORMAT):
            raise DamagedFileError("it does not begin like a commit of this format")
        if size != _FIXED_BYTES + description_bytes + records_bytes + 16 * count:
            raise DamagedFileError(f"it is {size} bytes long, which its header contradicts")
        description = self._disk.pread(fd, description_bytes, _FIXED_BYTES)
        if (
            xxhash.xxh3_64_intdigest(fixed[: _HEADER.size] + description)
            != _CHECKSUM.unpack_from(fixed, _HEADER.size)[0]
        ):
            raise DamagedFileError("the checksum of its description does not match")
        fields = json.loads(description)
        self.namespace: str = fields.pop("namespace")
        base = fields.pop("base")
        self.commit = Commit(
            id=CommitId(fields.pop("id")), base=None if base is None else CommitId(base), **fields
        )
        self.count = count
        self._start = _FIXED_BYTES + description_bytes
        self._end = self._start + records_bytes
        self._index_checksum = index_checksum

    def _loaded_index(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        if self._index is None:
            fd = self.open()
            try:
                self._index = self._read_index(fd)
            except DamagedFileError:
                self._index = self._rebuilt_index(fd)
            finally:
                self._disk.close(fd)
        return self._index

    def _read_index(self, fd: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        data = self._disk.pread(fd, 16 * self.count, self._end)
        if xxhash.xxh3_64_intdigest(data) != self._index_checksum:
            raise DamagedFileError("the checksum of its index does not match")
        columns = np.frombuffer(data, dtype="<u8").astype(np.uint64)
        return columns[: self.count], columns[self.count :]

    def _rebuilt_index(self, fd: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        hashes, offsets, offset = [], [], self._start
        while offset < self._end:
            key, _, size = self._record(fd, offset, b"")
            hashes.append(xxhash.xxh3_64_intdigest(key))
            offsets.append(offset)
            offset += size
        order = np.argsort(np.array(hashes, dtype=np.uint64), kind="stable")
        return np.array(hashes, dtype=np.uint64)[order], np.array(offsets, dtype=np.uint64)[order]

    def _record(self, fd: int, offset: int, ahead: bytes | memoryview) -> tuple[bytes, bytes | None, int]:
        """The key, value and size of the record at an offset, from what was read ahead if that is enough."""
        head = ahead[:_RECORD_BYTES]
        if len(head) < _RECORD_BYTES:
            head = self._disk.pread(fd, _RECORD_BYTES, offset)
        if len(head) < _RECORD_BYTES or offset + _RECORD_BYTES > self._end:
            raise DamagedFileError(f"the record at offset {offset} is cut off")
        key_bytes, deleted, value_bytes = _RECORD.unpack_from(head)
        size = _RECORD_BYTES + key_bytes + value_bytes
        if offset + size > self._end:
            raise DamagedFileError(f"the record at offset {offset} has a length that cannot be right")
        body = ahead[_RECORD_BYTES:size]
        if len(body) < size - _RECORD_BYTES:
            body = self._disk.pread(fd, size - _RECORD_BYTES, offset + _RECORD_BYTES)
        checksum = xxhash.xxh3_64(head[: _RECORD.size])
        checksum.update(body)
        if checksum.intdigest() != _CHECKSUM.unpack_from(head, _RECORD.size)[0]:
            raise DamagedFileError(f"the checksum of the record at offset {offset} does not match")
        key = bytes(body[:key_bytes])
        return key, None if deleted else bytes(body[key_bytes:]), size


def squashed(chain: Sequence[Iterator[Change]]) -> Iterator[tuple[bytes, bytes]]:
    """The state that deltas add up to, newest first, in ascending order of keys.

    Examples
    --------
    >>> newer = [(b"a", None), (b"b", b"2")]
    >>> older = [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]
    >>> list(squashed([iter(newer), iter(older)]))
    [(b'b', b'2'), (b'c', b'1')]
    """

    def aged(age: int, changes: Iterator[Change]) -> Iterator[tuple[bytes, int, bytes | None]]:
        return ((key, age, value) for key, value in changes)

    last: bytes | None = None
    for key, _, value in heapq.merge(*(aged(age, changes) for age, changes in enumerate(chain))):
        if key != last:
            last = key
            if value is not None:
                yield key, value
