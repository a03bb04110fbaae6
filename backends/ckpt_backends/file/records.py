"""The bytes of small files: a changed or missing byte anywhere is noticed when the file is read.

A key's file holds the whole key, so that a name alone never decides which key it is:

```
offset  bytes
0       4     magic "ckpt"
4       1     "k": a key's file
5       1     format version, 1
6       2     zero
8       4     length of the key
12      8     length of the value
20      8     when it expires, seconds since 1970 (IEEE 754), or 0 for never
28      8     xxh3-64 of bytes 0 to 28, the key and the value
36            key, value; nothing follows
```

Other small files (format, namespace, owner, truncation) are one line of text: the xxh3-64 of the rest in
sixteen digits, a space, a JSON object. All numbers are little-endian.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from ckpt.contract.disk import Disk
from ckpt.errors import CorruptRecordError

_HEADER = struct.Struct("<4sBBHIQd")
_CHECKSUM = struct.Struct("<Q")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_MAGIC, _KIND, _FORMAT = b"ckpt", ord("k"), 1


class DamagedFileError(Exception):
    """A file is not what was written; its message is the reason. The caller knows path, namespace and key."""


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What a key's file holds."""

    key: bytes
    value: bytes
    expires_s: float | None

    def alive(self, now_s: float) -> bool:
        return self.expires_s is None or now_s < self.expires_s


def encode_record(key: bytes, value: bytes | memoryview, expires_s: float | None) -> list[bytes | memoryview]:
    """The buffers of a key's file.

    Examples
    --------
    >>> decode_record(b"".join(encode_record(b"be", b"2", None)))
    KeyRecord(key=b'be', value=b'2', expires_s=None)
    """
    header = _HEADER.pack(_MAGIC, _KIND, _FORMAT, 0, len(key), len(value), expires_s or 0.0)
    checksum = xxhash.xxh3_64(header)
    checksum.update(key)
    checksum.update(value)
    return [header + _CHECKSUM.pack(checksum.intdigest()), key, value]


def decode_record(data: bytes) -> KeyRecord:
    """What a key's file holds, or DamagedFileError."""
    if len(data) < HEADER_BYTES:
        raise DamagedFileError(f"{len(data)} bytes are too few for a record")
    magic, kind, version, _, key_bytes, value_bytes, expires_s = _HEADER.unpack_from(data)
    if (magic, kind, version) != (_MAGIC, _KIND, _FORMAT):
        raise DamagedFileError("it does not begin like a record of this format")
    if len(data) != HEADER_BYTES + key_bytes + value_bytes:
        raise DamagedFileError(f"it is {len(data)} bytes long, which its header contradicts")
    checksum = xxhash.xxh3_64(memoryview(data)[: _HEADER.size])
    checksum.update(memoryview(data)[HEADER_BYTES:])
    if checksum.intdigest() != _CHECKSUM.unpack_from(data, _HEADER.size)[0]:
        raise DamagedFileError("its checksum does not match")
    key = data[HEADER_BYTES : HEADER_BYTES + key_bytes]
    return KeyRecord(key, data[HEADER_BYTES + key_bytes :], expires_s or None)


def encode_note(fields: Mapping[str, Any]) -> bytes:
    """A small JSON object, sealed by a checksum."""
    text = json.dumps(fields, sort_keys=True)
    return f"{xxhash.xxh3_64_hexdigest(text.encode())} {text}\n".encode()


def decode_note(data: bytes) -> dict[str, Any]:
    """The object, or DamagedFileError.

    Examples
    --------
    >>> decode_note(encode_note({"epoch": 3}))
    {'epoch': 3}
    """
    checksum, _, rest = data.partition(b" ")
    if not rest.endswith(b"\n") or xxhash.xxh3_64_hexdigest(rest[:-1]).encode() != checksum:
        raise DamagedFileError("its checksum does not match")
    fields = json.loads(rest)
    if not isinstance(fields, dict):
        raise DamagedFileError("it is not an object")
    return fields


def read_whole(disk: Disk, path: str) -> bytes | None:
    """The contents of a file, or None if there is none."""
    try:
        fd = disk.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return disk.pread(fd, os.fstat(fd).st_size, 0)
    except OSError as error:
        error.filename = error.filename or path
        raise
    finally:
        disk.close(fd)


def read_note(disk: Disk, path: str, namespace: str | None = None) -> dict[str, Any] | None:
    """The object in a small file, or None if there is no file; CorruptRecordError if it is damaged."""
    data = read_whole(disk, path)
    if data is None:
        return None
    try:
        return decode_note(data)
    except DamagedFileError as damage:
        raise CorruptRecordError(f"{path} (namespace {namespace!r}): {damage}; run `ckpt repair`") from damage


class Aside:
    """Writes files in a folder that is never read, then renames them: no file is ever half visible."""

    def __init__(self, disk: Disk, directory: str, token: str) -> None:
        self.directory = directory
        self._disk = disk
        self._token = token
        self._numbers = itertools.count()

    def path(self) -> str:
        """A new name in the directory, unique among all processes."""
        return os.path.join(self.directory, f"{self._token}-{next(self._numbers)}")

    def write(self, buffers: Sequence[bytes | memoryview], *, durable: bool) -> str:
        """Write a file aside and return its path; nothing is left behind if that fails."""
        path = self.path()
        fd = self._disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                self._disk.pwrite(fd, buffers, 0)
                if durable:
                    self._disk.sync(fd)
            finally:
                self._disk.close(fd)
        except BaseException as error:
            self.discard([path])
            if isinstance(error, OSError):
                error.filename = error.filename or path
            raise
        return path

    def replace(self, path: str, buffers: Sequence[bytes | memoryview], *, durable: bool) -> None:
        """Atomically replace one file."""
        aside = self.write(buffers, durable=durable)
        try:
            self._disk.rename(aside, path)
        except BaseException:
            self.discard([aside])
            raise
        if durable:
            self._disk.sync_dir(os.path.dirname(path))

    def discard(self, paths: Sequence[str]) -> None:
        """Remove what was written aside; what cannot be removed now is removed at a later open."""
        for path in paths:
            with contextlib.suppress(OSError):
                self._disk.unlink(path)


def remove_tree(disk: Disk, path: str, *, keep_root: bool = False) -> None:
    """Remove a directory with everything in it, through the disk; one that is gone is no error."""
    try:
        with os.scandir(path) as found:
            entries = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in found]
    except FileNotFoundError:
        return
    for entry_path, is_directory in entries:
        if is_directory:
            remove_tree(disk, entry_path)
        else:
            disk.unlink(entry_path)
    if not keep_root:
        disk.rmdir(path)
