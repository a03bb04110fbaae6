"""What has to be there before a run, so that it ends in one line and not in a thousand errors."""

from __future__ import annotations

from ckpt.contract.backend import Backend
from ckpt.contract.opening import open_to_write
from ckpt.errors import ConfigError, CorruptRecordError
from ckpt_bench.ycsb.bindings import Binding
from ckpt_bench.ycsb.records import key_name
from ckpt_bench.ycsb.settings import Settings


def reads_records(settings: Settings, total: int | None) -> bool:
    """Whether the operations of a run, of which there may be none, need records that are there before."""
    return total != 0 and settings.proportions.keys() != {"INSERT"}


def open_used(address: str) -> Backend:
    """The store, which is not made by those who only want to use what is in it."""
    try:
        return open_to_write(address)
    except ConfigError as error:
        if not str(error).startswith("no store at "):
            raise
        raise ConfigError(f"{error}, or make the store first with `ckpt bench load`") from error


def require_records(binding: Binding, backend: Backend, settings: Settings) -> None:
    """Return if there is something that this binding can read; otherwise a ConfigError says what to do."""
    key = key_name(settings.insertstart, settings)
    try:
        if binding.read(key, None) is not None:
            return
    except CorruptRecordError as error:
        other = str(not settings.safekeeper).lower()
        raise ConfigError(
            f"the record {key.decode()} cannot be read: {error}; if it was loaded with safekeeper={other}, "
            f"run with that too, or load the table again with safekeeper={str(settings.safekeeper).lower()}"
        ) from error
    if next(iter(backend.scan(settings.table)), None) is None:
        raise ConfigError(
            f"table {settings.table!r} of {backend.address} has no records; fill it first: `ckpt bench load` "
            f"with the same address and properties"
        )
