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
| any other | a look before the write: not atomic | assumed complete | none, unless it is the only one |

A store of the middle rows that turns out to ignore the condition is treated like the last row: two writers
could both be told that their commit is durable, and one of them would be gone. So it takes no writes until a
user says with `sole_writer=true` that no other handle writes meanwhile.

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
from typing import TypeVar

from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt_backends.objects.drivers import ObjectDriver

Answer = TypeVar("Answer")

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_OURS = (TypeError, AttributeError, NameError, AssertionError)
"""Errors that are mistakes in a program, not answers of a store."""


class ObjectExistsError(Exception):
    """Another writer has created the object, with these bytes. Internal: callers decide what that means."""

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__(name)
        self.data = data


class ObjectRequests:
    """Whole-object requests below one root. Safe to use from several threads, in the process that made it."""

    def __init__(
        self, driver: ObjectDriver, root: str, *, address: str, retry_s: float, sole_writer: bool = False
    ) -> None:
        self._driver, self._root, self._address = driver, root.rstrip("/"), address
        self._retry_s, self._sole_writer = retry_s, sole_writer
        self.counts: Counter[str] = Counter()
        """How many requests of each kind were made: put, get, head, list, delete."""
        self._counting = threading.Lock()
        self._asking = threading.Lock()
        self._obeys = driver.conditional
        self._process = os.getpid()

    def require_atomic(self) -> None:
        """Raise ConfigError if `create` is known not to be atomic, unless there is only one writer."""
        if self._obeys is False and not self._sole_writer:
            raise ConfigError(
                f"{self._address} takes no writes: the store cannot create an object only if there is none "
                "of its name, so of two writers one would lose commits without an error; use another store, "
                "or see to it that one handle at a time writes and say so with sole_writer=true"
            )

    @property
    def local_folder(self) -> str | None:
        """Where the objects are files of this host, their folder."""
        return self._driver.local_folder

    # -- requests --------------------------------------------------------------------------------

    def create(self, name: str, data: bytes) -> None:
        """Durably create an object, whole; ObjectExistsError if there is another one of that name.

        ConfigError on a store where two writers could not both rely on that.
        """
        if self._obeys is None:
            with self._asking:
                if self._obeys is None:
                    self._obeys = self._trying("try out", "probe", self._find_out)
        self.require_atomic()
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
        ask = self._driver.list
        return self._trying("list", folder, lambda: self._call("list", ask, self._path(folder)))

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; those that are gone already, or that cannot be removed now, are no error."""
        paths = [self._path(name) for name in names]
        if paths:
            with contextlib.suppress(BackendUnavailableError):
                self._call("delete", self._driver.delete, paths)

    def remove_leftovers(self, folders: Iterable[str]) -> None:
        """Remove what interrupted creations left beside their objects, as far as that can be done now."""
        with contextlib.suppress(BackendUnavailableError, FileNotFoundError):
            paths = [self._path(folder) for folder in folders]
            self._call("list", self._driver.remove_leftovers, paths)

    def remove_local_leftovers(self, folders: Iterable[str]) -> None:
        """The same where that costs no request."""
        if self.local_folder is not None:
            self.remove_leftovers(folders)

    def close(self) -> None:
        """Free connections; idempotent."""
        if os.getpid() == self._process:
            self._driver.close()

    # -- one attempt -----------------------------------------------------------------------------

    def _create_once(self, name: str, data: bytes) -> None:
        try:
            self._create(name, data)
        except (BackendUnavailableError, FileNotFoundError, FileExistsError) as error:
            # Refused, or failed before or after it was done: only what is there now can tell.
            found = self._get(name)
            if found is None:
                raise BackendUnavailableError(str(error)) from error
            if found != data:
                raise ObjectExistsError(name, found) from None

    def _create(self, name: str, data: bytes) -> None:
        if not self._obeys and self._exists(name):
            raise FileExistsError(name)
        self._put(name, data, only_if_absent=bool(self._obeys))

    def _find_out(self) -> bool:
        """Whether the store refuses to create what exists: some that look like S3 ignore the condition."""
        for _ in range(2):
            token = secrets.token_bytes(16)
            try:
                self._put("probe", token, only_if_absent=True)
            except FileExistsError:
                return True
            except TypeError:
                return False  # a driver from before there were conditions
            except FileNotFoundError as error:
                raise BackendUnavailableError(f"there is no such bucket: {error}") from error
            except BackendUnavailableError as error:
                failed = isinstance(error.__cause__, (TimeoutError, ConnectionError))
                if self._driver.names_refusals or failed:
                    raise
                found = self._get("probe")
                if found is None:
                    raise  # that was no refusal
                return found != token
        return False

    def _put(self, name: str, data: bytes, *, only_if_absent: bool) -> None:
        self._call(
            "put", lambda p: self._driver.put(p, data, only_if_absent=only_if_absent), self._path(name)
        )

    def _exists(self, name: str) -> bool:
        try:
            self._call("head", self._driver.head, self._path(name))
        except FileNotFoundError:
            return False
        return True

    def _get(self, name: str) -> bytes | None:
        try:
            return self._call("get", self._driver.get, self._path(name))
        except FileNotFoundError:
            return None

    # -- asking ----------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _call(self, kind: str, ask: Callable[..., Answer], *args: object) -> Answer:
        if os.getpid() != self._process:
            raise ConfigError(
                f"{self._address} was opened in process {self._process} and cannot be used in a fork of it; "
                "open it again in this one"
            )
        with self._counting:
            self.counts[kind] += 1
        try:
            return ask(*args)
        except _OURS:
            raise
        except Exception as error:  # drivers raise what they like: OSError, botocore's, aiohttp's, timeouts
            if wrong := self._driver.wrong_address(error):
                raise ConfigError(f"{self._address}: {wrong}") from error
            if isinstance(error, (FileNotFoundError, FileExistsError)):
                raise
            raise BackendUnavailableError(_shown(error)) from error

    def _trying(self, action: str, name: str, once: Callable[[], Answer]) -> Answer:
        """Try a request until it is answered, or the time for that is over."""
        deadline = time.monotonic() + self._retry_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return once()
            except BackendUnavailableError as error:
                lasting = self._driver.lasting_advice(_cause(error))
                if lasting or time.monotonic() + pause_s > deadline:
                    advice = lasting or "check that the store can be reached and try again"
                    raise BackendUnavailableError(
                        f"cannot {action} {name} of {self._address} ({error}); {advice}"
                    ) from error
            # Half of the pause is random, so that calls that failed together are not repeated together.
            time.sleep(pause_s * (0.5 + random.random() / 2))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _shown(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _cause(error: BackendUnavailableError) -> BaseException | None:
    """What the driver raised."""
    cause: BaseException | None = error
    while isinstance(cause, BackendUnavailableError):
        cause = cause.__cause__
    return cause
