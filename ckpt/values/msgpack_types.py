"""Values that msgpack has no word for, as msgpack extension types: each comes back as what it was.

Plain msgpack knows nil, booleans, 64-bit integers, floats, text, bytes, arrays (lists) and maps (dicts). The
rest travels as an extension: a code, and a payload that other languages can read. `M[...]` is nested msgpack.

```
code  Python               payload
  1   tuple                M[items]
  2   set                  M[items]
  3   frozenset            M[items]
  4   dict, unusual keys   M[[key, value], ...]      keys other than text, bytes, numbers, booleans, nil
  5   bytearray            the bytes
  6   int beyond 64 bits   two's complement, big endian
  7   complex              two doubles, little endian
  8   Decimal              its text, ASCII
  9   datetime             M[naive ISO text, fold, zone]   zone: nil, offset in microseconds, or IANA name
 10   date                 ISO text
 11   time                 M[naive ISO text, fold, zone]
 12   timedelta            M[days, seconds, microseconds]
 13   UUID                 16 bytes
 14   deque                M[maxlen, items]
 15   Counter              M[[key, count], ...]
 16   OrderedDict          M[[key, value], ...]
 17   defaultdict          M[factory name, [[key, value], ...]]
 32   numpy array          M[dtype as in .npy files, Fortran order?, shape, elements]
 33   numpy scalar         the same, shape []
 48   Arrow table          Arrow IPC stream
 49   Arrow record batch   Arrow IPC stream of one batch
 50   Arrow array          Arrow IPC stream of one batch with one column
 51   Arrow chunked array  Arrow IPC stream of batches with one column
```

Numbers in this table are a promise: they are never reused.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

from ckpt.errors import SerializationError

MAX_DEPTH = 200
"""How deep containers may nest. Deep enough for any state, and far from the interpreter's own limit."""

PLAIN_LEAVES = frozenset({type(None), bool, int, float, str, bytes})
_PLAIN_OR_CONTAINER = PLAIN_LEAVES | {dict, list}
_all_plain = PLAIN_LEAVES.issuperset
_FACTORIES: dict[str, Callable[[], Any]] = {
    t.__name__: t for t in (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
}
_NUMPY_KINDS = frozenset("biufcmMSUV")
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1

_encode = msgspec.msgpack.Encoder().encode
Ext = msgspec.msgpack.Ext


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether msgpack itself brings the value back as it is. Integers beyond 64 bits show when encoding."""
    kind = type(value)
    if kind is dict:
        if not _all_plain(map(type, value)):
            return False  # keys other than text, bytes, numbers, booleans, nil
        if _all_plain(map(type, value.values())):
            return True
        children = value.values()
    elif kind is list:
        if _all_plain(map(type, value)):
            return True
        children = value
    else:
        return kind in PLAIN_LEAVES
    if not _PLAIN_OR_CONTAINER.issuperset(map(type, children)):
        return False
    _check_depth(depth)
    return all(is_plain(child, depth + 1) for child in children if type(child) not in PLAIN_LEAVES)


def wrap(value: Any, depth: int = 0) -> Any:
    """The value as a tree that msgpack encodes without loss; SerializationError where there is none."""
    kind = type(value)
    if kind is int:
        if _INT_MIN <= value <= _INT_MAX:
            return value
        return Ext(6, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
    if kind in PLAIN_LEAVES:
        return value
    _check_depth(depth)
    if kind is list:
        return [wrap(item, depth + 1) for item in value]
    if kind is dict:
        if _all_plain(map(type, value)) and not any(
            type(key) is int and not _INT_MIN <= key <= _INT_MAX for key in value
        ):
            return {key: wrap(item, depth + 1) for key, item in value.items()}
        return Ext(4, _pairs(value, depth))
    if encoder := _ENCODERS.get(kind):
        return encoder(value, depth)
    if kind is np.ndarray:
        return Ext(32, _encode(_array(value, depth)))
    if isinstance(value, np.generic):
        return Ext(33, _encode(_scalar(value, depth)))
    if kind.__module__.partition(".")[0] == "pyarrow":
        return _wrap_arrow(value)
    raise SerializationError(_no_word_for(value))


def unwrap(code: int, payload: memoryview) -> Any:
    """The value of one extension; the `ext_hook` of every decoder here."""
    decoder = _DECODERS.get(code)
    if decoder is None:
        raise SerializationError(f"unknown extension type {code}; it was written by a newer ckpt")
    return decoder(payload)


decode_untyped = msgspec.msgpack.Decoder(ext_hook=unwrap).decode


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise SerializationError(
            f"containers nest deeper than {MAX_DEPTH} levels (or contain themselves); flatten the state"
        )


def _no_word_for(value: object) -> str:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if hasattr(kind, "__dataclass_fields__") or isinstance(value, msgspec.Struct):
        return f"{name} needs its type to be read back; give the codec state_type={kind.__qualname__}"
    base = next((b.__name__ for b in kind.__mro__[1:-1] if b.__module__ == "builtins"), None)
    if base:
        return (
            f"{name} would come back as a plain {base}; convert it, declare it in state_type, or use pickle"
        )
    return f"msgpack has no form for {name}; use plain data, a dataclass with state_type, or pickle"


# -- containers ----------------------------------------------------------------------------------


def _items(values: Any, depth: int) -> bytes:
    return _encode([wrap(item, depth + 1) for item in values])


def _pairs(mapping: Any, depth: int) -> bytes:
    return _encode([[wrap(k, depth + 1), wrap(v, depth + 1)] for k, v in mapping.items()])


def _deque(value: deque[Any], depth: int) -> Any:
    return Ext(14, _encode([value.maxlen, [wrap(item, depth + 1) for item in value]]))


def _defaultdict(value: defaultdict[Any, Any], depth: int) -> Any:
    factory = value.default_factory
    name = getattr(factory, "__name__", None)
    if factory is not None and _FACTORIES.get(name or "") is not factory:
        raise SerializationError(
            f"a defaultdict comes back only with a factory of {', '.join(sorted(_FACTORIES))}; use dict()"
        )
    pairs = [[wrap(k, depth + 1), wrap(v, depth + 1)] for k, v in value.items()]
    return Ext(17, _encode([None if factory is None else name, pairs]))


def _undefaultdict(payload: memoryview) -> defaultdict[Any, Any]:
    name, pairs = decode_untyped(payload)
    return defaultdict(None if name is None else _FACTORIES[name], pairs)


# -- time ----------------------------------------------------------------------------------------


def _zone(tzinfo: dt.tzinfo | None) -> int | str | None:
    if tzinfo is None:
        return None
    if type(tzinfo) is dt.timezone:
        offset = tzinfo.utcoffset(None)
        if repr(tzinfo) in (repr(dt.UTC), repr(dt.timezone(offset))):
            return offset // dt.timedelta(microseconds=1)
    if type(tzinfo) is ZoneInfo and tzinfo.key:
        return tzinfo.key
    raise SerializationError(
        f"time zone {type(tzinfo).__name__} cannot be read back; use datetime.timezone or zoneinfo.ZoneInfo"
    )


def _unzone(zone: int | str | None) -> dt.tzinfo | None:
    if zone is None:
        return None
    if isinstance(zone, str):
        return ZoneInfo(zone)
    return dt.timezone(dt.timedelta(microseconds=zone)) if zone else dt.UTC


def _datetime(value: dt.datetime, _depth: int) -> Any:
    return Ext(9, _encode([value.replace(tzinfo=None).isoformat(), value.fold, _zone(value.tzinfo)]))


def _undatetime(payload: memoryview) -> dt.datetime:
    text, fold, zone = decode_untyped(payload)
    return dt.datetime.fromisoformat(text).replace(fold=fold, tzinfo=_unzone(zone))


def _time(value: dt.time, _depth: int) -> Any:
    return Ext(11, _encode([value.replace(tzinfo=None).isoformat(), value.fold, _zone(value.tzinfo)]))


def _untime(payload: memoryview) -> dt.time:
    text, fold, zone = decode_untyped(payload)
    return dt.time.fromisoformat(text).replace(fold=fold, tzinfo=_unzone(zone))


def _timedelta(value: dt.timedelta, _depth: int) -> Any:
    return Ext(12, _encode([value.days, value.seconds, value.microseconds]))


# -- numpy ---------------------------------------------------------------------------------------


def _array(value: np.ndarray[Any, Any], depth: int) -> list[Any]:
    dtype = value.dtype
    descr = (
        np.lib.format.dtype_to_descr(dtype) if dtype.kind in _NUMPY_KINDS and not dtype.hasobject else None
    )
    if descr is None or np.lib.format.descr_to_dtype(descr) != dtype:
        raise SerializationError(f"arrays of dtype {dtype} cannot be read back; use numbers, text or records")
    fortran = bool(value.flags.f_contiguous and not value.flags.c_contiguous)
    data = value.tobytes("F" if fortran else "C")
    return [wrap(descr, depth + 1), fortran, list(value.shape), data]


def _scalar(value: np.generic, depth: int) -> list[Any]:
    array = np.asarray(value)
    if array.dtype.kind in "SU" and array[()] != value:
        raise SerializationError(
            f"numpy text that ends in NUL cannot be read back; use {value.dtype.type.__mro__[1].__name__}"
        )
    return _array(array, depth)


def _unarray(payload: memoryview) -> np.ndarray[Any, Any]:
    descr, fortran, shape, data = decode_untyped(payload)
    dtype = np.lib.format.descr_to_dtype(descr)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(data):
        raise SerializationError("the elements of an array do not fit its shape")
    # bytearray, so that the operator may change the array it gets back
    return np.ndarray(tuple(shape), dtype, bytearray(data), order="F" if fortran else "C")


# -- Arrow, imported only when such a value is met -----------------------------------------------


def _wrap_arrow(value: Any) -> Any:
    import pyarrow as pa

    if type(value) is pa.Table:
        return Ext(48, _to_ipc(value.schema, value.to_batches()))
    if type(value) is pa.RecordBatch:
        return Ext(49, _to_ipc(value.schema, [value]))
    if isinstance(value, pa.Array):
        batch = pa.RecordBatch.from_arrays([value], names=[""])
        return Ext(50, _to_ipc(batch.schema, [batch]))
    if type(value) is pa.ChunkedArray:
        table = pa.Table.from_arrays([value], names=[""])
        return Ext(51, _to_ipc(table.schema, table.to_batches()))
    raise SerializationError(
        f"msgpack has no form for {type(value).__name__} of pyarrow; use a table or an array"
    )


def _to_ipc(schema: Any, batches: list[Any]) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _unwrap_arrow(code: int) -> Callable[[memoryview], Any]:
    def read(payload: memoryview) -> Any:
        import pyarrow as pa

        # a copy, so that a state does not keep the whole batch alive that it was read with
        with pa.ipc.open_stream(pa.py_buffer(bytes(payload))) as reader:
            table = reader.read_all()
        if code == 48:
            return table
        if code == 51:
            return table.column(0)
        batches = table.to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
        return batch if code == 49 else batch.column(0)

    return read


_ENCODERS: dict[type, Callable[[Any, int], Any]] = {
    tuple: lambda v, d: Ext(1, _items(v, d)),
    set: lambda v, d: Ext(2, _items(v, d)),
    frozenset: lambda v, d: Ext(3, _items(v, d)),
    bytearray: lambda v, _: Ext(5, bytes(v)),
    complex: lambda v, _: Ext(7, struct.pack("<dd", v.real, v.imag)),
    decimal.Decimal: lambda v, _: Ext(8, str(v).encode("ascii")),
    dt.datetime: _datetime,
    dt.date: lambda v, _: Ext(10, v.isoformat().encode("ascii")),
    dt.time: _time,
    dt.timedelta: _timedelta,
    uuid.UUID: lambda v, _: Ext(13, v.bytes),
    deque: _deque,
    Counter: lambda v, d: Ext(15, _pairs(v, d)),
    OrderedDict: lambda v, d: Ext(16, _pairs(v, d)),
    defaultdict: _defaultdict,
}

_DECODERS: dict[int, Callable[[memoryview], Any]] = {
    1: lambda p: tuple(decode_untyped(p)),
    2: lambda p: set(decode_untyped(p)),
    3: lambda p: frozenset(decode_untyped(p)),
    4: lambda p: dict(decode_untyped(p)),
    5: bytearray,
    6: lambda p: int.from_bytes(p, "big", signed=True),
    7: lambda p: complex(*struct.unpack("<dd", p)),
    8: lambda p: decimal.Decimal(str(p, "ascii")),
    9: _undatetime,
    10: lambda p: dt.date.fromisoformat(str(p, "ascii")),
    11: _untime,
    12: lambda p: dt.timedelta(*decode_untyped(p)),
    13: lambda p: uuid.UUID(bytes=bytes(p)),
    14: lambda p: (lambda maxlen, items: deque(items, maxlen))(*decode_untyped(p)),
    15: lambda p: Counter(dict(decode_untyped(p))),
    16: lambda p: OrderedDict(decode_untyped(p)),
    17: _undefaultdict,
    32: _unarray,
    33: lambda p: _unarray(p)[()],
    **{code: _unwrap_arrow(code) for code in (48, 49, 50, 51)},
}
