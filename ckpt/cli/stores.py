"""What commands ask of addresses and namespaces before they open or read them."""

from __future__ import annotations

import os

import click

from ckpt.contract.addresses import parse_address, suggestion
from ckpt.contract.backend import Backend
from ckpt.contract.opening import LOCAL_SCHEMES
from ckpt.contract.registry import load_factory
from ckpt.errors import ConfigError
from ckpt.types import check_namespace


def address_parameter(_: click.Context, __: click.Parameter, value: str) -> str:
    """An address that parses and whose scheme is known, as the callback of its parameter."""
    try:
        load_factory(parse_address(value).scheme)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None
    return value


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
    if one.scheme in LOCAL_SCHEMES:
        same = os.path.realpath(one.path) == os.path.realpath(other.path)
    if same and one.scheme == other.scheme and one.location:
        raise ConfigError(f"{one} and {other} are one store; name another to copy to")
