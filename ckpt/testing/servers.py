"""Real servers for tests: started on first use, shared by all sessions on the machine, stopped by the last.

Where a server cannot be had, because a tool is missing or Maven has no network, the test is skipped with the
reason; in CI (`CI=true`) it fails.

Examples
--------
A conformance class, and a state machine, take their store from here (not run: it would start a server):

```python
class TestRedis(BackendConformance):
    scheme = "redis"

    def open_backend(self):
        return ckpt.open_backend(server_address("redis"), prefix=self.directory.as_posix())
```
"""

from __future__ import annotations

import atexit
import contextlib
import os
import unittest
from collections.abc import Iterator
from typing import Any

from ckpt.dev import MissingToolError, Server
from ckpt.dev.fleet import Lease
from ckpt.dev.kinds import server
from ckpt.dev.lifeline import Lifeline

_leases: dict[str, Lease] = {}
_own = Lifeline()
_process = os.getpid()


def server_address(name: str) -> str:
    """The address of the shared server of that name (`redis`, `hbase`, `cassandra`, `s3`), which answers."""
    if name not in _leases:
        with skipped_if_missing():
            _leases[name] = Lease(name)
    _leases[name].revive()
    return _leases[name].address


def own_server(name: str, folder: str | os.PathLike[str], **settings: Any) -> Server:
    """A server that one test has for itself and may kill; it ends with this process, if not before.

    Names and settings are those of `ckpt.dev.start`.
    """
    one = server(name, folder, **settings)
    with skipped_if_missing():
        one.prepare()
    _own.hold(one.folder)
    return one.start()


def release_servers() -> None:
    """End the use of every server: what this process has started, and no other process uses, is stopped."""
    if os.getpid() != _process:
        return  # a fork of it, to which nothing of this belongs
    _own.cut()
    while _leases:
        _leases.popitem()[1].release()


@contextlib.contextmanager
def skipped_if_missing() -> Iterator[None]:
    """A server that cannot be had is a reason to skip the test; in CI it is an error."""
    try:
        yield
    except MissingToolError as error:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            raise
        # pytest and Hypothesis know this exception, and it needs neither.
        raise unittest.SkipTest(str(error)) from error


atexit.register(release_servers)
