"""The frames between a client and its sidecar: every length is checked before anything is made of it.

This is the only place that knows the bytes; `docs/protocol.md` is their specification. Nothing here touches a
socket: what arrives is decoded from one buffer, what leaves is a list of buffers for one `sendmsg`.

```
hello       magic "CKPT" · version u16 · flags u16 · token str
request     length u32 of what follows · operation u8 · request id u64 · body
response    length u32 of what follows · status u8 · request id u64 · body
row block   count u32 · key lengths u32 x count · value lengths u32 x count · keys · values
key block   count u32 · key lengths u32 x count · keys
str         length u16 · UTF-8
```

Numbers are unsigned and little endian. Rows stay columns: a block is sliced out of its frame, not read row by
row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from ckpt.contract.versions import Commit
from ckpt.errors import (
    BackendUnavailableError,
    CkptError,
    ConfigError,
    CorruptRecordError,
    FencedError,
    UnsupportedError,
    VersionNotFoundError,
)
from ckpt.types import Block, CommitId, cut, lengths_of

MAGIC = b"CKPT"
PROTOCOL_VERSION = 1
"""The newest version that this side speaks."""
OLDEST_VERSION = 1
"""The version before it, if there is one: hosts are upgraded one after the other."""
LIFELINE = 1
"""The flag of a connection that carries no requests and keeps a sidecar alive."""
MAX_TOKEN_BYTES = 1024
MAX_MESSAGE_BYTES = 4096
NEWEST = 2**64 - 1

HELLO = struct.Struct("<4sHHH")
"""Magic, version, flags, length of the token."""
HEAD = struct.Struct("<IBQ")
"""The head of requests and responses alike."""
ID_BYTES = HEAD.size - 4
"""What a frame's length covers before its body."""

_U16, _U32, _U64 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q")
_F64 = struct.Struct("<d")
_U32_COLUMN = np.dtype("<u4")

Buffer = bytes | memoryview


class ProtocolError(ConfigError):
    """These bytes are no frame of this protocol."""


class RequestCode(IntEnum):
    """What a client may ask."""

    PING = 1
    COMMIT = 2
    LOAD = 3
    GET = 4
    HISTORY = 5
    TRUNCATE = 6
    DROP = 7
    NAMESPACES = 8
    STATS = 9
    STAGE = 10


class ResponseStatus(IntEnum):
    """What a response is."""

    DONE = 0
    PART = 1
    ERROR = 2
    FATAL = 3


class ErrorKind(IntEnum):
    """Which exception an error frame stands for."""

    CONFIG = 1
    UNAVAILABLE = 2
    CORRUPT = 3
    FENCED = 4
    UNSUPPORTED = 5
    VERSION_NOT_FOUND = 6
    PROTOCOL = 7
    TOKEN = 8
    OTHER = 9


_KINDS: tuple[tuple[type[CkptError], ErrorKind], ...] = (
    (ProtocolError, ErrorKind.PROTOCOL),
    (ConfigError, ErrorKind.CONFIG),
    (BackendUnavailableError, ErrorKind.UNAVAILABLE),
    (CorruptRecordError, ErrorKind.CORRUPT),
    (FencedError, ErrorKind.FENCED),
    (UnsupportedError, ErrorKind.UNSUPPORTED),
    (VersionNotFoundError, ErrorKind.VERSION_NOT_FOUND),
)
_EXCEPTIONS: dict[int, type[CkptError]] = {ErrorKind.TOKEN: ConfigError, **{int(k): e for e, k in _KINDS}}


class FrameFields:
    """The fields of one body, one after the other; a field that would end behind the body is an error."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, not copied."""
        end = self._at + size
        if end > len(self._body):
            raise ProtocolError(f"a field of {size} bytes at {self._at} ends behind its frame")
        piece = self._body[self._at : end]
        self._at = end
        return piece

    def number(self, form: struct.Struct) -> int:
        """The next number."""
        found: int = form.unpack(self.take(form.size))[0]
        return found

    def text(self) -> str:
        """The next `str`."""
        try:
            return str(self.take(self.number(_U16)), "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("a text is not UTF-8") from None

    def optional_text(self) -> str | None:
        """The next `str`, in which empty means none."""
        return self.text() or None

    def optional_version(self) -> int | None:
        """The next version, in which the largest number means the newest."""
        version = self.number(_U64)
        return None if version == NEWEST else version

    def float(self) -> float:
        """The next `f64`."""
        found: float = _F64.unpack(self.take(_F64.size))[0]
        return found

    def _lengths(self, count: int) -> npt.NDArray[np.uint32]:
        return np.frombuffer(self.take(4 * count), _U32_COLUMN)

    def _blob(self, lengths: npt.NDArray[np.uint32]) -> memoryview:
        # The sum is taken in 64 bits: no choice of lengths can wrap it around.
        return self.take(int(lengths.sum(dtype=np.uint64)))

    def rows(self) -> Block:
        """The next row block, its keys and values not copied."""
        count = self.number(_U32)
        key_lengths, value_lengths = self._lengths(count), self._lengths(count)
        return Block(key_lengths, value_lengths, self._blob(key_lengths), self._blob(value_lengths))

    def keys(self) -> list[bytes]:
        """The next key block."""
        count = self.number(_U32)
        if not count:
            return []  # as in most commits
        lengths = self._lengths(count)
        return cut(self._blob(lengths), lengths)

    def end(self) -> None:
        """Raise unless the whole body was read."""
        if self._at != len(self._body):
            raise ProtocolError(f"{len(self._body) - self._at} bytes too many in a frame")


# -- encoding of fields --------------------------------------------------------------------------


def text(value: str) -> bytes:
    """A `str` field.

    Examples
    --------
    >>> text("be")
    b'\\x02\\x00be'
    """
    raw = value.encode()
    if len(raw) > 0xFFFF:
        raise ConfigError(f"a text of {len(raw)} bytes does not fit into a frame; at most 65535 do")
    return _U16.pack(len(raw)) + raw


def version_field(version: int | None) -> bytes:
    """A version field; None is the newest."""
    if version is not None and not 0 <= version < NEWEST:
        raise ConfigError(f"a version is a whole number from 0, got {version!r}")
    return _U64.pack(NEWEST if version is None else version)


def row_block(block: Block) -> list[Buffer]:
    """The buffers of a row block."""
    return [
        _U32.pack(len(block)),
        block.key_lengths.astype(_U32_COLUMN, copy=False).tobytes(),
        block.value_lengths.astype(_U32_COLUMN, copy=False).tobytes(),
        block.keys,
        block.values,
    ]


def row_block_bytes(block: Block) -> int:
    """How long the row block of these rows is."""
    return 4 + 8 * len(block) + block.total_bytes


def key_block(keys: Sequence[bytes]) -> list[Buffer]:
    """The buffers of a key block."""
    listed = list(keys)
    return [
        _U32.pack(len(listed)),
        lengths_of(listed).astype(_U32_COLUMN, copy=False).tobytes(),
        b"".join(listed),
    ]


def frame(code: int, request_id: int, body: Iterable[Buffer] = ()) -> list[Buffer]:
    """A whole request or response: its head, and its body behind it."""
    parts = list(body)
    length = ID_BYTES + sum(map(len, parts))
    if length > 0xFFFFFFFF:
        raise ConfigError(f"{length} bytes do not fit into one frame; commit less at once")
    return [HEAD.pack(length, code, request_id), *parts]


# -- hello ---------------------------------------------------------------------------------------


def agreed_version(hello: int) -> int:
    """The highest version that both sides know, by what a client says; ProtocolError if there is none.

    Examples
    --------
    >>> agreed_version(PROTOCOL_VERSION + 1) == PROTOCOL_VERSION
    True
    """
    if hello < OLDEST_VERSION:
        raise ProtocolError(
            f"the client speaks version {hello} of the protocol, and the oldest that this sidecar speaks is "
            f"{OLDEST_VERSION}; install the same version of ckpt on both sides"
        )
    return min(hello, PROTOCOL_VERSION)


def encode_hello(token: str = "", *, lifeline: bool = False) -> bytes:
    """What a client says first."""
    raw = token.encode()
    if len(raw) > MAX_TOKEN_BYTES:
        raise ConfigError(f"a token is at most {MAX_TOKEN_BYTES} bytes long, this one has {len(raw)}")
    return HELLO.pack(MAGIC, PROTOCOL_VERSION, LIFELINE if lifeline else 0, len(raw)) + raw


@dataclass(frozen=True, slots=True)
class Welcome:
    """What the server answers to a hello."""

    version: int
    """The highest version that both sides know."""
    max_frame_bytes: int
    address: str
    """The address of the backend, without secrets."""

    def encode(self) -> list[Buffer]:
        """The body of the answer."""
        return [_U16.pack(self.version), _U32.pack(self.max_frame_bytes), text(self.address)]

    @classmethod
    def decode(cls, body: memoryview) -> Welcome:
        """The inverse of `encode`."""
        fields = FrameFields(body)
        welcome = cls(fields.number(_U16), fields.number(_U32), fields.text())
        fields.end()
        return welcome


# -- errors --------------------------------------------------------------------------------------


def kind_of(error: BaseException) -> ErrorKind:
    """The kind that tells a client which exception this was."""
    return next((kind for known, kind in _KINDS if isinstance(error, known)), ErrorKind.OTHER)


def encode_error(kind: ErrorKind, message: str) -> list[Buffer]:
    """The body of an error frame; a long message is cut."""
    raw = message.encode("utf-8", "replace")[:MAX_MESSAGE_BYTES]
    return [_U16.pack(kind), text(raw.decode("utf-8", "ignore"))]


def decode_error(body: memoryview) -> CkptError:
    """The exception that an error frame stands for."""
    fields = FrameFields(body)
    kind, message = fields.number(_U16), fields.text()
    fields.end()
    return _EXCEPTIONS.get(kind, CkptError)(message)


# -- answers -------------------------------------------------------------------------------------


def encode_history(commits: Sequence[Commit], tip: str) -> list[Buffer]:
    """The body that answers HISTORY."""
    parts = [_U32.pack(len(commits))]
    for commit in commits:
        parts += [text(commit.id), _U64.pack(commit.version), text(commit.base or "")]
    return [b"".join([*parts, text(tip)])]


def decode_history(body: memoryview) -> tuple[list[Commit], CommitId | None]:
    """Commits in the order of the answer, and the tip."""
    fields = FrameFields(body)
    commits = []
    for sequence in range(1, fields.number(_U32) + 1):
        commit_id, version, base = CommitId(fields.text()), fields.number(_U64), fields.optional_text()
        commits.append(Commit(commit_id, version, CommitId(base) if base else None, sequence))
    tip = fields.optional_text()
    fields.end()
    return commits, CommitId(tip) if tip else None


def encode_names(names: Sequence[str]) -> list[Buffer]:
    """The body that answers NAMESPACES."""
    return [b"".join([_U32.pack(len(names)), *map(text, names)])]


def decode_names(body: memoryview) -> list[str]:
    """The inverse of `encode_names`."""
    fields = FrameFields(body)
    names = [fields.text() for _ in range(fields.number(_U32))]
    fields.end()
    return names


def encode_stats(stats: dict[str, float]) -> list[Buffer]:
    """The body that answers STATS."""
    parts = [_U32.pack(len(stats))]
    for name, value in stats.items():
        parts += [text(name), _F64.pack(value)]
    return [b"".join(parts)]


def decode_stats(body: memoryview) -> dict[str, float]:
    """The inverse of `encode_stats`."""
    fields = FrameFields(body)
    stats = {fields.text(): fields.float() for _ in range(fields.number(_U32))}
    fields.end()
    return stats


def encode_rows_in_all(rows: int) -> list[Buffer]:
    """The last body that answers LOAD and GET."""
    return [_U64.pack(rows)]


def decode_rows_in_all(body: memoryview) -> int:
    """The inverse of `encode_rows_in_all`."""
    fields = FrameFields(body)
    rows = fields.number(_U64)
    fields.end()
    return rows


def decode_rows(body: memoryview) -> Block:
    """A part of the answer to LOAD or GET."""
    fields = FrameFields(body)
    block = fields.rows()
    fields.end()
    return block


def encode_committed(commit_id: str, durable_writes: int) -> list[Buffer]:
    """The body that answers COMMIT."""
    return [text(commit_id), _U32.pack(durable_writes)]


def decode_committed(body: memoryview) -> tuple[str, int]:
    """The inverse of `encode_committed`."""
    fields = FrameFields(body)
    committed = fields.text(), fields.number(_U32)
    fields.end()
    return committed
