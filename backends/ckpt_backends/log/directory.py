"""The directory of a log, apart from its segments: one writer, and files that change whole or not at all.

```
LOCK                 held by the writer (flock)
SYNC-FAILED          exists after a failed fsync until the next writer has written the tail again
MANIFEST             which index files hold what; replaced atomically
segments/N.seg       preallocated; a retired one becomes spare-… and then a later segment
index/run-….idx      immutable, mapped
quarantine/…         what `repair` took out of service
```
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from urllib.parse import quote

from ckpt.contract.disk import Disk
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt_backends.disk_errors import DiskErrors
from ckpt_backends.engine.storage import Buffers
from ckpt_backends.engine.store_kind import StoreKind, kind_of_folder


class LogDirectory:
    """Index files, manifest, quarantine and the writer's lock of a log in a local directory."""

    def __init__(self, path: str, disk: Disk | None) -> None:
        self.path = os.path.abspath(path)
        self.address = f"log://{quote(self.path)}"
        self._disk = disk or Disk()
        self._segments_dir = f"{self.path}/segments"
        self._index_dir = f"{self.path}/index"
        self._failed_sync_path = f"{self.path}/SYNC-FAILED"
        self._failed_sync: OSError | None = None
        self._lock_path = f"{self.path}/LOCK"
        self._lock_fd: int | None = None
        self._locked: os.stat_result | None = None

    def _require_no_object_store(self) -> None:
        """The objects of `fsspec+file://` look like segments that are to be cut and removed."""
        if kind_of_folder(self.path) is StoreKind.OBJECTS:
            raise ConfigError(
                f"{self.path} holds an object store and no log; open it as fsspec+file://{quote(self.path)}"
            )

    # -- the one writer --------------------------------------------------------------------------

    def _become_writer(self) -> None:
        """Be the one writer of this directory, which is made if there is none, until `_unlock`.

        One that has a lock file has been a log before; `examine` makes sure of that where it is in doubt.
        """
        self._lock_fd = self._lock(os.O_RDWR)
        if self._lock_fd is None:
            self._require_no_object_store()
            self._require_own_folder()
            self._make_folders()
            self._lock_fd = self._lock(os.O_RDWR | os.O_CREAT)

    def _make_folders(self) -> None:
        with DiskErrors("create", self.path):
            try:
                for folder in (self.path, self._segments_dir, self._index_dir):
                    self._disk.make_dirs(folder)
            except (FileExistsError, NotADirectoryError) as error:
                raise ConfigError(
                    f"{self.path} cannot be the folder of a log: a file is in the way; choose another path"
                ) from error

    def _require_own_folder(self) -> None:
        """A folder that holds something else is not made a log by a slip in an address."""
        with DiskErrors("read", self.path):
            names = set(os.listdir(self.path)) if os.path.isdir(self.path) else set()
        if names and not names & {"segments", "LOCK", "MANIFEST"}:
            raise ConfigError(f"{self.path} holds other files and no log; choose an empty or new folder")

    def _lock(self, flags: int) -> int | None:
        """The descriptor that holds the lock; None if there is nothing to lock, and none is to be made."""
        path = self._lock_path
        with DiskErrors("lock", path):
            try:
                fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
            except (FileNotFoundError, NotADirectoryError):
                if flags & os.O_CREAT:
                    raise
                return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.read(fd, 64).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise BackendUnavailableError(f"{path} cannot be locked: {error.strerror}") from error
            raise BackendUnavailableError(
                f"another writer (process {owner}) has {self.address} open; a log has one writer: "
                "close that one, or read with ?mode=read"
            ) from None
        self._locked = os.fstat(fd)
        return fd

    def _sign(self) -> None:
        """Write our process id into the lock file, which others show; only once this is known to be a log."""
        assert self._lock_fd is not None
        me = f"{os.getpid()}\n".encode()
        if os.pread(self._lock_fd, 64, 0) != me:
            with DiskErrors("write to", self._lock_path):
                os.ftruncate(self._lock_fd, 0)
                os.pwrite(self._lock_fd, me, 0)

    @property
    def is_gone(self) -> bool:
        """Whether the directory that was locked is no longer there: removed, or another is in its place.

        Its files can still be written, and what is written vanishes when they are closed.
        """
        if self._locked is None:
            return False
        try:
            return not os.path.samestat(self._locked, os.stat(self._lock_path))
        except (FileNotFoundError, NotADirectoryError):
            return True

    def _require_place(self) -> None:
        """Raise if the directory is gone: what was written is lost, and what is there now is another's."""
        try:
            gone = self.is_gone
        except OSError:
            with DiskErrors("look at", self.path):
                raise
        if gone:
            raise BackendUnavailableError(
                f"{self.path} was removed or replaced while {self.address} was open; "
                "put it back, or open the log again and begin with what is there"
            )

    def _unlock(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)

    def _remove_leftovers(self) -> None:
        """Remove what an earlier writer was about to rename when it crashed."""
        for folder in (self.path, self._segments_dir, self._index_dir):
            for name in os.listdir(folder):
                if ".tmp-" in name:
                    self._disk.unlink(os.path.join(folder, name))

    def _mark_failed_sync(self, error: OSError) -> None:
        """Tell the next writer that the kernel may have forgotten what it could not write."""
        self._failed_sync = error
        with contextlib.suppress(OSError):
            os.close(os.open(self._failed_sync_path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))

    # -- index -----------------------------------------------------------------------------------

    def write_index_file(self, name: str, buffers: Buffers) -> None:
        self._require_place()
        path = os.path.join(self._index_dir, name)
        with DiskErrors("write", path):
            self._disk.replace_file(path, buffers)

    def read_index_file(self, name: str) -> memoryview:
        path = f"{self._index_dir}/{name}"
        with DiskErrors("read", path, FileNotFoundError):
            fd = self._disk.open(path, os.O_RDONLY)
            try:
                return map_file(fd)
            finally:
                self._disk.close(fd)

    def remove_index_files(self, keep: set[str]) -> None:
        with contextlib.suppress(OSError):  # what is left over is removed the next time
            if self.is_gone:
                return
            for name in os.listdir(self._index_dir):
                if name not in keep:
                    self._disk.unlink(os.path.join(self._index_dir, name))

    def read_manifest(self) -> bytes | None:
        path = f"{self.path}/MANIFEST"
        try:
            with DiskErrors("read", path, FileNotFoundError):
                fd = self._disk.open(path, os.O_RDONLY)
                try:
                    return self._disk.pread(fd, os.fstat(fd).st_size, 0)
                finally:
                    self._disk.close(fd)
        except FileNotFoundError:
            return None

    def replace_manifest(self, data: bytes) -> None:
        self._require_place()
        with DiskErrors("write", self.path):
            self._disk.replace_file(os.path.join(self.path, "MANIFEST"), [data])
            if self._failed_sync is None and os.path.exists(self._failed_sync_path):
                self._disk.unlink(self._failed_sync_path)

    # -- the rest --------------------------------------------------------------------------------

    def stored_bytes(self) -> int:
        total = 0
        for folder in (self._segments_dir, self._index_dir):
            with os.scandir(folder) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        total += entry.stat().st_size
        return total

    def quarantine(self, name: str, data: bytes) -> str:
        folder = os.path.join(self.path, "quarantine")
        with DiskErrors("write", folder):
            self._disk.make_dirs(folder)
            self._disk.replace_file(os.path.join(folder, name), [data])
        return folder


def map_file(fd: int) -> memoryview:
    """What a file holds, to be read; a crash may leave one without any bytes."""
    try:
        return memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
    except ValueError:
        if os.fstat(fd).st_size:
            raise
        return memoryview(b"")
