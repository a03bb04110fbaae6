"""The stores that benchmarks put side by side: ours and the peers, behind the smallest common interface.

Every store is opened with a folder and one of two durability levels, so that a comparison is fair: `durable`
means that a batch is on stable storage when `put_many` returns, for all of them. Peers are imported when they
are opened; the extra `bench` installs them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import quote

import ckpt
from ckpt.contract.backend import Compacts
from ckpt.errors import ConfigError

NAMESPACE = "bench"
INSTALL_HINT = "install the peers with: pip install 'ckpt[bench]'"


class Store(Protocol):
    """What a benchmark does to a store."""

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        """Set every key, durably if the store was opened so."""

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The values of the keys that exist."""

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """Everything, in whatever order the store reads it fastest."""

    def compact(self) -> None:
        """Reclaim garbage, in whatever way the store has for that."""

    def close(self) -> None:
        """Free the store."""


class BackendStore:
    """One of our backends."""

    def __init__(self, address: str) -> None:
        self.backend = ckpt.open_backend(address)

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        self.backend.put_many(NAMESPACE, items)

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        return self.backend.get_many(NAMESPACE, keys)

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        return self.backend.scan(NAMESPACE)

    def compact(self) -> None:
        if isinstance(self.backend, Compacts):
            self.backend.compact()

    def close(self) -> None:
        self.backend.close()


class RocksStore:
    """RocksDB through rocksdict, in raw mode: bytes in, bytes out."""

    def __init__(self, folder: str, *, durable: bool) -> None:
        rocksdict = _peer("rocksdict")
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        self._db = rocksdict.Rdict(folder, options)
        self._write = rocksdict.WriteOptions()
        self._write.sync = durable
        self._db.set_write_options(self._write)
        self._batch = rocksdict.WriteBatch

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        if len(items) == 1:
            for key, value in items.items():
                self._db[key] = value
            return
        batch = self._batch(raw_mode=True)
        for key, value in items.items():
            batch.put(key, value)
        self._db.write(batch, self._write)

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        wanted = list(keys)
        found = zip(wanted, self._db.get(wanted), strict=True)
        return {key: value for key, value in found if value is not None}

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        yield from self._db.items()

    def compact(self) -> None:
        self._db.flush()
        self._db.compact_range(None, None)

    def close(self) -> None:
        self._db.close()


class LmdbStore:
    """LMDB with its fastest bulk call."""

    def __init__(self, folder: str, *, durable: bool) -> None:
        self._folder = folder
        self._env = _peer("lmdb").open(folder, map_size=64 << 30, sync=durable, metasync=durable)

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        with self._env.begin(write=True) as transaction:
            transaction.cursor().putmulti(items.items())

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        with self._env.begin() as transaction:
            return {key: value for key in keys if (value := transaction.get(key)) is not None}

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        with self._env.begin() as transaction:
            yield from transaction.cursor()

    def compact(self) -> None:
        # LMDB reclaims by copying what is needed to another folder.
        with tempfile.TemporaryDirectory(dir=os.path.dirname(self._folder)) as copy:
            self._env.copy(copy, compact=True)

    def close(self) -> None:
        self._env.close()


class SqliteStore:
    """SQLite with a write-ahead log, one upsert for each record in one transaction for each batch."""

    def __init__(self, folder: str, *, durable: bool) -> None:
        os.makedirs(folder, exist_ok=True)
        self._db = sqlite3.connect(
            os.path.join(folder, "db"), isolation_level=None, check_same_thread=False, timeout=60
        )
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        self._db.execute("CREATE TABLE IF NOT EXISTS kv (k BLOB PRIMARY KEY, v BLOB NOT NULL)")
        self._lock = threading.Lock()

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(
                "INSERT INTO kv VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v", items.items()
            )
            self._db.execute("COMMIT")

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        wanted = list(keys)
        marks = ", ".join("?" * len(wanted))
        with self._lock:
            return dict(self._db.execute(f"SELECT k, v FROM kv WHERE k IN ({marks})", wanted))

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        yield from self._db.execute("SELECT k, v FROM kv")

    def compact(self) -> None:
        self._db.execute("VACUUM")

    def close(self) -> None:
        self._db.close()


class DiskcacheStore:
    """diskcache without eviction, one transaction for each batch."""

    def __init__(self, folder: str, *, durable: bool) -> None:
        self._cache = _peer("diskcache").Cache(
            folder,
            timeout=60,
            eviction_policy="none",
            cull_limit=0,
            size_limit=1 << 40,
            sqlite_synchronous=2 if durable else 0,
        )

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        with self._cache.transact(retry=True):
            for key, value in items.items():
                self._cache.set(key, value, retry=True)

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        found = ((key, self._cache.get(key, retry=True)) for key in keys)
        return {key: value for key, value in found if value is not None}

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        return ((key, self._cache.get(key)) for key in self._cache)

    def compact(self) -> None:
        self._cache.cull()

    def close(self) -> None:
        self._cache.close()


class FilePerKey:
    """One file for each key, replaced by a rename, and nothing else: what S4 did, made safe."""

    def __init__(self, folder: str, *, durable: bool) -> None:
        os.makedirs(folder, exist_ok=True)
        self._folder, self._durable = folder, durable
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        aside = os.path.join(self._folder, f"new-{threading.get_ident()}")
        for key, value in items.items():
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                os.write(fd, value)
                if self._durable:
                    os.fdatasync(fd)
            finally:
                os.close(fd)
            os.replace(aside, os.path.join(self._folder, key.hex()))
        if self._durable:
            os.fsync(self._fd)

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        found = {}
        for key in keys:
            try:
                with open(os.path.join(self._folder, key.hex()), "rb", buffering=0) as file:
                    found[key] = file.readall()
            except FileNotFoundError:
                continue
        return found

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        names = (name for name in os.listdir(self._folder) if not name.startswith("new-"))
        return iter(self.get_many(map(bytes.fromhex, names)).items())

    def compact(self) -> None:
        """A file that is replaced is gone."""

    def close(self) -> None:
        os.close(self._fd)


class RawAppend:
    """The floor: the same bytes appended to one file, with nothing to find them by."""

    def __init__(self, folder: str, *, durable: bool) -> None:
        os.makedirs(folder, exist_ok=True)
        self._fd = os.open(os.path.join(folder, "raw"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._durable = durable

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        os.write(self._fd, b"".join(items.values()))
        if self._durable:
            os.fdatasync(self._fd)

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        del keys
        raise ConfigError("raw append is a floor for writes only; it cannot find a key again")

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        raise ConfigError("raw append is a floor for writes only; it cannot tell one record from another")

    def compact(self) -> None:
        """Nothing says what is garbage."""

    def close(self) -> None:
        os.close(self._fd)


STORES: dict[str, Callable[[str, bool], Store]] = {
    "log": lambda folder, durable: BackendStore(f"log://{quote(folder)}?durability={_level(durable)}"),
    "file": lambda folder, durable: BackendStore(f"file://{quote(folder)}?durability={_level(durable)}"),
    "rocksdict": lambda folder, durable: RocksStore(folder, durable=durable),
    "lmdb": lambda folder, durable: LmdbStore(folder, durable=durable),
    "sqlite3": lambda folder, durable: SqliteStore(folder, durable=durable),
    "diskcache": lambda folder, durable: DiskcacheStore(folder, durable=durable),
    "file-per-key": lambda folder, durable: FilePerKey(folder, durable=durable),
    "raw-append": lambda folder, durable: RawAppend(folder, durable=durable),
}
"""Name → how to open it in a folder, durable or not."""

OURS = frozenset({"log", "file"})
"""Those that are backends of ckpt."""

_PACKAGES = frozenset({"rocksdict", "lmdb", "diskcache"})


def is_installed(name: str) -> bool:
    """Whether the store of that name can be opened here; what is missing comes with the extra `bench`."""
    return name not in _PACKAGES or importlib.util.find_spec(name) is not None


def open_store(name: str, folder: str, *, durable: bool) -> Store:
    """Open a store by name.

    Examples
    --------
    >>> import tempfile
    >>> store = open_store("log", tempfile.mkdtemp() + "/log", durable=False)
    >>> store.put_many({b"be": b"2"})
    >>> store.get_many([b"be"])
    {b'be': b'2'}
    >>> store.close()
    """
    return STORES[name](folder, durable)


def _level(durable: bool) -> str:
    return "fsync" if durable else "os"


def _peer(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{module} is not installed; {INSTALL_HINT}") from error
