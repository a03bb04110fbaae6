"""How keys, states and tables look in a terminal and in JSON; a shown key can be typed in again.

A key is shown as text if it is printable UTF-8 that cannot be taken for something else, and as `hex:…`
otherwise; text and JSON output use the same form.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

_PREFIXES = ("hex:", "base64:")


def shown(key: bytes) -> str:
    """The key in the form that `parsed_key` takes.

    Examples
    --------
    >>> shown(b"be"), shown("naïve".encode()), shown(b"\\xff\\x00"), shown(b"hex:"), shown(b"")
    ('be', 'naïve', 'hex:ff00', 'hex:6865783a', 'hex:')
    """
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"hex:{key.hex()}"
    if text and text.isprintable() and text == text.strip() and not text.startswith(_PREFIXES):
        return text
    return f"hex:{key.hex()}"


def parsed_key(text: str) -> bytes:
    """The key that text stands for, or ValueError.

    Examples
    --------
    >>> parsed_key("be"), parsed_key("hex:ff00"), parsed_key("base64:/wA=")
    (b'be', b'\\xff\\x00', b'\\xff\\x00')
    """
    if text.startswith("hex:"):
        return bytes.fromhex(text.removeprefix("hex:"))
    if text.startswith("base64:"):
        return base64.b64decode(text.removeprefix("base64:"), validate=True)
    # Arguments that are not UTF-8 arrive with surrogates; they name the bytes that were typed.
    return text.encode("utf-8", "surrogateescape")


def key_parameter(_: click.Context, __: click.Parameter, value: str | None) -> bytes | None:
    """A key or a prefix on the command line, if one is given, as the callback of its parameter."""
    try:
        return None if value is None else parsed_key(value)
    except ValueError:
        raise click.BadParameter("a key is text, hex:<hex digits> or base64:<base64>") from None


def shown_name(namespace: str) -> str:
    """A namespace on one line: as it is, or quoted as in JSON if it would not be readable so."""
    plain = namespace.isprintable() and namespace == namespace.strip()
    return namespace if plain else json.dumps(namespace)


def print_json(document: Any) -> None:
    """One document on one line, so that a stream of them is JSON lines."""
    click.echo(json.dumps(document, ensure_ascii=False))


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns: text to the left, numbers to the right, no border to cut off in a script."""
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    right = [bool(rows) and all(isinstance(row[i], (int, float)) for row in rows) for i in range(len(header))]
    for row in cells:
        line = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        click.echo("  ".join(line).rstrip())


def jsonable(state: Any) -> Any:
    """A state as JSON can hold it, for eyes and scripts; not a way to read states back.

    Examples
    --------
    >>> jsonable({"seen": (1, 2), b"raw": {3.5}, "at": float("inf")})
    {'seen': [1, 2], 'hex:726177': [3.5], 'at': 'inf'}
    """
    if state is None or isinstance(state, (bool, int, str)):
        return state
    if isinstance(state, float):
        return state if state - state == 0 else str(state)
    if isinstance(state, (bytes, bytearray, memoryview)):
        return f"hex:{bytes(state).hex()}"
    if isinstance(state, Mapping):
        return {_member(key): jsonable(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [jsonable(value) for value in state]
    if isinstance(state, (set, frozenset)):
        return sorted((jsonable(value) for value in state), key=repr)
    as_list = getattr(state, "tolist", None) or getattr(state, "to_pylist", None)
    return jsonable(as_list()) if as_list is not None else str(state)


def _member(key: Any) -> str:
    plain = jsonable(key)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
