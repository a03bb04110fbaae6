"""Files of results: tried before the work begins, so that none of it is lost to a mistyped path.

What is printed goes first, and a file that cannot be written in the end costs nothing else.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from ckpt.errors import ConfigError


def require_writable(path: str | os.PathLike[str]) -> None:
    """Return if a file can be written there, which is left as it was; otherwise say what to do.

    Examples
    --------
    >>> require_writable("/dev/null")
    >>> require_writable("/no/such/folder/page.html")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ckpt.errors.ConfigError: cannot write /no/such/folder/page.html: there is no folder /no/such/folder; ...
    """
    file = Path(path)
    folder = file.parent
    try:
        if file.is_dir():
            raise ConfigError(f"cannot write {file}: it is a folder; name a file in it")
        if not folder.is_dir():
            raise ConfigError(
                f"cannot write {file}: there is no folder {folder}; make it, or name another file"
            )
        if not file.exists():
            file.touch()
            file.unlink()
        elif not (file.is_file() or os.access(file, os.W_OK)):  # a pipe stays open for its reader
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        elif file.is_file():
            file.open("ab").close()
    except OSError as error:
        raise ConfigError(
            f"cannot write {file}: {reason_of(error)}; name a file that you may write"
        ) from error


def only_one(given: Mapping[str, bool]) -> None:
    """Return if at most one of these options is given.

    Examples
    --------
    >>> only_one({"--json": True, "--csv": False})
    >>> only_one({"--json": True, "--csv": True})
    Traceback (most recent call last):
        ...
    ckpt.errors.ConfigError: --json and --csv exclude each other; give one of them
    """
    asked = [name for name, there in given.items() if there]
    if len(asked) > 1:
        raise ConfigError(f"{' and '.join(asked)} exclude each other; give one of them")


def refused(path: str | None, write: Callable[[str], object]) -> list[str]:
    """Nothing if it was written there, or was not asked for; else why not, which is no reason to stop.

    Examples
    --------
    >>> refused("/dev/full", lambda path: write_text(path, "a page"))[0].partition(";")[0]
    'cannot write /dev/full: no space left on device'
    """
    try:
        if path is not None:
            write(path)
    except OSError as error:
        return [
            f"cannot write {path}: {reason_of(error)}; the results are whole: for the charts make room or "
            f"name another place, and run again"
        ]
    return []


def write_text(path: str, text: str) -> None:
    """Write the whole file."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def reason_of(error: OSError) -> str:
    """Why the system refused, as part of a sentence.

    Examples
    --------
    >>> reason_of(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    'no space left on device'
    """
    return (error.strerror or str(error)).lower()
