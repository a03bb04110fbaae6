"""S4's file backend as the thesis found it: one file for each state, written in place.

It is here to be measured against and for nothing else. It does what S4 did, so a crash in the middle of a
write leaves half a state, two writers overwrite each other, and there are no versions; ckpt's own `file`
backend does more, and takes longer. With `durability=fsync` it syncs what has to be synced for an
acknowledged state to be there after a crash: the file, and the folder if the file is new.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, NoReturn

from ckpt.contract.addresses import Durability, parse_address
from ckpt.contract.backend import Backend, Capabilities
from ckpt.contract.registry import load_factory, open_backend
from ckpt.contract.versions import History
from ckpt.errors import UnsupportedError
from ckpt.types import CommitId, Epoch

SCHEME = "s4"


def open_store(address: str) -> Backend:
    """The backend of an address, which may also be `s4:///folder?durability=fsync|os`: S4's own.

    Examples
    --------
    >>> import tempfile
    >>> with open_store(f"s4://{tempfile.mkdtemp()}?durability=os") as backend:
    ...     backend.put_many("words", {b"be": b"2"})
    ...     backend.get_many("words", [b"be", b"or"])
    {b'be': b'2'}
    """
    parsed = parse_address(address)
    if parsed.scheme != SCHEME:
        return open_backend(address)
    durability = Durability(parsed.options.get("durability", Durability.FSYNC))
    return DefaultFs(parsed.path, durable=durability is Durability.FSYNC)


def import_scheme(address: str) -> None:
    """Import the code behind an address, so that opening it can be timed without that."""
    scheme = parse_address(address).scheme
    if scheme != SCHEME:
        load_factory(scheme)


class DefaultFs(Backend):
    """One file for each key; a state that was acknowledged is in its file."""

    scheme: ClassVar[str] = SCHEME
    capabilities = Capabilities(
        persistent=True,
        shared_writers=True,
        ttl=False,
        atomic_put=False,
        ordered_scan=False,
        detects_corruption=False,
    )

    def __init__(self, folder: str, *, durable: bool) -> None:
        self.address = f"{SCHEME}://{folder}"
        self._folder = folder
        self._durable = durable
        self._made: set[str] = set()

    def put_many(self, namespace: str, items: Mapping[bytes, bytes], *, ttl_s: float | None = None) -> None:
        del ttl_s
        folder = self._made_folder(namespace)
        for key, value in items.items():
            self._write(folder, f"{folder}/{key.hex()}", value)

    def get_many(
        self,
        namespace: str,
        keys: Iterable[bytes],
        *,
        version: int | None = None,
        commit_id: str | None = None,
    ) -> dict[bytes, bytes]:
        del version, commit_id
        found = {}
        folder = self._folder_of(namespace)
        for key in keys:
            with contextlib.suppress(FileNotFoundError):
                found[key] = _read(f"{folder}/{key.hex()}")
        return found

    def delete_many(self, namespace: str, keys: Iterable[bytes]) -> None:
        folder = self._folder_of(namespace)
        for key in keys:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{folder}/{key.hex()}")

    def scan(
        self,
        namespace: str,
        *,
        prefix: bytes = b"",
        version: int | None = None,
        commit_id: str | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        del version, commit_id
        folder = self._folder_of(namespace)
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if (key := bytes.fromhex(name)).startswith(prefix):
                yield key, _read(f"{folder}/{name}")

    def namespaces(self) -> list[str]:
        names = os.listdir(self._folder) if os.path.isdir(self._folder) else []
        return sorted(bytes.fromhex(name).decode() for name in names)

    def drop(self, namespace: str) -> None:
        self.delete_many(namespace, [key for key, _ in self.scan(namespace)])

    def claim(self, namespace: str) -> Epoch:
        """Nobody is kept from writing: S4 relied on one node having each task."""
        del namespace
        return Epoch(1)

    def release(self, namespace: str) -> None:
        """There was no claim."""

    def flush(self) -> None:
        """What is written is in its file when `put_many` returns."""

    def close(self) -> None:
        """Nothing is held open."""

    def commit(
        self,
        namespace: str,
        version: int,
        puts: Mapping[bytes, bytes],
        deletes: Iterable[bytes] = (),
        *,
        base: str | None = None,
        commit_id: str | None = None,
    ) -> CommitId:
        del version, puts, deletes, base, commit_id
        self._has_no_versions(namespace)

    def truncate(self, namespace: str, keep_from: int) -> None:
        del keep_from
        self._has_no_versions(namespace)

    def history(self, namespace: str) -> History:
        self._has_no_versions(namespace)

    def _has_no_versions(self, namespace: str) -> NoReturn:
        raise UnsupportedError(f"S4's file backend has no versions of {namespace!r}; use file:// or log://")

    def _folder_of(self, namespace: str) -> str:
        return f"{self._folder}/{namespace.encode().hex()}"

    def _made_folder(self, namespace: str) -> str:
        folder = self._folder_of(namespace)
        if folder not in self._made:
            os.makedirs(folder, exist_ok=True)
            self._made.add(folder)
        return folder

    def _write(self, folder: str, path: str, value: bytes) -> None:
        is_new = self._durable and not os.path.exists(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.write(descriptor, value)
            if self._durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            _sync_folder(folder)


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
