"""The namespaces of a file store: a directory each, with one file per key, or one per commit.

Nothing here takes a lock; `FileBackend` does, where the contract needs one.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

from ckpt.contract.disk import Disk
from ckpt.errors import CorruptRecordError, shown_key
from ckpt.types import Changes
from ckpt_backends.file.history import CommitDirectory
from ckpt_backends.file.names import file_name, spelled_key
from ckpt_backends.file.records import (
    Aside,
    DamagedFileError,
    KeyRecord,
    decode_record,
    encode_note,
    encode_record,
    read_note,
    read_whole,
    remove_tree,
)


class FileNamespace:
    """One namespace; its directory may or may not exist yet."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        namespace: str,
        aside: Aside,
        clock: Callable[[], float],
        *,
        durable: bool,
    ) -> None:
        self.namespace = namespace
        self.path = path
        self.keys_path = os.path.join(path, "keys")
        self.commits = CommitDirectory(disk, path, namespace, aside, durable=durable)
        self._disk = disk
        self._aside = aside
        self._clock = clock

    # -- what is there ---------------------------------------------------------------------------

    def is_versioned(self) -> bool:
        """Whether it has a commit."""
        return self.commits.exists()

    def holds_keys(self) -> bool:
        """Whether a plain key is alive, or its file too damaged to tell."""
        now_s = self._clock()
        for name in self.names():
            try:
                record = self.record(name)
            except CorruptRecordError:
                return True
            if record is not None and record.alive(now_s):
                return True
        return False

    def holds_anything(self) -> bool:
        return self.is_versioned() or self.holds_keys()

    def names(self) -> list[str]:
        """The names of all key files."""
        try:
            return os.listdir(self.keys_path)
        except FileNotFoundError:
            return []

    # -- reading ---------------------------------------------------------------------------------

    def get_many(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """The values of the keys that exist and have not expired."""
        found = {}
        now_s = self._clock()
        for key in keys:
            record = self.record(file_name(key), key)
            if record is not None and record.alive(now_s):
                found[key] = record.value
        return found

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every key that is there now, in order; its value is read when its turn comes."""
        keyed = []
        for name in self.names():
            key = self.key_of(name)
            if key is not None and key.startswith(prefix):
                keyed.append((key, name))
        keyed.sort()
        return self._values(keyed)

    def _values(self, keyed: list[tuple[bytes, str]]) -> Iterator[tuple[bytes, bytes]]:
        for key, name in keyed:
            record = self.record(name, key)
            if record is not None and record.alive(self._clock()):
                yield key, record.value

    def key_of(self, name: str) -> bytes | None:
        """The key in a file of that name; None if the file has just gone."""
        try:
            key = spelled_key(name)
        except ValueError as error:
            raise self._corrupt(name, None, str(error)) from error
        if key is not None:
            return key
        record = self.record(name)
        return None if record is None else record.key

    def record(self, name: str, key: bytes | None = None) -> KeyRecord | None:
        """What a key's file holds, None if there is none, or CorruptRecordError."""
        data = read_whole(self._disk, os.path.join(self.keys_path, name))
        if data is None:
            return None
        try:
            record = decode_record(data)
        except DamagedFileError as damage:
            raise self._corrupt(name, key, str(damage)) from damage
        if file_name(record.key) != name or (key is not None and record.key != key):
            raise self._corrupt(name, key, f"it holds the key {shown_key(record.key)}")
        return record

    def _corrupt(self, name: str, key: bytes | None, reason: str) -> CorruptRecordError:
        what = "" if key is None else f"key {shown_key(key)} of "
        return CorruptRecordError(
            f"{os.path.join(self.keys_path, name)} ({what}namespace {self.namespace!r}): {reason}; "
            "run `ckpt verify`, then `ckpt repair`"
        )

    # -- writing ---------------------------------------------------------------------------------

    def create(self) -> None:
        """Make the directory; a name that does not spell the namespace is explained before it is used."""
        if os.path.isdir(self.keys_path):
            return
        self._disk.make_dirs(self.path)
        if spelled_key(os.path.basename(self.path)) is None:
            note = {"namespace": self.namespace}
            name_path = os.path.join(self.path, "name")
            found = read_note(self._disk, name_path, self.namespace)
            if found is None:
                self._aside.replace(name_path, [encode_note(note)], durable=True)
            elif found != note:
                raise CorruptRecordError(f"{name_path} names another namespace than {self.namespace!r}")
        self._disk.make_dirs(self.keys_path)

    def remove_expired(self) -> None:
        """Remove the files of expired keys; the caller holds the lock alone."""
        removed = False
        for name in self.names():
            with contextlib.suppress(CorruptRecordError):  # `verify` reports it
                record = self.record(name)
                if record is not None and not record.alive(self._clock()):
                    self._disk.unlink(os.path.join(self.keys_path, name))
                    removed = True
        if removed:
            self._disk.sync_dir(self.keys_path)

    def check_no_collision(self, key: bytes) -> None:
        """A hashed name that holds another key must not be overwritten, however unlikely that is."""
        name = file_name(key)
        data = (
            read_whole(self._disk, os.path.join(self.keys_path, name)) if spelled_key(name) is None else None
        )
        with contextlib.suppress(DamagedFileError):  # a damaged file may be replaced: that mends it
            if data is not None and decode_record(data).key != key:
                raise self._corrupt(name, key, "it holds another key with the same hash")


class FileNamespaces:
    """Every namespace below one directory."""

    def __init__(
        self, disk: Disk, directory: str, aside: Aside, clock: Callable[[], float], *, durable: bool
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._aside = aside
        self._clock = clock
        self._durable = durable
        self._known: dict[str, FileNamespace] = {}
        self._lock = threading.Lock()

    def __getitem__(self, namespace: str) -> FileNamespace:
        with self._lock:
            if namespace not in self._known:
                path = os.path.join(self._directory, file_name(namespace.encode()))
                self._known[namespace] = FileNamespace(
                    self._disk, path, namespace, self._aside, self._clock, durable=self._durable
                )
            return self._known[namespace]

    def __iter__(self) -> Iterator[FileNamespace]:
        for folder in sorted(os.listdir(self._directory)):
            namespace = self.namespace_of(folder)
            if namespace is not None:
                yield self[namespace]

    def namespace_of(self, folder: str) -> str | None:
        """The namespace of a folder; None while it is being created."""
        path = os.path.join(self._directory, folder)
        try:
            spelled = spelled_key(folder)
            if spelled is not None:
                return spelled.decode()
        except ValueError as error:
            raise CorruptRecordError(f"{path} is not a namespace's directory; run `ckpt repair`") from error
        note = read_note(self._disk, os.path.join(path, "name"))
        if note is None:
            if os.path.isdir(os.path.join(path, "keys")):
                raise CorruptRecordError(f"{path} has lost the name of its namespace; run `ckpt repair`")
            return None
        namespace: str = note["namespace"]
        return namespace

    def write(self, batches: Mapping[str, Changes]) -> list[str]:
        """Put and delete in several namespaces, one sync of each directory; the paths that were written."""
        moves: list[tuple[str, str]] = []
        touched: dict[str, None] = {}
        now_s = self._clock()
        try:
            for namespace, changes in batches.items():
                space = self[namespace]
                if changes.puts:
                    space.create()
                    touched[space.keys_path] = None
                expires_s = None if changes.ttl_s is None else now_s + changes.ttl_s
                for key, value in changes.puts.items():
                    space.check_no_collision(key)
                    aside = self._aside.write(
                        encode_record(key, bytes(value), expires_s), durable=self._durable
                    )
                    moves.append((aside, os.path.join(space.keys_path, file_name(key))))
            for number, (aside, target) in enumerate(moves):
                self._disk.rename(aside, target)
                moves[number] = ("", target)
        except BaseException:
            self._aside.discard([aside for aside, _ in moves if aside])
            raise
        for namespace, changes in batches.items():
            space = self[namespace]
            for key in changes.deletes:
                path = os.path.join(space.keys_path, file_name(key))
                if os.path.lexists(path):
                    space.check_no_collision(key)
                    with contextlib.suppress(FileNotFoundError):  # another writer was faster
                        self._disk.unlink(path)
                    touched[space.keys_path] = None
        if self._durable:
            for directory in touched:
                self._disk.sync_dir(directory)
        return [target for _, target in moves] + list(touched)

    def drop(self, space: FileNamespace) -> None:
        """Remove a namespace in one step: rename it aside, then remove what is there."""
        if not os.path.isdir(space.path):
            return
        aside = self._aside.path()
        self._disk.rename(space.path, aside)
        self._disk.sync_dir(self._directory)
        self._disk.sync_dir(self._aside.directory)
        remove_tree(self._disk, aside)

    def sync(self, paths: Iterable[str]) -> None:
        """Make files and their directories durable; those that are gone need nothing."""
        directories = set()
        for path in paths:
            if os.path.isdir(path):
                directories.add(path)
                continue
            try:
                fd = self._disk.open(path, os.O_RDONLY)
            except (FileNotFoundError, NotADirectoryError):
                continue
            try:
                self._disk.sync(fd)
            finally:
                self._disk.close(fd)
            directories.add(os.path.dirname(path))
        for directory in sorted(directories):
            if os.path.isdir(directory):
                self._disk.sync_dir(directory)
