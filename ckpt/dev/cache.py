"""Where development servers live: one folder that can be deleted while none runs, and locks that hold.

```
$CKPT_CACHE, or $XDG_CACHE_HOME/ckpt, or ~/.cache/ckpt
  jars/KIND-HASH/    what Maven fetched for one pom
  tools/NAME/        a program unpacked by `ckpt dev install`
  servers/NAME/      configuration, data, logs and server.json of one server
  locks/             never deleted, so that all processes lock the same file
```
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator

from ckpt.errors import BackendUnavailableError

_LOCK_POLL_S = 0.05

Report = Callable[[str], None]
"""Takes one line about what is being done now, and may be called from any thread."""


def silent(_: str) -> None:
    """A report that is not shown."""


def folder(*parts: str) -> str:
    """The path of something in the cache; nothing is created.

    Examples
    --------
    >>> import os
    >>> from unittest import mock
    >>> with mock.patch.dict(os.environ, {"CKPT_CACHE": "/somewhere"}):
    ...     folder("servers", "redis")
    '/somewhere/servers/redis'
    """
    root = os.environ.get("CKPT_CACHE")
    if not root:
        base = os.environ.get("XDG_CACHE_HOME")
        # The XDG specification: a relative path is to be ignored.
        base = base if base and os.path.isabs(base) else os.path.expanduser("~/.cache")
        root = os.path.join(base, "ckpt")
    return os.path.join(os.path.abspath(root), *parts)


@contextlib.contextmanager
def locked(name: str, *, report: Report = silent, cancelled: threading.Event | None = None) -> Iterator[None]:
    """No other thread or process is inside with the same name; says so if it has to wait."""
    cancelled = cancelled or threading.Event()
    with open_lock(name) as descriptor:
        waited = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not waited:
                    report("waiting for another process that is busy with it")
                waited = True
                if cancelled.wait(_LOCK_POLL_S):
                    raise BackendUnavailableError(f"interrupted while another process held {name}") from None
            else:
                break
        yield


@contextlib.contextmanager
def open_lock(name: str) -> Iterator[int]:
    """The descriptor of a lock file; closing it lets go of whatever lock was taken on it."""
    os.makedirs(folder("locks"), mode=0o700, exist_ok=True)
    descriptor = os.open(folder("locks", f"{name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def appearing(path: str) -> Iterator[str]:
    """A new folder to fill, which becomes `path` if all goes well and is removed if not: never half there."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    filling = tempfile.mkdtemp(prefix=f".{os.path.basename(path)}-", dir=os.path.dirname(path))
    try:
        yield filling
        os.rename(filling, path)
    finally:
        shutil.rmtree(filling, ignore_errors=True)


def write_file(path: str, content: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=os.path.dirname(path))
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
