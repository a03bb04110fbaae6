"""The value envelope: a checkpoint says how to read it, and a changed byte is an error, never another value.

```
offset  bytes  field
     0      1  format             0xC7
     1      1  flags              bit 0: zstd; bit 1: AES-GCM; all others 0
     2      1  serialiser         1 msgpack, 2 json, 3 pickle
     3      1  reserved           0
     4      4  schema version     unsigned, little endian, from 1
     8      n  body
   8+n      8  checksum           xxh3-64 of everything before it, little endian
```

The body is the serialised state; with bit 0 it is one zstd frame of it that carries its content size; with
bit 1 that is encrypted in turn:

```
     0      1  length of the key id   1 to 64
     1      k  key id                 UTF-8
   1+k     12  nonce
  13+k      m  ciphertext
13+k+m     16  tag
```

The associated data of AES-GCM is: envelope bytes 0 to 7, the length of the namespace (4 bytes, little
endian), the namespace in UTF-8, the length of the key (4 bytes, little endian), the key, the key id. So a
ciphertext that is moved to another key, another namespace or another header does not decrypt.

Reading never guesses: everything is in the envelope. Pickle is refused unless the codec was made for it, and
so is what is not encrypted if the codec has a keyring: the flags are bytes that any writer of the store can
choose, so they say how to decrypt and never whether to.
"""

from __future__ import annotations

import enum
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any

import zstandard
from xxhash import xxh3_64_digest

from ckpt.errors import ConfigError, CorruptRecordError, SerializationError, shown_key
from ckpt.values.keyring import Keyring
from ckpt.values.serialisers import SERIALIZERS, Serializer, make_serializer

FORMAT = 0xC7
FLAG_ZSTD = 1
FLAG_AES_GCM = 2
HEADER = struct.Struct("<BBBBI")
CHECKSUM_BYTES = 8
OVERHEAD_BYTES = HEADER.size + CHECKSUM_BYTES
MAX_SCHEMA_VERSION = (1 << 32) - 1
MAX_STATE_BYTES = 1 << 30
"""How long one serialised state may be, before compression and after."""

_VIEW_FROM_BYTES = 4096
"""A part of a shorter envelope is cheaper to copy than to view."""
_ZSTD_FROM_BYTES = 128
"""Shorter states are stored as they are: zstd cannot make them smaller by more than its own frame."""

Migrator = Callable[[Any], Any]
"""From the plain data of one schema version to that of the next."""


class Compression(enum.StrEnum):
    """How the body is compressed."""

    ZSTD = "zstd"


class ValueCodec:
    """Encodes states into envelopes and decodes them; a decoded state is the one that was encoded.

    Parameters
    ----------
    serializer
        `msgpack` (default), `json` or `pickle`.
    state_type
        A dataclass, Struct or other annotation that states are read back as.
    schema_version
        The version of the state's shape that this program writes.
    migrators
        `{1: f, 2: g}`: f turns the plain data of version 1 into that of version 2, g into that of version 3.
    compression
        `zstd`, or None. A state that does not get smaller is stored as it is.
    keyring
        Encrypts with AES-GCM, and refuses to read what is not encrypted; None stores in the clear.
    allow_plain
        With a keyring: read also what is not encrypted. Only while a store is being converted, since a writer
        of the store can then forge any state.
    max_state_bytes
        Longer states fail at save, and envelopes that claim to hold more fail at load before allocating.

    Examples
    --------
    >>> codec = ValueCodec(schema_version=2, migrators={1: lambda old: {"count": old}})
    >>> data = codec.encode({"count": 2}, namespace="words", key=b"be")
    >>> codec.decode(data, namespace="words", key=b"be")
    {'count': 2}
    >>> old = ValueCodec().encode(7, namespace="words", key=b"be")
    >>> codec.decode(old, namespace="words", key=b"be")
    {'count': 7}
    """

    def __init__(
        self,
        serializer: str = "msgpack",
        state_type: Any = None,
        schema_version: int = 1,
        migrators: Mapping[int, Migrator] | None = None,
        compression: str | None = None,
        keyring: Keyring | None = None,
        max_state_bytes: int = MAX_STATE_BYTES,
        *,
        allow_plain: bool = False,
    ) -> None:
        if type(schema_version) is not int or not 1 <= schema_version <= MAX_SCHEMA_VERSION:
            raise ConfigError(f"schema_version is a whole number from 1, got {schema_version!r}")
        self._migrators = dict(migrators or {})
        for version, migrator in self._migrators.items():
            if type(version) is not int or not 1 <= version < schema_version or not callable(migrator):
                raise ConfigError(
                    f"migrators map a version below schema_version={schema_version} to a function, "
                    f"got {version!r}"
                )
        try:
            self._zstd = compression is not None and Compression(compression) is Compression.ZSTD
        except ValueError:
            raise ConfigError(f"compression is 'zstd' or None, got {compression!r}") from None
        if not isinstance(keyring, Keyring | None):
            raise ConfigError(f"keyring is a ckpt.Keyring or None, got {type(keyring).__name__}")
        if type(allow_plain) is not bool or (allow_plain and keyring is None):
            raise ConfigError(f"allow_plain is True or False and belongs to a keyring, got {allow_plain!r}")
        if type(max_state_bytes) is not int or not 0 < max_state_bytes <= MAX_STATE_BYTES:
            raise ConfigError(f"max_state_bytes is 1 to {MAX_STATE_BYTES}, got {max_state_bytes!r}")
        self.serializer = make_serializer(serializer, state_type)
        self.schema_version = schema_version
        self._keyring = keyring
        self._reads_plain = keyring is None or allow_plain
        self._max_state_bytes = max_state_bytes
        self._readers: dict[int, Serializer] = {self.serializer.id: self.serializer}
        for name in SERIALIZERS:
            # pickle runs code: it is never read unless this codec was made to write it
            if name not in (serializer, "pickle"):
                other = make_serializer(name, state_type)
                self._readers[other.id] = other
        self._header = HEADER.pack(FORMAT, 0, self.serializer.id, 0, schema_version)
        self._longest = max_state_bytes + OVERHEAD_BYTES
        self._plain = not self._zstd and keyring is None
        self._local = threading.local()

    # -- encoding --------------------------------------------------------------------------------

    def encode(self, state: Any, *, namespace: str, key: bytes) -> bytes:
        """The envelope of a state, or SerializationError."""
        try:
            body = self.serializer.dumps(state)
        except SerializationError as error:
            raise SerializationError(
                f"{_where(namespace, key)} cannot be saved: {error}"
            ) from error.__cause__
        if len(body) > self._max_state_bytes:
            raise SerializationError(
                f"{_where(namespace, key)} cannot be saved: its state takes {len(body)} bytes, the limit is "
                f"{self._max_state_bytes}; split it into several keys"
            )
        data = self._header + body if self._plain else self._encode_body(body, namespace, key)
        return data + xxh3_64_digest(data)[::-1]

    def _encode_body(self, body: bytes, namespace: str, key: bytes) -> bytes:
        flags = 0
        if self._zstd and len(body) >= _ZSTD_FROM_BYTES:
            packed = self._compressor().compress(body)
            if len(packed) < len(body):
                body, flags = packed, FLAG_ZSTD
        if self._keyring is not None:
            flags |= FLAG_AES_GCM
        header = HEADER.pack(FORMAT, flags, self.serializer.id, 0, self.schema_version)
        if self._keyring is not None:
            body = self._keyring.encrypt(body, _associated(header, namespace, key))
        return header + body

    # -- decoding --------------------------------------------------------------------------------

    def decode(self, data: bytes | bytearray | memoryview, *, namespace: str, key: bytes) -> Any:
        """The state of an envelope: CorruptRecordError if a byte changed, else SerializationError."""
        try:
            # What this codec itself writes without zstd and AES-GCM, which nearly every value is: its header
            # says all that `_decode` would find out. Anything else, damage included, is left to that.
            if (
                self._reads_plain
                and type(data) is bytes
                and data.startswith(self._header)
                and len(data) <= self._longest
            ):
                plain = data if len(data) < _VIEW_FROM_BYTES else memoryview(data)
                checked = plain[:-CHECKSUM_BYTES]
                if data.endswith(xxh3_64_digest(checked)[::-1]):
                    return self.serializer.loads(checked[HEADER.size :])
            return self._decode(memoryview(data), namespace, key)
        except (CorruptRecordError, SerializationError) as error:
            reason = f"{_where(namespace, key)} cannot be read: {error}"
            raise type(error)(reason) from error.__cause__

    def _decode(self, data: memoryview, namespace: str, key: bytes) -> Any:
        flags, serializer_id, version = check_envelope(data)
        body = data[HEADER.size : -CHECKSUM_BYTES]
        if flags & FLAG_AES_GCM:
            if self._keyring is None:
                raise SerializationError("it is encrypted; give the codec a keyring")
            body = memoryview(self._keyring.decrypt(body, _associated(data[: HEADER.size], namespace, key)))
        elif not self._reads_plain:
            raise SerializationError(
                "it is not encrypted, so it may be forged; ValueCodec(allow_plain=True) reads it while a "
                "store is being converted"
            )
        if flags & FLAG_ZSTD:
            body = memoryview(self._decompress(body))
        elif len(body) > self._max_state_bytes:
            raise SerializationError(
                f"its state takes {len(body)} bytes, over the limit; raise max_state_bytes"
            )
        reader = self._readers.get(serializer_id)
        if reader is None:
            raise SerializationError(_unreadable(serializer_id))
        if version == self.schema_version:
            return reader.loads(body)
        return self._migrate(reader, body, version)

    def _migrate(self, reader: Serializer, body: memoryview, version: int) -> Any:
        if version > self.schema_version:
            raise SerializationError(
                f"it has schema version {version}, this program knows {self.schema_version}; upgrade"
            )
        state = reader.loads(body, typed=False)
        for step in range(version, self.schema_version):
            migrator = self._migrators.get(step)
            if migrator is None:
                raise SerializationError(
                    f"no migrator from schema version {step} to {step + 1}; give migrators={{{step}: …}}"
                )
            try:
                state = migrator(state)
            except Exception as error:
                raise SerializationError(
                    f"the migrator from schema version {step} to {step + 1} raised {type(error).__name__}"
                ) from error
        return reader.as_typed(state)

    # -- zstd contexts must not be shared between threads ----------------------------------------

    def _compressor(self) -> zstandard.ZstdCompressor:
        found: zstandard.ZstdCompressor | None = getattr(self._local, "compressor", None)
        if found is None:
            found = self._local.compressor = zstandard.ZstdCompressor(level=3, write_checksum=False)
        return found

    def _decompress(self, body: memoryview) -> bytes:
        found: zstandard.ZstdDecompressor | None = getattr(self._local, "decompressor", None)
        if found is None:
            found = self._local.decompressor = zstandard.ZstdDecompressor()
        try:
            size = zstandard.get_frame_parameters(body).content_size
            if size == zstandard.CONTENTSIZE_UNKNOWN or size > self._max_state_bytes:
                raise SerializationError(
                    f"its zstd frame claims more than the limit of {self._max_state_bytes} bytes; "
                    f"raise max_state_bytes if that is right"
                )
            plain: bytes = found.decompress(body, max_output_size=size, allow_extra_data=False)
        except zstandard.ZstdError:
            raise CorruptRecordError("its zstd frame is damaged") from None
        if len(plain) != size:
            raise CorruptRecordError("its zstd frame is damaged")
        return plain


def check_envelope(data: bytes | memoryview) -> tuple[int, int, int]:
    """Flags, serialiser id and schema version of an intact envelope; CorruptRecordError for any other.

    Examples
    --------
    >>> check_envelope(ValueCodec("json").encode([1], namespace="words", key=b"be"))
    (0, 2, 1)
    """
    view = memoryview(data)
    if len(view) < OVERHEAD_BYTES:
        raise CorruptRecordError(f"{len(view)} bytes are too few for an envelope")
    if xxh3_64_digest(view[:-CHECKSUM_BYTES])[::-1] != view[-CHECKSUM_BYTES:]:
        raise CorruptRecordError("the checksum does not fit the bytes")
    form, flags, serializer_id, reserved, version = HEADER.unpack_from(view)
    if form != FORMAT or flags & ~(FLAG_ZSTD | FLAG_AES_GCM) or reserved or version == 0:
        raise CorruptRecordError(
            f"format {form:#04x} with flags {flags:#04x} is unknown; a newer ckpt wrote it"
        )
    return flags, serializer_id, version


def _associated(header: bytes | memoryview, namespace: str, key: bytes) -> bytes:
    name = namespace.encode()
    return b"".join((header, len(name).to_bytes(4, "little"), name, len(key).to_bytes(4, "little"), key))


def _where(namespace: str, key: bytes) -> str:
    return f"key {shown_key(key)} of namespace {namespace!r}"


def _unreadable(serializer_id: int) -> str:
    if serializer_id == 3:
        return "it is a pickle, which could run code; if you trust the store, use ValueCodec('pickle')"
    return f"serialiser {serializer_id} is unknown; a newer ckpt wrote it"
