"""How commands open stores: reading ones create nothing and never get in the way of a running writer."""

from __future__ import annotations

import contextlib
import os

import click

from ckpt.backend import Backend
from ckpt.config import Address, parse_address, suggestion
from ckpt.errors import ConfigError, CorruptRecordError
from ckpt.registry import load_factory, open_backend
from ckpt.types import check_namespace

_LOCAL_SCHEMES = frozenset({"file", "log"})


def address_parameter(_: click.Context, __: click.Parameter, value: str) -> str:
    """An address that parses and whose scheme is known, as the callback of its parameter."""
    try:
        load_factory(parse_address(value).scheme)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None
    return value


def open_to_read(address: str) -> Backend:
    """Open an existing store; where a second handle could disturb a writer, with `mode=read`."""
    parsed = parse_address(address)
    _require_store(parsed)
    return open_backend(address, mode="read") if _reads_need_mode(parsed) else open_backend(address)


def open_to_write(address: str, *, create: bool = False) -> Backend:
    """Open a store as its writer; it must exist, unless the command is there to make it."""
    parsed = parse_address(address)
    if not create:
        _require_store(parsed)
        if _reads_need_mode(parsed):
            # A reader refuses a folder that is no store, where a writer would make one of it. That the
            # store is damaged is no reason to refuse: it may be here to be repaired.
            with contextlib.suppress(CorruptRecordError):
                open_backend(address, mode="read").close()
    return open_backend(address)


def require_namespace(backend: Backend, namespace: str) -> str:
    """The namespace, if the store holds it; otherwise an error that names the nearest one."""
    known = backend.namespaces()
    if check_namespace(namespace) not in known:
        raise ConfigError(f"no namespace {namespace!r} in {backend.address}; {suggestion(namespace, known)}")
    return namespace


def require_two_stores(source: str, target: str) -> None:
    """Refuse to copy a store onto itself, however its path is written.

    Of the options only `prefix` names another store: servers keep several in one place.
    """
    one, other = parse_address(source), parse_address(target)
    same = (one.location, one.options.get("prefix")) == (other.location, other.options.get("prefix"))
    if one.scheme in _LOCAL_SCHEMES:
        same = os.path.realpath(one.path) == os.path.realpath(other.path)
    if same and one.scheme == other.scheme and one.location:
        raise ConfigError(f"{one} and {other} are one store; name another to copy to")


def _reads_need_mode(address: Address) -> bool:
    return bool(getattr(load_factory(address.scheme), "reads_need_mode", False))


def _require_store(address: Address) -> None:
    """Opening makes a store where there is none; a command that does not mean to has to look first."""
    if address.scheme not in _LOCAL_SCHEMES:
        return
    if not os.path.isdir(address.path):
        raise ConfigError(f"no store at {address}: {address.path} is not a directory; check the address")
    with os.scandir(address.path) as entries:
        if next(entries, None) is None:
            raise ConfigError(f"no store at {address}: {address.path} is empty; check the address")
