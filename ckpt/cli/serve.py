"""`serve`: the sidecar, as a service or on demand. The sidecar itself is `ckpt.sidecar`."""

from __future__ import annotations

import ipaddress
import logging
import logging.handlers
import os
import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from io import TextIOWrapper

import click

from ckpt.cli.stores import address_parameter
from ckpt.contract.backend import Breaks
from ckpt.contract.registry import open_backend
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt.sidecar.counters import prometheus_text
from ckpt.sidecar.frames import MAX_TOKEN_BYTES
from ckpt.sidecar.life import Ending, Place, PlaceLock, first_line, leave_the_terminal, take_or_find
from ckpt.sidecar.listeners import Listener, TcpListener, UnixListener
from ckpt.sidecar.scrapes import Scrapes
from ckpt.sidecar.server import Sidecar
from ckpt.sidecar.sessions import Door
from ckpt.sidecar.turns import take_short_turns

log = logging.getLogger(__name__)

_LOG_BYTES = 1 << 20
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def _address(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    return address_parameter(ctx, parameter, first_line() if value == "-" else value)


@click.command()
@click.argument("address", envvar="CKPT_ADDRESS", callback=_address)
@click.option(
    "--socket", "socket_path", help="Listen on this unix socket; default: one that ADDRESS leads to."
)
@click.option("--listen", metavar="HOST:PORT", help="Listen on TCP instead; needs a token.")
@click.option("--token-file", type=click.Path(dir_okay=False), help="Holds the token; default: CKPT_TOKEN.")
@click.option("--tls-cert", type=click.Path(dir_okay=False), help="Certificate chain for TLS.")
@click.option("--tls-key", type=click.Path(dir_okay=False), help="Its private key.")
@click.option("--metrics", metavar="HOST:PORT", help="Answer Prometheus' scrapes at /metrics there.")
@click.option("--on-demand", is_flag=True, help="Find the sidecar that runs, or be it while it is needed.")
@click.option(
    "--grace",
    "grace_s",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    help="Seconds to stay when no client is left.",
)
def serve(
    address: str,
    socket_path: str | None,
    listen: str | None,
    token_file: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    metrics: str | None,
    on_demand: bool,
    grace_s: float,
) -> None:
    """Serve a store to the executors and workers of this host.

    An ADDRESS that holds a secret does not belong on a command line: leave it out and set CKPT_ADDRESS, or
    write - and give it as the first line of standard input.

    READY and the place are printed as soon as clients can connect. SIGTERM finishes what is under way.
    With --on-demand, a second call for the same ADDRESS prints the place of the first and is done; the
    sidecar ends when its standard input is closed and no client has held a lifeline for the grace.
    """
    if listen is None and (token_file or tls_cert or tls_key):
        raise click.UsageError("--token-file, --tls-cert and --tls-key belong to --listen")
    if listen is not None and (socket_path or on_demand):
        raise click.UsageError("--listen goes without --socket and --on-demand")
    scraped = None if metrics is None else _host_and_port("--metrics", metrics)
    if listen is not None:
        host, port = _host_and_port("--listen", listen)
        door = Door(token=_token(token_file), tls=_tls(tls_cert, tls_key))
        _log_to(None)
        _run(address, lambda: _tcp(host, port, encrypted=door.tls is not None), door, scraped)
        return
    place = Place(os.path.abspath(socket_path)) if socket_path else Place.of(address)
    lock = take_or_find(place, timeout_s=60.0) if on_demand else _take(place)
    if lock is None:
        click.echo(f"READY {place.socket}")
        return
    with closing(lock):
        _log_to(place.log if on_demand else None)
        _run(
            address,
            lambda: UnixListener(place.socket),
            Door(),
            scraped,
            grace_s=grace_s if on_demand else None,
        )


def _run(
    address: str,
    listen: Callable[[], Listener],
    door: Door,
    scraped: tuple[str, int] | None,
    *,
    grace_s: float | None = None,
) -> None:
    """Be a sidecar until told to end; with a grace, until no client needs it any more."""
    take_short_turns()  # before any other thread is started, so that all have them
    with (
        closing(Ending()) as ending,
        open_backend(address) as backend,
        Sidecar(backend, listen(), door=door, on_broken=ending.now) as sidecar,
        _scrapes(sidecar, scraped, required=grace_s is None),
    ):
        if grace_s is not None:
            leave_the_terminal()
            ending.when_unneeded(sidecar, grace_s)
        click.echo(f"READY {sidecar.name}")
        ending.wait()
        if isinstance(backend, Breaks) and backend.is_broken:
            raise BackendUnavailableError(
                f"{backend.address} takes no more writes since a failure; its sidecar ends, start it again"
            )


def _scrapes(
    sidecar: Sidecar, place: tuple[str, int] | None, *, required: bool
) -> AbstractContextManager[object]:
    """Answers scrapes if they are wanted; a sidecar on demand does its work also if the port is taken."""
    if place is None:
        return nullcontext()
    try:
        return Scrapes(*place, lambda: prometheus_text(sidecar.stats()))
    except ConfigError as error:
        if required:
            raise
        log.warning("%s", error)
        return nullcontext()


def _take(place: Place) -> PlaceLock:
    lock = PlaceLock.take(place)
    if lock is None:
        raise BackendUnavailableError(
            f"a sidecar serves at {place.socket} already; use it, end it, or name another --socket"
        )
    return lock


def _token(path: str | None) -> bytes:
    if path is not None:
        try:
            with open(path, "rb") as file:
                token = file.read(MAX_TOKEN_BYTES + 2).strip()
        except OSError as error:
            raise ConfigError(
                f"cannot read a token from {path}: {error.strerror}; name a file that holds one"
            ) from error
    else:
        token = os.environ.get("CKPT_TOKEN", "").encode()
    if not token:
        raise ConfigError("--listen needs a token: write one to a file and name it with --token-file")
    if len(token) > MAX_TOKEN_BYTES:
        raise ConfigError(f"a token is at most {MAX_TOKEN_BYTES} bytes long; choose a shorter one")
    return token


def _tls(cert: str | None, key: str | None) -> ssl.SSLContext | None:
    if cert is None:
        if key is not None:
            raise ConfigError("--tls-key needs --tls-cert")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"no TLS with certificate {cert} and key {key or cert}: {error}") from error
    return context


def _host_and_port(option: str, value: str) -> tuple[str, int]:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{option} is HOST:PORT such as 127.0.0.1:7077, got {value!r}")
    return host.strip("[]"), int(port)


def _tcp(host: str, port: int, *, encrypted: bool) -> TcpListener:
    listener = TcpListener(host, port)
    if not encrypted and not ipaddress.ip_address(listener.host).is_loopback:
        click.echo(f"ckpt: the network sees token and state on {listener.name}; add --tls-cert", err=True)
    return listener


def _log_to(path: str | None) -> None:
    handler = None if path is None else _PrivateLog(path, maxBytes=_LOG_BYTES, backupCount=1, delay=True)
    logging.basicConfig(format=_LOG_FORMAT, handlers=None if handler is None else [handler])


class _PrivateLog(logging.handlers.RotatingFileHandler):
    """A file that only its user can read, and never one that another user has put in its place."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.fdopen(os.open(self.baseFilename, flags, 0o600), "a", encoding="utf-8")
