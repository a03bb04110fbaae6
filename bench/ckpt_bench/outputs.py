"""Files of results: tried before the work begins, so that none of it is lost to a mistyped path; charts."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from ckpt.errors import ConfigError
from ckpt_bench.plot import Section


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
        elif not (file.is_file() or os.access(file, os.W_OK)):  # whoever reads a pipe must not see it end yet
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        elif file.is_file():
            file.open("ab").close()
    except OSError as error:
        raise ConfigError(
            f"cannot write {file}: {reason_of(error)}; name a file that you may write"
        ) from error


def reason_of(error: OSError) -> str:
    """Why the system refused, as part of a sentence.

    Examples
    --------
    >>> reason_of(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    'no space left on device'
    """
    return (error.strerror or str(error)).lower()


def write_charts(folder: str, sections: Mapping[str, Section]) -> None:
    """Write the chart of each section to a file of its name, with `.svg` behind it, in the folder."""
    os.makedirs(folder, exist_ok=True)
    for name, section in sections.items():
        with open(os.path.join(folder, f"{name}.svg"), "w", encoding="utf-8") as file:
            file.write(f"{section.chart}\n")
