"""What a Redis server says about itself: whether it keeps what it acknowledges, and how much it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ckpt.errors import BackendUnavailableError, ConfigError, UnsupportedError
from ckpt_backends.redis.link import RedisLink

_DEFAULT_BULK_BYTES = 512 << 20
_OLDEST = (5, 0)
"""Older servers repeat scripts on their replicas instead of what the scripts did."""
_WAITAOF_SINCE = (7, 2)
_WANTED = (b"appendfsync", b"proto-max-bulk-len")


@dataclass(frozen=True, slots=True)
class RedisInfo:
    """One server at one moment. What its user may not ask is None or the default."""

    version: str
    role: str
    replicas: int
    appendonly: bool
    appendfsync: str | None
    maxmemory_bytes: int
    maxmemory_policy: str
    used_memory_bytes: int
    largest_value_bytes: int

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers."""
        return tuple(int(part) for part in self.version.split(".")[:2] if part.isdigit())

    @property
    def confirms_syncs(self) -> bool:
        """Whether one can wait until its disk has everything."""
        return self.appendonly and self.release >= _WAITAOF_SINCE

    def details(self) -> Mapping[str, int | float | str]:
        """For `ckpt stats`."""
        return {
            "redis_version": self.version,
            "role": self.role,
            "replicas": self.replicas,
            "appendonly": "yes" if self.appendonly else "no",
            "appendfsync": self.appendfsync or "unknown (CONFIG is not permitted)",
            "maxmemory_bytes": self.maxmemory_bytes,
            "maxmemory_policy": self.maxmemory_policy,
            "used_memory_bytes": self.used_memory_bytes,
        }

    def require_safe(self, at: str) -> None:
        """Raise if this server would drop checkpoints by itself."""
        if self.release < _OLDEST:
            raise UnsupportedError(f"{at} is Redis {self.version}; ckpt needs Redis 5 or later, or Valkey")
        if self.maxmemory_bytes and self.maxmemory_policy.startswith("allkeys"):
            raise ConfigError(
                f"{at} evicts any key when it is full (maxmemory-policy {self.maxmemory_policy}): "
                "checkpoints would vanish silently; set maxmemory-policy to noeviction, or use another server"
            )


def ask_info(link: RedisLink, key: bytes) -> RedisInfo:
    """What the server that holds this key says."""
    (info,) = link.ask(key, [b"INFO"])
    told = _fields(info)
    settings = _settings(link, key)
    return RedisInfo(
        version=told.get("redis_version", "0"),
        role=told.get("role", "unknown"),
        replicas=int(told.get("connected_slaves", 0)),
        appendonly=told.get("aof_enabled", "0") == "1",
        appendfsync=settings.get("appendfsync"),
        maxmemory_bytes=int(told.get("maxmemory", 0)),
        maxmemory_policy=told.get("maxmemory_policy", "noeviction"),
        used_memory_bytes=int(told.get("used_memory", 0)),
        largest_value_bytes=int(settings.get("proto-max-bulk-len", _DEFAULT_BULK_BYTES)),
    )


def _settings(link: RedisLink, key: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _WANTED:
        try:
            (answer,) = link.ask(key, [b"CONFIG", b"GET", name])
        except (ConfigError, BackendUnavailableError):
            # Many hosted servers forbid it, each in its own words. That it answers at all is known.
            continue
        pairs: list[Any] = list(answer)
        found.update((k.decode(), v.decode()) for k, v in zip(pairs[::2], pairs[1::2], strict=True))
    return found


def _fields(info: bytes) -> dict[str, str]:
    lines = info.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
