"""Redis, and a sentinel: one process each, on the system's `redis-server`.

Without settings every acknowledged write is on stable storage (`appendfsync always`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ckpt.dev import cache, probes, tools
from ckpt.dev.server import Server

_DATA, _USERS = "data", "users.acl"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate, private key and the certificate of the authority that signed them, all in PEM files."""

    certificate: str
    key: str
    authority: str


class _RedisProgram(Server):
    start_timeout_s: ClassVar[float] = 60.0

    def prepare(self, _report: cache.Report = cache.silent, /) -> None:
        """Check that there is a `redis-server`."""
        tools.redis_server()

    def _environment(self) -> Mapping[str, str]:
        return tools.redis_server().environment


class RedisServer(_RedisProgram):
    """One Redis with an append-only file.

    `users` are lines of an ACL file (`user ada on >secret ~* +@all`); `config` sets any directive of
    `redis.conf`; `tls` makes it speak nothing but TLS, without client certificates.
    """

    kind: ClassVar[str] = "redis"
    roles: ClassVar[tuple[str, ...]] = ("redis",)

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        appendfsync: str = "always",
        maxmemory: str | None = None,
        users: Iterable[str] = (),
        tls: TlsFiles | None = None,
        replica_of: RedisServer | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder)
        self._appendfsync, self._maxmemory, self._users = appendfsync, maxmemory, tuple(users)
        self._tls, self._replica_of, self._config = tls, replica_of, dict(config or {})
        if self._config.get("cluster-enabled") == "yes":
            self.port_names = ("port", "bus")

    @property
    def address(self) -> str:
        """`redis://…/0`, or `rediss://…/0` with TLS."""
        return f"redis{'s' if self._tls else ''}://{self.host}:{self.port}/0"

    @property
    def bus_port(self) -> int:
        """Where other nodes of a cluster talk to it; only a node of a cluster has it."""
        return self._port("bus")

    def _files(self) -> Mapping[str, str]:
        os.makedirs(self._path(_DATA), mode=0o700, exist_ok=True)
        directives = {
            "bind": self.host,
            "port": "0" if self._tls else str(self.port),
            "dir": _quoted(self._path(_DATA)),
            "save": '""',
            "appendonly": "yes",
            "appendfsync": self._appendfsync,
            "repl-diskless-sync-delay": "0",  # a replica need not wait for others to join it
        }
        if self._maxmemory is not None:
            directives["maxmemory"] = self._maxmemory
        if self._users:
            directives["aclfile"] = _quoted(self._path(_USERS))
        if self._tls:
            directives |= {
                "tls-port": str(self.port),
                "tls-cert-file": _quoted(os.path.abspath(self._tls.certificate)),
                "tls-key-file": _quoted(os.path.abspath(self._tls.key)),
                "tls-ca-cert-file": _quoted(os.path.abspath(self._tls.authority)),
                "tls-auth-clients": "no",
                "tls-replication": "yes",
            }
        if "bus" in self.port_names:
            # Redis would take the port 10,000 above the other, which any client may have by then.
            directives["cluster-port"] = str(self.bus_port)
        if self._replica_of is not None:
            directives["replicaof"] = f"{self._replica_of.host} {self._replica_of.port}"
        files = {"redis.conf": _lines({**directives, **self._config})}
        if self._users:
            files[_USERS] = "".join(f"{line}\n" for line in self._users)
        return files

    def _commands(self) -> Mapping[str, Sequence[str]]:
        return {"redis": [tools.redis_server().path, self._path("redis.conf")]}

    def _answers(self) -> bool:
        return probes.redis_answers(self.host, self.port, tls=self._tls is not None)


class SentinelServer(_RedisProgram):
    """One sentinel: watches a primary, finds its replicas, and makes one of them the primary in its place."""

    kind: ClassVar[str] = "sentinel"
    roles: ClassVar[tuple[str, ...]] = ("sentinel",)

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        watch: RedisServer,
        service: str = "ckpt",
        quorum: int = 1,
        down_after_ms: int = 500,
        config: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder)
        self._watch, self.service, self._quorum, self._down_after_ms = watch, service, quorum, down_after_ms
        self._config = dict(config or {})

    @property
    def address(self) -> str:
        """`redis://…/0?sentinel=SERVICE`: a client asks the sentinel where the primary is."""
        return f"redis://{self.host}:{self.port}/0?sentinel={self.service}"

    def _files(self) -> Mapping[str, str]:
        os.makedirs(self._path(_DATA), mode=0o700, exist_ok=True)
        of = f"sentinel {{}} {self.service}"
        directives = {
            "bind": self.host,
            "port": str(self.port),
            "dir": _quoted(self._path(_DATA)),
            of.format("monitor"): f"{self._watch.host} {self._watch.port} {self._quorum}",
            of.format("down-after-milliseconds"): str(self._down_after_ms),
            of.format("failover-timeout"): str(10 * self._down_after_ms),
        }
        return {"sentinel.conf": _lines({**directives, **self._config})}

    def _commands(self) -> Mapping[str, Sequence[str]]:
        return {"sentinel": [tools.redis_server().path, self._path("sentinel.conf"), "--sentinel"]}

    def _answers(self) -> bool:
        return probes.redis_answers(self.host, self.port)


def _lines(directives: Mapping[str, str]) -> str:
    return "".join(f"{name} {value}\n" for name, value in directives.items())


def _quoted(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
