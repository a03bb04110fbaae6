"""Encryption keys: every key of the ring can decrypt, one of them encrypts. Keys never appear in a message.

A ring is text, in a file or in an environment variable; the first key is the current one:

```
# id = base64 of 16, 24 or 32 random bytes
2026-11 = 3q2+7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
2026-05 = vu/erQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
```

A codec with a ring reads only what is encrypted with one of its keys; `allow_plain=True` is for converting a
store.

To rotate, put a new line on top (`new_key_line`), restart, and let every checkpoint be written again: by its
next save, or by loading and saving it. Then remove the old line. AES-GCM with random nonces is safe for about
four billion saves per key; rotate before that.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ckpt.errors import ConfigError, CorruptRecordError, SerializationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAX_KEY_ID_BYTES = 64
NONCE_BYTES = 12
TAG_BYTES = 16
_MAX_RING_BYTES = 1 << 20


class Keyring:
    """AES-GCM keys by id. Encrypts with the current key, decrypts with whichever the envelope names.

    Examples
    --------
    >>> ring = Keyring({"b": bytes(32), "a": bytes(16)})
    >>> ring.current
    'b'
    >>> ring
    <Keyring current='b' of 2 keys>
    """

    def __init__(self, keys: Mapping[str, bytes], current: str | None = None) -> None:
        # Not with this module: most processes have no keyring.
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._invalid_tag: type[Exception] = InvalidTag
        if not keys:
            raise ConfigError(
                "a keyring needs at least one key; make one with ckpt.values.keyring.new_key_line()"
            )
        self._ciphers: dict[str, AESGCM] = {}
        for key_id, key in keys.items():
            if not isinstance(key_id, str) or not 0 < len(key_id.encode()) <= MAX_KEY_ID_BYTES:
                raise ConfigError(f"a key id is 1 to {MAX_KEY_ID_BYTES} bytes of text, got {key_id!r:.80}")
            if len(key) not in (16, 24, 32):
                raise ConfigError(f"key {key_id!r} has {len(key)} bytes; AES keys have 16, 24 or 32")
            self._ciphers[key_id] = AESGCM(key)
        self.current = next(iter(keys)) if current is None else current
        if self.current not in self._ciphers:
            raise ConfigError(f"the current key {current!r} is not in the ring")

    @classmethod
    def parse(cls, text: str, *, of: str = "keyring") -> Keyring:
        """The ring that a text describes; see the module's docstring for its form."""
        keys: dict[str, bytes] = {}
        for number, line in enumerate(text.splitlines(), 1):
            stripped = line.strip()
            if not stripped or stripped.startswith("#"):
                continue
            key_id, separator, encoded = (part.strip() for part in stripped.partition("="))
            try:
                key = base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError):
                key = b""
            if not separator or not key_id or not key:
                raise ConfigError(f"{of}, line {number}: expected `id = base64 of the key`")
            if key_id in keys:
                raise ConfigError(f"{of}, line {number}: key {key_id!r} is given twice")
            keys[key_id] = key
        return cls(keys)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Keyring:
        """The ring in a file."""
        try:
            with open(path, encoding="utf-8") as file:
                return cls.parse(file.read(_MAX_RING_BYTES), of=f"keyring {os.fspath(path)}")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"keyring {os.fspath(path)} cannot be read: {error}") from error

    @classmethod
    def from_env(cls, name: str) -> Keyring:
        """The ring in an environment variable."""
        text = os.environ.get(name)
        if text is None:
            raise ConfigError(
                f"environment variable {name} is not set; it should hold `id = base64 of the key`"
            )
        return cls.parse(text, of=f"keyring in {name}")

    def encrypt(self, data: bytes, associated: bytes) -> bytes:
        """Key id, nonce, ciphertext and tag; the associated data must be the same when decrypting."""
        key_id = self.current.encode()
        head = bytes((len(key_id),)) + key_id + secrets.token_bytes(NONCE_BYTES)
        nonce = head[-NONCE_BYTES:]
        return head + self._ciphers[self.current].encrypt(nonce, data, associated + key_id)

    def decrypt(self, data: memoryview, associated: bytes) -> bytes:
        """What `encrypt` was given, or CorruptRecordError; an unknown key is a SerializationError."""
        id_length = data[0] if data else 0
        nonce_at = 1 + id_length
        if not 0 < id_length <= MAX_KEY_ID_BYTES or len(data) < nonce_at + NONCE_BYTES + TAG_BYTES:
            raise CorruptRecordError("the encrypted part is too short")
        key_id = bytes(data[1:nonce_at])
        cipher = self._ciphers.get(key_id.decode("utf-8", "replace"))
        if cipher is None:
            raise SerializationError(
                f"it is encrypted with key {key_id.decode('utf-8', 'replace')!r}; add that key to the keyring"
            )
        body = nonce_at + NONCE_BYTES
        try:
            return cipher.decrypt(bytes(data[nonce_at:body]), bytes(data[body:]), associated + key_id)
        except self._invalid_tag:
            raise CorruptRecordError(
                "it does not decrypt: it was changed, moved from another key, or the key is a different one"
            ) from None

    def __repr__(self) -> str:
        return f"<Keyring current={self.current!r} of {len(self._ciphers)} keys>"


def new_key_line(key_id: str) -> str:
    """A line for the top of a ring: a new random 256-bit key.

    Examples
    --------
    >>> Keyring.parse(new_key_line("2026-11")).current
    '2026-11'
    """
    return f"{key_id} = {base64.b64encode(secrets.token_bytes(32)).decode()}"
