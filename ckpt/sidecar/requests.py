"""Requests as they are asked and understood: what `encode` writes is what `decode` reads, or an error."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from ckpt.errors import ConfigError
from ckpt.sidecar.frames import (
    Buffer,
    FrameFields,
    ProtocolError,
    RequestCode,
    key_block,
    row_block,
    text,
    version_field,
)
from ckpt.types import Block

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_SMALL_BYTES = 256 << 10
"""More than any request without rows and keys can be long: three texts and a few numbers."""


@dataclass(frozen=True, slots=True)
class _Bare:
    """A request that says nothing but what it is."""

    def encode(self) -> list[Buffer]:
        """The body."""
        return []

    @classmethod
    def decode(cls, fields: FrameFields) -> Self:
        """The inverse of `encode`."""
        del fields
        return cls()


@dataclass(frozen=True, slots=True)
class PingRequest(_Bare):
    """Does the sidecar answer?"""

    operation: ClassVar[RequestCode] = RequestCode.PING


@dataclass(frozen=True, slots=True)
class StatsRequest(_Bare):
    """The numbers of the sidecar."""

    operation: ClassVar[RequestCode] = RequestCode.STATS


@dataclass(frozen=True, slots=True)
class _OfOneNamespace:
    """A request that only names a namespace."""

    namespace: str

    def encode(self) -> list[Buffer]:
        """The body."""
        return [text(self.namespace)]

    @classmethod
    def decode(cls, fields: FrameFields) -> Self:
        """The inverse of `encode`."""
        return cls(fields.text())


@dataclass(frozen=True, slots=True)
class HistoryRequest(_OfOneNamespace):
    """The commits of a namespace."""

    operation: ClassVar[RequestCode] = RequestCode.HISTORY


@dataclass(frozen=True, slots=True)
class DropRequest(_OfOneNamespace):
    """Remove a namespace with everything in it."""

    operation: ClassVar[RequestCode] = RequestCode.DROP


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Add one commit to a versioned namespace, durably."""

    operation: ClassVar[RequestCode] = RequestCode.COMMIT
    namespace: str
    version: int
    base: str | None
    commit_id: str | None
    puts: Block
    deletes: Sequence[bytes]

    def encode(self) -> list[Buffer]:
        """The body."""
        head = b"".join(
            (
                text(self.namespace),
                version_field(self.version),
                text(self.base or ""),
                text(self.commit_id or ""),
            )
        )
        return [head, *row_block(self.puts), *key_block(self.deletes)]

    @classmethod
    def decode(cls, fields: FrameFields) -> Self:
        """The inverse of `encode`."""
        return cls(
            fields.text(),
            fields.number(_U64),
            fields.optional_text(),
            fields.optional_text(),
            fields.rows(),
            fields.keys(),
        )


@dataclass(frozen=True, slots=True)
class StageRequest:
    """Rows of the commit that comes next on this connection, which would be too long for one frame."""

    operation: ClassVar[RequestCode] = RequestCode.STAGE
    puts: Block
    deletes: Sequence[bytes]

    def encode(self) -> list[Buffer]:
        """The body."""
        return [*row_block(self.puts), *key_block(self.deletes)]

    @classmethod
    def decode(cls, fields: FrameFields) -> Self:
        """The inverse of `encode`."""
        return cls(fields.rows(), fields.keys())


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Every row of one commit, in parts of about that many bytes."""

    operation: ClassVar[RequestCode] = RequestCode.LOAD
    namespace: str
    version: int | None
    commit_id: str | None
    part_bytes: int

    def encode(self) -> list[Buffer]:
        """The body."""
        if not 0 <= self.part_bytes <= 0xFFFFFFFF:
            raise ConfigError(f"part_bytes is a number of bytes below 4 GiB, got {self.part_bytes!r}")
        return [
            text(self.namespace),
            version_field(self.version),
            text(self.commit_id or ""),
            _U32.pack(self.part_bytes),
        ]

    @classmethod
    def decode(cls, fields: FrameFields) -> Self:
        """The inverse of `encode`."""
        return cls(fields.text(), fields.optional_version(), fields.optional_text(), fields.number(_U32))


@dataclass(frozen=True, slots=True)
class GetRequest:
    """The values of some keys of one commit."""

    operation: ClassVar[RequestCode] = RequestCode.GET
    namespace: str
    version: int | None
    commit_id: str | None
    keys: Sequence[bytes]

    def encode(self) -> list[Buffer]:
        """The body."""
        return [
            text(self.namespace),
            version_field(self.version),
            text(self.commit_id or ""),
            *key_block(self.keys),
        ]

    @classmethod
    def decode(cls, fields: FrameFields) -> Self:
        """The inverse of `encode`."""
        return cls(fields.text(), fields.optional_version(), fields.optional_text(), fields.keys())


@dataclass(frozen=True, slots=True)
class TruncateRequest:
    """Forget versions below one."""

    operation: ClassVar[RequestCode] = RequestCode.TRUNCATE
    namespace: str
    keep_from: int

    def encode(self) -> list[Buffer]:
        """The body."""
        return [text(self.namespace), version_field(self.keep_from)]

    @classmethod
    def decode(cls, fields: FrameFields) -> Self:
        """The inverse of `encode`."""
        return cls(fields.text(), fields.number(_U64))


@dataclass(frozen=True, slots=True)
class NamespacesRequest:
    """The namespaces whose names begin like this."""

    operation: ClassVar[RequestCode] = RequestCode.NAMESPACES
    prefix: str

    def encode(self) -> list[Buffer]:
        """The body."""
        return [text(self.prefix)]

    @classmethod
    def decode(cls, fields: FrameFields) -> Self:
        """The inverse of `encode`."""
        return cls(fields.text())


Request = (
    PingRequest
    | StageRequest
    | CommitRequest
    | LoadRequest
    | GetRequest
    | HistoryRequest
    | TruncateRequest
    | DropRequest
    | NamespacesRequest
    | StatsRequest
)

_DECODERS: dict[int, Callable[[FrameFields], Request]] = {
    kind.operation: kind.decode
    for kind in (
        PingRequest,
        StageRequest,
        CommitRequest,
        LoadRequest,
        GetRequest,
        HistoryRequest,
        TruncateRequest,
        DropRequest,
        NamespacesRequest,
        StatsRequest,
    )
}
_LONG = frozenset({RequestCode.STAGE, RequestCode.COMMIT, RequestCode.GET})


def check_body(operation: int, size: int, most_bytes: int) -> None:
    """Raise unless there is such an operation and its body may be so long.

    Examples
    --------
    >>> check_body(RequestCode.COMMIT, 1 << 20, most_bytes=1 << 30)
    >>> check_body(RequestCode.PING, 1 << 20, most_bytes=1 << 30)
    Traceback (most recent call last):
        ...
    ckpt.sidecar.frames.ProtocolError: a body of 1048576 bytes is over the limit of 262144
    """
    if operation not in _DECODERS:
        raise ProtocolError(f"there is no operation {operation} in version 1 of the protocol")
    limit = most_bytes if operation in _LONG else min(_SMALL_BYTES, most_bytes)
    if size > limit:
        raise ProtocolError(f"a body of {size} bytes is over the limit of {limit}")


def decode_request(operation: int, body: memoryview) -> Request:
    """The request that these bytes are; raises ProtocolError unless they are one, whole and nothing else."""
    fields = FrameFields(body)
    request = _DECODERS[operation](fields)
    fields.end()
    return request
