"""Checkpoints in an indexed log on a local disk: `log://` addresses, their options, and what they open."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ckpt.contract.addresses import Address, Durability, build_options
from ckpt.contract.backend import Capabilities
from ckpt.contract.disk import Disk
from ckpt.errors import ConfigError
from ckpt.types import Changes
from ckpt_backends.engine.backend import EngineBackend
from ckpt_backends.engine.engine import Engine
from ckpt_backends.engine.maintenance import Maintenance
from ckpt_backends.engine.options import check_engine_options
from ckpt_backends.log.local import LocalStorage

_CAPABILITIES = Capabilities(
    persistent=True,
    shared_writers=False,
    ttl=True,
    atomic_put=True,
    ordered_scan=False,
    detects_corruption=True,
    reads_in_process=True,
)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of a `log://` address."""

    durability: Durability = Durability.FSYNC
    mode: str = "write"
    """`write`: the one writer. `read`: one of many readers; sees what the writer does, changes nothing."""
    segment_bytes: int = 64 << 20
    recent_records: int = 1 << 17
    """How many records may be unknown to the index files; bounds memory and the replay after a crash."""
    gc: bool = True
    gc_trigger: float = 0.5
    """Garbage collection starts when this share of all records is garbage."""
    gc_select: float = 0.5
    """It rewrites segments in which less than this share of the records is needed."""

    def __post_init__(self) -> None:
        check_engine_options(self, of="log", least_segment_bytes=16 << 10)


class LogBackend(EngineBackend):
    """Checkpoints in an append-only indexed log on a local disk: durable, checksummed, one writer.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with LogBackend(folder) as log:
    ...     log.put_many("words", {b"be": b"2"})
    >>> with LogBackend(folder) as log:
    ...     log.get_many("words", [b"be", b"or"])
    {b'be': b'2'}
    """

    scheme: ClassVar[str] = "log"
    reads_need_mode: ClassVar[bool] = True
    """A handle that only reads opens a log with `mode=read`; without it the handle would be its writer."""

    def __init__(
        self,
        path: str,
        options: LogOptions | None = None,
        *,
        disk: Disk | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        options = options or LogOptions()
        read_only = options.mode == "read"
        storage = LocalStorage(path, segment_bytes=options.segment_bytes, read_only=read_only, disk=disk)
        try:
            engine = Engine(storage)
            maintenance = Maintenance(engine, options, clock=clock)
        except BaseException:
            storage.close()
            raise
        self._storage = storage
        super().__init__(
            engine, maintenance, durable_writes=options.durability is Durability.FSYNC, clock=clock
        )
        self.capabilities = _CAPABILITIES

    def put_many(self, namespace: str, items: Mapping[bytes, bytes], *, ttl_s: float | None = None) -> None:
        if ttl_s is not None or not self._put(namespace, items):
            super().write_many({namespace: Changes(items, (), ttl_s)})

    def write_many(self, batches: Mapping[str, Changes]) -> None:
        if len(batches) == 1:
            [(namespace, changes)] = batches.items()
            only_puts = type(changes.deletes) is tuple and not changes.deletes and changes.ttl_s is None
            if only_puts and self._put(namespace, changes.puts):
                return
        super().write_many(batches)

    def _put(self, namespace: str, items: Mapping[bytes, bytes]) -> bool:
        """Puts into a namespace that is there, in one frame; False, and nothing done, if it takes more."""
        if type(items) is not dict or type(namespace) is not str or self._closed:
            return False
        self._maintenance.wait_for_room()
        engine = self._engine
        with engine.lock:
            state = engine.catalog.by_name.get(namespace)
            if state is None or state.history is not None:
                return False
            ticket = engine.append_puts(state.id, items)
        if ticket is None:
            return False
        if self._durable_writes:
            engine.wait_durable(ticket)
        return True

    @property
    def is_broken(self) -> bool:
        """Whether a sync has failed, or the directory is gone: writes fail until the log is opened again."""
        return self._engine.has_failed or self._storage.is_gone

    @classmethod
    def from_address(cls, address: Address, **extra: Any) -> Self:
        """Open the log that an address names."""
        seams = {name: extra.pop(name) for name in ("disk", "clock") if name in extra}
        options = build_options(LogOptions, {**address.options, **extra}, of="log")
        path = address.path
        if not path.startswith("/"):
            raise ConfigError(f"{address} names no absolute path; write log:///absolute/path (three slashes)")
        if options.mode == "read" and not os.path.isdir(os.path.join(path, "segments")):
            raise ConfigError(f"there is no log at {path}; check the address")
        return cls(path, options, **seams)
