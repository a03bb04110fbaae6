"""Opening a store that exists: to read it without getting in the way of its writer, or as its writer.

`open_backend` makes a store where there is none. To look at one, to mend it or to move it must not make one.
"""

from __future__ import annotations

import contextlib
import os

from ckpt.contract.addresses import Address, parse_address
from ckpt.contract.backend import Backend
from ckpt.contract.registry import load_factory, open_backend
from ckpt.errors import ConfigError, CorruptRecordError

LOCAL_SCHEMES = frozenset({"file", "log"})


def open_to_read(address: str) -> Backend:
    """Open an existing store; where a second handle could disturb a writer, with `mode=read`."""
    parsed = parse_address(address)
    _require_store(parsed)
    return open_backend(address, mode="read") if _reads_need_mode(parsed) else open_backend(address)


def open_to_write(address: str, *, create: bool = False) -> Backend:
    """Open a store as its writer; it must exist, unless it is to be made."""
    parsed = parse_address(address)
    if not create:
        _require_store(parsed)
        if _reads_need_mode(parsed):
            # A reader refuses a folder that is no store, where a writer would make one of it. That the
            # store is damaged is no reason to refuse: it may be here to be repaired.
            with contextlib.suppress(CorruptRecordError):
                open_backend(address, mode="read").close()
    return open_backend(address)


def _reads_need_mode(address: Address) -> bool:
    return bool(getattr(load_factory(address.scheme), "reads_need_mode", False))


def _require_store(address: Address) -> None:
    """Raise if there is no store: opening a local address would make one."""
    if address.scheme not in LOCAL_SCHEMES:
        return
    if not os.path.isdir(address.path):
        raise ConfigError(f"no store at {address}: {address.path} is not a directory; check the address")
    with os.scandir(address.path) as entries:
        if next(entries, None) is None:
            raise ConfigError(f"no store at {address}: {address.path} is empty; check the address")
