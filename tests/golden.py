"""Golden files: bytes that every later version, and every language, reads and writes alike."""

from __future__ import annotations

from pathlib import Path


def golden_bytes(path: Path) -> dict[str, bytes]:
    """The bytes of each name. A line is a name, a colon and hexadecimal digits, or a remark after #."""
    named = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, digits = line.partition(":")
            named[name] = bytes.fromhex(digits)
    return named


def golden_rows(path: Path) -> dict[bytes, bytes]:
    """The same where a name is itself in hexadecimal digits: stored keys with their values."""
    return {bytes.fromhex(name): value for name, value in golden_bytes(path).items()}
