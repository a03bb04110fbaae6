"""Any store behind a SafeKeeper: our backends as they are, a peer as far as a SafeKeeper needs one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, NoReturn

import ckpt
from ckpt.contract.addresses import Address, parse_address
from ckpt.contract.backend import Backend, Capabilities
from ckpt.contract.versions import History
from ckpt.errors import UnsupportedError
from ckpt.types import CommitId, Epoch
from ckpt_bench.compare.turns import Job, unique_name
from ckpt_bench.stores import NAMESPACE, BackendStore, Store, open_store


class PeerBackend(Backend):
    """A peer with what a SafeKeeper calls: batches of puts and gets of plain namespaces. It fences nobody."""

    scheme: ClassVar[str] = "peer"
    capabilities = Capabilities(
        persistent=True,
        shared_writers=False,
        ttl=False,
        atomic_put=True,
        ordered_scan=False,
        detects_corruption=False,
    )

    def __init__(self, name: str, store: Store) -> None:
        self.address = f"peer://{name}"
        self._store = store

    def put_many(self, namespace: str, items: Mapping[bytes, bytes], *, ttl_s: float | None = None) -> None:
        assert ttl_s is None
        if (
            namespace != NAMESPACE
        ):  # what the SafeKeeper notes for itself; the benchmark's keys go as they are
            items = {b"%s/%s" % (namespace.encode(), key): value for key, value in items.items()}
        self._store.put_many(items)

    def get_many(
        self,
        namespace: str,
        keys: Iterable[bytes],
        *,
        version: int | None = None,
        commit_id: str | None = None,
    ) -> dict[bytes, bytes]:
        assert namespace == NAMESPACE
        assert version is None
        assert commit_id is None
        return self._store.get_many(keys)

    def claim(self, namespace: str) -> Epoch:
        del namespace
        return Epoch(1)

    def release(self, namespace: str) -> None:
        """Nobody else can have it."""

    def flush(self) -> None:
        """It is opened durable, so there is nothing to wait for."""

    def close(self) -> None:
        self._store.close()

    # -- what a benchmark does not do ------------------------------------------------------------

    def delete_many(self, namespace: str, keys: Iterable[bytes]) -> None:
        self._refuse(namespace, keys)

    def scan(
        self,
        namespace: str,
        *,
        prefix: bytes = b"",
        version: int | None = None,
        commit_id: str | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        self._refuse(namespace, prefix, version, commit_id)

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
        self._refuse(namespace, version, puts, deletes, base, commit_id)

    def history(self, namespace: str) -> History:
        del namespace
        return History()

    def truncate(self, namespace: str, keep_from: int) -> None:
        self._refuse(namespace, keep_from)

    def namespaces(self) -> list[str]:
        self._refuse()

    def drop(self, namespace: str) -> None:
        self._refuse(namespace)

    def _refuse(self, *given: object) -> NoReturn:
        del given
        raise UnsupportedError(f"{self.address} takes part in benchmarks of puts and gets only")


class Home:
    """Where a job's store is, so that it can be opened, closed, opened again, and left without a trace."""

    def __init__(self, job: Job, name: str) -> None:
        self._job, self._name = job, name
        self._address, self.namespace = None, NAMESPACE
        if job.address is not None:
            address = parse_address(job.address)
            if address.scheme.startswith("fsspec+"):
                # A folder of its own: what lies beside it costs listings, and is not ours to compact.
                address = Address(address.scheme, f"{address.location}/{unique_name()}", address.options)
            else:
                self.namespace = unique_name()
            self._address = address

    def open(self) -> Backend:
        """The store as a backend, durable."""
        if self._address is not None:
            scheme, location = self._address.scheme, self._address.location
            return ckpt.open_backend(f"{scheme}://{location}", **self._address.options)
        store = open_store(self._name, self._job.folder, durable=True)
        return store.backend if isinstance(store, BackendStore) else PeerBackend(self._name, store)

    def leave(self, backend: Backend) -> None:
        """Close it, and remove what was written to a server."""
        try:
            if self._address is not None:
                backend.drop(self.namespace)
        finally:
            backend.close()
