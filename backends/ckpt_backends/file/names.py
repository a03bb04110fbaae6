"""File names for arbitrary bytes: no two keys ever share one, on case-insensitive filesystems too.

A short key is spelled in base32hex, lower case and without padding, which preserves the order of bytes and
can be read back. A longer key is named by its hash; the file itself says which key it holds.

```
k                 the empty key
kddini            b"key" (any bytes up to SPELLED_BYTES)
h4f…(64 digits)   the BLAKE2b hash of a longer key
```
"""

from __future__ import annotations

import base64
import binascii
import hashlib

SPELLED_BYTES = 80
"""Up to here a name spells its key: 129 characters, well below what filesystems allow."""


def file_name(key: bytes) -> str:
    """The name of the file for a key.

    Examples
    --------
    >>> file_name(b""), file_name(b"Key"), file_name(b"key")
    ('k', 'k9dini', 'kddini')
    >>> len(file_name(b"x" * 65536))
    65
    """
    if len(key) <= SPELLED_BYTES:
        return "k" + base64.b32hexencode(key).decode().rstrip("=").lower()
    return "h" + hashlib.blake2b(key, digest_size=32).hexdigest()


def spelled_key(name: str) -> bytes | None:
    """The key that a name spells; None for a hash, ValueError for what `file_name` never makes.

    Examples
    --------
    >>> spelled_key("kddini")
    b'key'
    >>> spelled_key(file_name(b"x" * 100)) is None
    True
    """
    if len(name) == 65 and name[0] == "h" and set(name[1:]) <= set("0123456789abcdef"):
        return None
    digits = name[1:]
    try:
        key = base64.b32hexdecode(digits.upper() + "=" * (-len(digits) % 8))
    except (binascii.Error, ValueError):
        key = None
    if key is None or file_name(key) != name:
        raise ValueError(f"{name!r} is not the name of a key")
    return key
