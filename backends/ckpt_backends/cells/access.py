"""How a server is reached: hosts, user, password and TLS; one reading of addresses, one wording for all.

A password comes from the address, from a file or from the environment, in this order, and appears nowhere:
not in `repr`, not in messages, not in the address that a backend gives of itself. So no message repeats a
part of an address that could hold one, also where the address is wrong.
"""

from __future__ import annotations

import dataclasses
import os
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlencode

from ckpt.contract.addresses import Address
from ckpt.errors import ConfigError
from ckpt_backends.cells.options import CellOptions

_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<name>[^:/\[\]@,\s]+))(?::(?P<port>\d{1,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions(CellOptions):
    """Whether a server is spoken to over TLS, which authorities are trusted, and the client's certificate."""

    tls: bool = False
    """Speak TLS."""
    tls_ca: str | None = None
    """A PEM file with the authorities to trust instead of those of the system."""
    tls_cert: str | None = None
    """A PEM file with a certificate of this client, where the server asks for one."""
    tls_key: str | None = None
    """A PEM file with the key of `tls_cert`, if it does not stand in that file."""

    def __post_init__(self) -> None:
        # The short form of super() does not know the class that slots make.
        CellOptions.__post_init__(self)
        if not self.tls and (self.tls_ca or self.tls_cert or self.tls_key):
            raise ConfigError("tls_ca, tls_cert and tls_key need tls=true")
        if self.tls_key and not self.tls_cert:
            raise ConfigError("tls_key is the key of a tls_cert; give both")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginOptions(TlsOptions):
    """Where the password is, if it does not stand in the address."""

    password_file: str | None = None
    """A file that holds the password."""
    password_env: str = "CKPT_PASSWORD"
    """The environment variable that holds the password, if neither address nor file does."""

    def password(self) -> str | None:
        """The password of the file, else of the environment, else None."""
        if self.password_file is None:
            return os.environ.get(self.password_env) or None
        try:
            with open(self.password_file, encoding="utf-8") as file:
                password = file.read().rstrip("\r\n")
        except OSError as error:
            raise ConfigError(
                f"password_file {self.password_file} cannot be read: {error.strerror}"
            ) from None
        except UnicodeDecodeError:
            # Its own text quotes a byte of the file.
            raise ConfigError(f"password_file {self.password_file} is not UTF-8 text") from None
        if not password:
            raise ConfigError(f"password_file {self.password_file} is empty; put the password into it")
        return password


@dataclass(frozen=True, slots=True)
class ServerLocation:
    """What scheme and location of an address say: hosts, user and password, and the name of the store."""

    scheme: str
    listed: tuple[tuple[str, int | None], ...]
    """The hosts, with the ports that stand in the address."""
    path: str
    """What follows the hosts, as it stands there, without slashes around it."""
    username: str | None
    password: str | None = field(repr=False)
    """The one in the address; it may be elsewhere."""

    def hosts(self, port: int) -> tuple[tuple[str, int], ...]:
        """The hosts; those without a port have that of the last one, and `port` if that has none."""
        common = self.listed[-1][1] or port
        return tuple((host, named or common) for host, named in self.listed)

    def shown(self, port: int, path: object) -> str:
        """The address without password and options."""
        user = f"{quote(self.username, safe='')}@" if self.username else ""
        hosts = ",".join(f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in self.hosts(port))
        return f"{self.scheme}://{user}{hosts}/{path}"


def read_location(address: Address) -> ServerLocation:
    """The location that an address names. Read it before the options: a password may look like one of them.

    Examples
    --------
    >>> from ckpt.contract.addresses import parse_address
    >>> location = read_location(parse_address("redis://ada:secret@h1,h2:7/2"))
    >>> location.hosts(6379), location.shown(6379, location.path)
    ((('h1', 7), ('h2', 7)), 'redis://ada@h1:7,h2:7/2')
    >>> "secret" in repr(location)
    False
    """
    login, _, where = address.location.rpartition("@")
    user, _, secret = login.partition(":")
    if re.search(r"[:/@]", secret) or re.search(r"[/@]", user):
        raise ConfigError(
            "write the characters : / @ ? in the user or password of an address as percent escapes"
        )
    listed, _, path = where.partition("/")
    hosts = tuple(_host(part, address.scheme) for part in listed.split(","))
    return ServerLocation(
        address.scheme, hosts, path.strip("/"), unquote(user) or None, unquote(secret) or None
    )


def _host(part: str, scheme: str) -> tuple[str, int | None]:
    match = _HOST.fullmatch(part)
    port = int(match["port"]) if match and match["port"] else None
    if not match or (port is not None and not 0 < port < 65536):
        # It is not repeated: what stands here may be a password that is followed by no host, or holds a ?.
        raise ConfigError(
            f"no host can be read from this {scheme} address; write {scheme}://host:port/… or "
            f"{scheme}://user:password@host:port/…, with : / @ ? in a password as percent escapes"
        )
    return match["v6"] or match["name"], port


def shown_address(base: str, options: CellOptions, *, without: Iterable[str] = ()) -> str:
    """An address that opens the same store again: what differs from the defaults stands behind `base`.

    Examples
    --------
    >>> shown_address("x://host:1/a", LoginOptions(tls=True, password_file="/a b"))
    'x://host:1/a?tls=true&password_file=/a%20b'
    """
    left_out = set(without)
    chosen = {
        f.name: getattr(options, f.name)
        for f in dataclasses.fields(options)
        if f.name not in left_out and getattr(options, f.name) != f.default
    }
    told = {name: str(value).lower() if isinstance(value, bool) else value for name, value in chosen.items()}
    return f"{base}?{urlencode(told, quote_via=quote, safe='/:,')}" if told else base


def tls_context(options: TlsOptions, *, check_host: bool = True) -> ssl.SSLContext | None:
    """What connections are wrapped in, with all files read now; None without TLS."""
    if not options.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=options.tls_ca)
    except OSError as error:
        raise _unusable("tls_ca", options.tls_ca, error) from error
    context.check_hostname = check_host
    if options.tls_cert is not None:
        try:
            context.load_cert_chain(options.tls_cert, options.tls_key, password=_no_pass_phrase)
        except OSError as error:
            with_key = "" if options.tls_key is None else f" with tls_key {options.tls_key}"
            raise _unusable("tls_cert", f"{options.tls_cert}{with_key}", error) from error
    return context


def _unusable(name: str, path: str | None, error: OSError) -> ConfigError:
    why = "it is not what PEM should be" if isinstance(error, ssl.SSLError) else error.strerror
    return ConfigError(f"{name} {path} cannot be used: {why}; name a PEM file that this user may read")


def _no_pass_phrase() -> str:
    # Otherwise OpenSSL would ask for it at the terminal, and wait.
    raise ConfigError(
        "the key of tls_cert is encrypted; name one without a pass phrase, readable only by you"
    )
