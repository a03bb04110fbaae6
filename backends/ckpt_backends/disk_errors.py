"""A failing disk is named in the same words everywhere: where it failed, why, and the next step."""

from __future__ import annotations

import contextlib
import errno

from ckpt.errors import BackendUnavailableError

_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space, or move the store to a larger disk",
    errno.EDQUOT: "the disk quota is used up: free some space, or raise the quota",
    errno.EROFS: "the filesystem is read-only: mount it writable, or open another directory",
    errno.EACCES: "permission is denied: give this user access to the directory",
    errno.EPERM: "permission is denied: give this user access to the directory",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
    errno.EIO: "the disk reports an I/O error: check the disk (dmesg), then run `ckpt verify`",
}

_LASTING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})


def lasting_advice(error: OSError) -> str | None:
    """What to do about an error that trying again does not mend; None for one that may pass.

    Examples
    --------
    >>> lasting_advice(OSError(errno.EROFS, "Read-only file system"))
    'the filesystem is read-only: mount it writable, or open another directory'
    >>> lasting_advice(OSError(errno.EIO, "Input/output error")) is None
    True
    """
    return _ADVICE[error.errno] if error.errno in _LASTING else None


class DiskErrors(contextlib.AbstractContextManager[None]):
    """Every OSError of the block becomes a BackendUnavailableError that says what to do about it.

    Errors of the kind `passing` are left as they are: to their block they are answers.

    Examples
    --------
    >>> with DiskErrors("write to", "/var/ckpt"):
    ...     raise OSError(errno.EROFS, "Read-only file system")
    Traceback (most recent call last):
    ckpt.errors.BackendUnavailableError: cannot write to /var/ckpt: the filesystem is read-only: mount it \
writable, or open another directory
    """

    # A class and no generator: every write of the log passes through one.
    def __init__(self, action: str, place: str, passing: type[OSError] | None = None) -> None:
        self._action, self._place, self._passing = action, place, passing

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError) or (self._passing and isinstance(error, self._passing)):
            return
        where = self._place
        if isinstance(error.filename, str) and error.filename != where:
            where = f"{where}: {error.filename}"
        why = _ADVICE.get(error.errno or 0) or (
            f"{error.strerror or error}; see that the directory is reachable and try again"
        )
        raise BackendUnavailableError(f"cannot {self._action} {where}: {why}") from error
