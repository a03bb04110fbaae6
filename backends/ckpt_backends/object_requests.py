"""Requests to an object store: an object appears whole, is created once, and every request is counted.

The one thing that fencing needs of a store is to create an object *only if it does not exist yet*. What each
kind of store gives, and what is relied on:

| store | create only if absent | listing after a write | writers |
| --- | --- | --- | --- |
| `file` | hard link from a synced file aside: atomic, durable on return | complete | many |
| `memory` | a lock in this process | complete | many, in one process |
| `s3` and compatible | `If-None-Match: *`, tried out before the first write | complete | many |
| `gs`, `gcs` | `ifGenerationMatch=0`, tried out likewise | complete | many |
| `abfs`, `az` | `If-None-Match: *`, tried out likewise | complete | many |
| any other | a look before the write: not atomic | assumed complete | one at a time, not enforced |

A store of the middle rows that turns out to ignore the condition is treated like the last row.

A request that fails is tried again for a bounded time. A failed creation says nothing about its outcome, so
the object is looked up and compared: if it holds our bytes, the creation has succeeded.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ckpt.disk import Disk
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt_backends.disk_errors import lasting_advice

Answer = TypeVar("Answer")

CONDITIONAL = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""Protocols whose filesystems pass a condition on to the server with `pipe_file(mode="create")`."""
LOCAL = frozenset({"file", "local"})

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_LEFTOVER_AGE_S = 900.0
_MEMORY_LOCK = threading.Lock()
_OURS = (TypeError, AttributeError, NameError, AssertionError)
"""Errors that are mistakes in a program, not answers of a store."""


class ObjectExistsError(Exception):
    """Somebody else has created the object. Internal: callers decide what that means."""


class Requests:
    """Whole-object requests below one root of an fsspec filesystem. Safe to use from several threads."""

    def __init__(
        self,
        filesystem: Any,
        protocol: str,
        root: str,
        *,
        address: str,
        retry_s: float,
        disk: Disk | None = None,
    ) -> None:
        self._fs, self._root, self._address = filesystem, root.rstrip("/"), address
        self._retry_s = retry_s
        self._disk = disk or Disk()
        self.counts: Counter[str] = Counter()
        """How many requests of each kind were made: put, get, head, list, delete."""
        self._counting = threading.Lock()
        self._asking = threading.Lock()
        self._protocol = protocol
        self._obeys: bool | None = None if protocol in CONDITIONAL else protocol in {"memory", *LOCAL}

    @property
    def creates_atomically(self) -> bool:
        """Whether `create` is atomic, as far as one knows: the first creation finds out."""
        return self._obeys is not False

    @property
    def local_folder(self) -> str | None:
        """Where the objects are files of this host, their folder."""
        return self._root if self._protocol in LOCAL else None

    # -- requests --------------------------------------------------------------------------------

    def create(self, name: str, data: bytes) -> None:
        """Durably create an object, whole; ObjectExistsError if there is another one of that name."""
        if self._obeys is None:
            with self._asking:
                if self._obeys is None:
                    self._obeys = self._trying("try out", "probe", self._find_out)
        self._trying("create", name, lambda: self._create_once(name, data))

    def get(self, name: str) -> bytes:
        """A whole object; FileNotFoundError if it does not exist."""
        found = self._trying("read", name, lambda: self._get(name))
        if found is None:
            raise FileNotFoundError(f"{self._address}: there is no object {name}")
        return found

    def exists(self, name: str) -> bool:
        """Whether there is an object of that name."""
        return self._trying("look up", name, lambda: self._exists(name))

    def list(self, folder: str) -> dict[str, int]:
        """Name and size of every object in a folder."""
        return self._trying("list", folder, lambda: self._list(folder))

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; those that are gone already, or that cannot be removed now, are no error."""
        for name in names:
            with contextlib.suppress(FileNotFoundError, BackendUnavailableError):
                self._call("delete", self._fs.rm_file, self._path(name))

    def remove_leftovers(self, folders: Iterable[str]) -> None:
        """Remove what interrupted creations left beside their objects; only local files leave anything."""
        if self._protocol not in LOCAL:
            return
        for folder in folders:
            with contextlib.suppress(OSError), os.scandir(self._path(folder)) as entries:
                for entry in entries:
                    # A young one may belong to a creation that is under way, on this host or another.
                    if ".tmp-" in entry.name and entry.stat().st_mtime < time.time() - _LEFTOVER_AGE_S:
                        self._disk.unlink(entry.path)

    # -- one attempt -----------------------------------------------------------------------------

    def _create_once(self, name: str, data: bytes) -> None:
        try:
            self._create(name, data)
        except (BackendUnavailableError, FileNotFoundError) as error:
            # Refused, or failed before or after it was done: only what is there now can tell.
            found = self._get(name)
            if found is not None and found != data:
                raise ObjectExistsError(name) from None
            if found is None:
                raise BackendUnavailableError(str(error)) from error

    def _create(self, name: str, data: bytes) -> None:
        path = self._path(name)
        if self._protocol in LOCAL:
            self._call("put", self._link, path, data)
        elif self._protocol == "memory":
            with _MEMORY_LOCK:
                self._put_if_absent(name, data)
        elif self._obeys:
            self._call("put", self._fs.pipe_file, path, data, mode="create")
        else:
            self._put_if_absent(name, data)

    def _link(self, path: str, data: bytes) -> None:
        folder = os.path.dirname(path)
        self._disk.make_dirs(folder)
        aside = f"{path}.tmp-{os.getpid()}-{secrets.token_hex(4)}"
        fd = self._disk.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                self._disk.pwrite(fd, [data], 0)
                self._disk.sync(fd)
            finally:
                self._disk.close(fd)
            os.link(aside, path)
            self._disk.sync_dir(folder)
        finally:
            with contextlib.suppress(OSError):
                self._disk.unlink(aside)

    def _put_if_absent(self, name: str, data: bytes) -> None:
        if self._exists(name):
            raise BackendUnavailableError(f"{name} exists")
        self._call("put", self._fs.pipe_file, self._path(name), data)

    def _find_out(self) -> bool:
        """Whether the store refuses to create what exists: some that look like S3 ignore the condition."""
        path, token = self._path("probe"), secrets.token_bytes(16)
        try:
            if self._get("probe") is None:
                self._call("put", self._fs.pipe_file, path, secrets.token_bytes(16), mode="create")
            self._call("put", self._fs.pipe_file, path, token, mode="create")
        except TypeError:
            return False  # a driver from before there were conditions
        except FileNotFoundError as error:
            raise BackendUnavailableError(f"there is no such bucket: {error}") from error
        except BackendUnavailableError as error:
            if isinstance(error.__cause__, (TimeoutError, ConnectionError)) or self._get("probe") is None:
                raise  # that was no refusal
        return self._get("probe") != token

    def _exists(self, name: str) -> bool:
        # Not `exists`: filesystems take any error for a no there.
        try:
            self._call("head", self._fs.info, self._path(name))
        except FileNotFoundError:
            return False
        return True

    def _get(self, name: str) -> bytes | None:
        try:
            return bytes(self._call("get", self._fs.cat_file, self._path(name)))
        except FileNotFoundError:
            return None

    def _list(self, folder: str) -> dict[str, int]:
        path = self._path(folder)
        if self._protocol in LOCAL:
            return self._call("list", _list_local, path)
        self._fs.invalidate_cache(path)
        try:
            rows = self._call("list", self._fs.ls, path, detail=True)
        except FileNotFoundError:
            return {}
        found = {
            row["name"].rsplit("/", 1)[-1]: int(row["size"] or 0) for row in rows if row["type"] == "file"
        }
        return {name: size for name, size in found.items() if ".tmp-" not in name}

    # -- asking ----------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _call(self, kind: str, ask: Callable[..., Answer], *args: object, **kwargs: object) -> Answer:
        with self._counting:
            self.counts[kind] += 1
        try:
            return ask(*args, **kwargs)
        except (FileNotFoundError, *_OURS):
            raise
        except NotADirectoryError as error:
            raise ConfigError(
                f"{self._address} cannot be a folder: a file is in the way; choose another path"
            ) from error
        except Exception as error:  # drivers raise what they like: OSError, botocore's, aiohttp's, timeouts
            raise BackendUnavailableError(f"{type(error).__name__}: {error}") from error

    def _trying(self, action: str, name: str, once: Callable[[], Answer]) -> Answer:
        """Try a request until it is answered, or the time for that is over."""
        deadline = time.monotonic() + self._retry_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return once()
            except BackendUnavailableError as error:
                lasting = self._lasting_advice(error)
                if lasting or time.monotonic() + pause_s > deadline:
                    advice = lasting or "check that the store can be reached and try again"
                    raise BackendUnavailableError(
                        f"cannot {action} {name} of {self._address} ({error}); {advice}"
                    ) from error
            # Half of the pause is random, so that those who failed together do not come back together.
            time.sleep(pause_s * (0.5 + random.random() / 2))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _lasting_advice(self, error: BackendUnavailableError) -> str | None:
        """What to do about a failure that trying again does not mend; None for one that may pass."""
        cause: BaseException | None = error
        while isinstance(cause, BackendUnavailableError):
            cause = cause.__cause__
        # Drivers of servers use the numbers of a disk's errors for what they like.
        if isinstance(cause, OSError) and self._protocol in LOCAL:
            return lasting_advice(cause)
        return "check the credentials and try again" if isinstance(cause, PermissionError) else None


def _list_local(path: str) -> dict[str, int]:
    """The files of a folder; unlike fsspec's, undisturbed by files that vanish meanwhile."""
    found: dict[str, int] = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if ".tmp-" not in entry.name and entry.is_file():
                    found[entry.name] = entry.stat().st_size
    return found
