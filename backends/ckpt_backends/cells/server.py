"""What a server must offer so that the whole contract holds on it: rows, cells, a ledger, and a fence.

`CellBackend` keeps the contract (versions, claims, truncation, time to live, corruption) once for every
server; a server's own module only says how rows are written and read there. What it is asked for:

- **Plain rows**: one per key, the newest wins. A write names the *fence* it was made under; once a higher
  fence is up, it must change nothing.
- **Cells**: one per key and *stamp*, for versioned namespaces. Which stamps a reader sees is decided above,
    so a server may hold cells that no reader sees (of a crashed commit, of a zombie) without harm.
  - **The ledger**: numbered records per namespace that say what counts (its commits, and its owner).
  A record is added only as the next one, so two writers never both succeed.

Values are opaque here: each carries its own format, checksum and time of expiry.

Every method may be called from several threads, ends in bounded time, and may be called again after a
failure: `NotNowError` where trying again may help, another `CkptError` where it cannot. Nothing but a
`CkptError` leaves a method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from ckpt.errors import BackendUnavailableError


class NotNowError(BackendUnavailableError):
    """The server did not answer this time; `CellBackend` asks again until `retry_s` is over."""


class CellServer(ABC):
    """One open connection (or pool) to a server, in the words that `CellBackend` needs."""

    scans_every_cell: ClassVar[bool] = True
    """Whether `scan_cells` yields every cell of a key, or only the newest one at or below the bound."""

    # -- namespaces ------------------------------------------------------------------------------

    @abstractmethod
    def names(self) -> list[str]:
        """Every namespace that was ever registered, whether or not it holds anything now."""

    @abstractmethod
    def register(self, namespace: str) -> None:
        """Durably note the namespace before its first write; idempotent. Called once per handle."""

    # -- the ledger ------------------------------------------------------------------------------

    @abstractmethod
    def load(self, namespace: str, after: int) -> list[tuple[int, bytes]]:
        """The records with a number above `after`, ascending.

        The first may be higher than `after + 1` if earlier ones were forgotten; from it on no number is
        missing. Every record whose `append` was acknowledged is there (a linearizable read).
        """

    @abstractmethod
    def append(self, namespace: str, number: int, record: bytes, *, fences: bool) -> bool:
        """Durably add this record if `number - 1` is the newest ever added (0: none); whether it was added.

        With `fences`, a server that can do so atomically also raises the fence of plain rows to `number`;
        the others do that in `fence`, which is called next.
        """

    @abstractmethod
    def forget(self, namespace: str, below: int) -> None:
        """Remove the records with lower numbers. The number of the newest one ever added stays known."""

    # -- plain rows ------------------------------------------------------------------------------

    @abstractmethod
    def fence(self, namespace: str, number: int, *, exclusive: bool) -> None:
        """When this returns, `write_plain` with a lower fence changes nothing. A fence never goes down.

        `exclusive` says that this fence belongs to a claim: the writes under it will be exclusive. Called
        again with the same number after a crash, by any handle that finds that the fence is not up.
        """

    @abstractmethod
    def write_plain(
        self,
        namespace: str,
        puts: Mapping[bytes, bytes],
        deletes: Sequence[bytes],
        *,
        ttl_s: float | None,
        fence: int,
        exclusive: bool,
    ) -> bool:
        """Durably write rows if `fence` is still the fence of the namespace (0 before the first one).

        False if it is not, and then none of these rows may ever be seen, or, where rows are spread over
        places that are fenced one by one, only rows of places where the fence was not yet up. `exclusive`
        says that a claim stands behind the fence: no other handle writes under it, and this one writes
        one batch at a time. `ttl_s` is a hint to reclaim space; readers check the time themselves.
        """

    @abstractmethod
    def read_plain(self, namespace: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The rows of those keys that exist."""

    @abstractmethod
    def scan_plain(self, namespace: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every row whose key starts with `prefix`, each key once, page by page in bounded memory."""

    @abstractmethod
    def clear_plain(self, namespace: str) -> None:
        """Durably remove every row, in bounded memory. Called after the fence was raised."""

    # -- cells -----------------------------------------------------------------------------------

    @abstractmethod
    def new_stamp(self, namespace: str, above: int) -> int:
        """A stamp higher than `above` (and than 0) that no other call of any handle ever gets."""

    @abstractmethod
    def write_cells(self, namespace: str, stamp: int, cells: Mapping[bytes, bytes]) -> None:
        """Durably write one cell per key with this stamp."""

    def commit(
        self, namespace: str, number: int, record: bytes, stamp: int, cells: Mapping[bytes, bytes]
    ) -> bool:
        """`write_cells`, then `append`: one round trip where the server can do both as a whole."""
        self.write_cells(namespace, stamp, cells)
        return self.append(namespace, number, record, fences=False)

    @abstractmethod
    def newest_cells(self, namespace: str, bounds: Mapping[bytes, int]) -> dict[bytes, tuple[int, bytes]]:
        """For each key that has one: its newest cell with a stamp at or below the key's bound."""

    @abstractmethod
    def scan_cells(self, namespace: str, prefix: bytes, bound: int) -> Iterator[tuple[bytes, int, bytes]]:
        """(key, stamp, cell) of every key with `prefix`: first its newest cell at or below `bound`.

        All cells of a key follow each other; with `scans_every_cell` its older ones follow, newest first.
        Page by page in bounded memory.
        """

    @abstractmethod
    def remove_cells(self, namespace: str, up_to: Mapping[bytes, int]) -> None:
        """For each key, as a whole: remove its cells with stamps up to and including the given one."""

    @abstractmethod
    def clear_cells(self, namespace: str, up_to: int) -> None:
        """Remove every cell of the namespace with a stamp up to and including `up_to`."""

    # -- life ------------------------------------------------------------------------------------

    @abstractmethod
    def flush(self) -> None:
        """Return when everything acknowledged is as durable as the server can make it."""

    @abstractmethod
    def close(self) -> None:
        """Free connections and threads; idempotent. Calls that still run may fail."""

    def details(self) -> Mapping[str, int | float | str]:
        """Whatever the server says about itself that is worth a line in `ckpt stats`."""
        return {}
