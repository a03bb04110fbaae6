"""Properties as Java reads them: a file gives the names and values that `java.util.Properties` finds in it.

Comments begin with `#` or `!`; `=`, `:` or white space ends a name; a backslash escapes, also the end of a
line. Beyond Java, white space behind a value is dropped: there it makes a number unreadable. So is the mark
that some editors put before the first character of a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ckpt.errors import ConfigError

_BLANKS = " \t\f"  # to Java; Unicode has more
_NAME = re.compile(
    rf"(?P<name>(?:\\.|[^\\=:{_BLANKS}])*)(?:[{_BLANKS}]*[=:][{_BLANKS}]*|[{_BLANKS}]+|$)", re.DOTALL
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse(text: str) -> dict[str, str]:
    r"""The properties in the text of a file; of a name that is there twice, the last.

    Examples
    --------
    >>> parse("# a comment\nrecordcount=1000\nfieldlength : 10\ntable user\\\n   table\n")
    {'recordcount': '1000', 'fieldlength': '10', 'table': 'usertable'}
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _NAME.match(line)
        assert match is not None  # the name may be empty
        found[_unescaped(match["name"])] = _unescaped(line[match.end() :]).rstrip()
    return found


def gathered(files: Iterable[str], pairs: Iterable[str]) -> dict[str, str]:
    """The properties of these files, later ones winning, and of `name=value` pairs, which win over files."""
    found: dict[str, str] = {}
    for path in files:
        try:
            found.update(parse(_text_of(path)))
        except ConfigError as error:
            raise ConfigError(f"-P {path}: {error}") from None
    found.update(_pairs(pairs))
    return found


def _text_of(path: str) -> str:
    try:
        with open(path, "rb") as file:
            read = file.read()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot read the workload file: {reason}; name one that you may read") from error
    if b"\0" in read:
        raise ConfigError(
            "this is not text in UTF-8 or Latin-1; name a file of lines such as recordcount=1000"
        )
    try:
        return read.decode("utf-8-sig")
    except UnicodeDecodeError:
        return read.decode("latin-1")  # what Java takes a file for


def _pairs(pairs: Iterable[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"-p takes name=value, such as -p operationcount=1000; got {pair!r}")
        found[name.strip()] = value
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blanks, with continued ones put together."""
    joined = ""
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(_BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continue
        joined += line
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]
            continue
        if joined:
            yield joined
        joined = ""
    if joined:
        yield joined


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise ConfigError(
                rf"\u needs four hex digits behind it, such as \u00e9, in {text}; for a backslash write two"
            )
        return _CONTROLS.get(escaped, escaped)

    found = _ESCAPE.sub(plain, text)
    # to Java two halves of a character are that character
    return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
