"""What stores need beyond a folder: packages that may be missing, and servers with their addresses.

A server whose address nobody gives is one of `ckpt dev`: started if it does not run, and left as it was.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from ckpt.contract.addresses import parse_address, suggestion
from ckpt.dev import MissingToolError, fleet
from ckpt.errors import CkptError, ConfigError
from ckpt_bench.drivers import BULK_STORES
from ckpt_bench.stores import INSTALL_HINT, is_installed

SERVERS = ("redis", "hbase", "cassandra", "s3")
SERVER_OF: Mapping[str, str] = MappingProxyType(
    {
        **{name: name for name in SERVERS},
        **{f"{server}-{call}": server for server, calls in BULK_STORES.items() for call in calls},
        "raw-put": "s3",
        "slatedb": "s3",
    }
)
"""Store → the server that it is on."""

_DRIVERS = {"redis": "redis", "hbase": "happybase", "cassandra": "cassandra", "s3": "s3fs"}
_DEV_DURABILITY = {
    "redis": "appendfsync always",
    "hbase": "WAL, hsync",
    "cassandra": "commitlog_sync batch, QUORUM of 1",
    "s3": "PUT acknowledged, S3Proxy on a folder",
}
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def lacks(store: str) -> str | None:
    """What has to be installed before the store can take part, or None."""
    if store == "slatedb":
        return None if importlib.util.find_spec("slatedb") else f"slatedb is not installed; {INSTALL_HINT}"
    server = SERVER_OF.get(store)
    if server is not None:
        driver = _DRIVERS[server]
        there = importlib.util.find_spec(driver) is not None
        return None if there else f"{driver} is not installed; install it with: pip install 'ckpt[{server}]'"
    name = store.removesuffix("-keeper")
    return None if is_installed(name) else f"{name} is not installed; {INSTALL_HINT}"


def given_addresses(pairs: Sequence[str]) -> dict[str, str]:
    """`NAME=ADDRESS` as a mapping, or a ConfigError.

    Examples
    --------
    >>> given_addresses(["redis=redis://127.0.0.1:6379/0"])
    {'redis': 'redis://127.0.0.1:6379/0'}
    """
    found = {}
    for pair in pairs:
        name, equals, address = pair.partition("=")
        if not equals:
            raise ConfigError("a server's address is given as NAME=ADDRESS, e.g. redis=redis://host:6379/0")
        if name not in SERVERS:
            raise ConfigError(f"no server {name!r}; {suggestion(name, SERVERS)}")
        parse_address(address)
        found[name] = address
    return found


@contextlib.contextmanager
def served(
    names: Iterable[str],
    given: Mapping[str, str],
    say: Callable[[str], object],
    fault: Callable[[str], object],
) -> Iterator[dict[str, str]]:
    """The addresses of these servers, up to the end of the context; those that cannot be had are named."""
    with contextlib.ExitStack() as leases:
        addresses = {}
        for name in names:
            if name in given:
                addresses[name] = given[name]
                continue
            say(f"{name}: waiting for the server")
            try:
                lease = leases.enter_context(fleet.Lease(name, report=partial(_report, say, name)))
            except MissingToolError as error:
                say(f"left out: {name}: {error}")
            except CkptError as error:
                fault(f"{name} did not start and is left out: {error}")
            else:
                addresses[name] = lease.address
        yield addresses


def _report(say: Callable[[str], object], server: str, line: str) -> None:
    say(f"{server}: {line}")


def durability(store: str, *, durable: bool, given: Mapping[str, str]) -> str:
    """What an acknowledged write of this store has survived, in a few words."""
    server = SERVER_OF.get(store)
    if server is None:
        return "fsync" if durable else "page cache"
    return "as the server is set up" if server in given else _DEV_DURABILITY[server]


def network(store: str, given: Mapping[str, str]) -> str:
    """What is between the benchmark and the store."""
    server = SERVER_OF.get(store)
    if server is None:
        return "none"
    if server not in given:
        return "TCP, loopback"
    address = parse_address(given[server])
    host = address.options.get("fs.endpoint_url", address.location).rpartition("//")[2].rpartition("@")[2]
    return "TCP, loopback" if host.startswith(_LOOPBACK) else "TCP"
