"""Serialisers: a state comes back as what it was, or the save fails and says why. Nothing changes silently.

| name | id | what it takes |
| --- | --- | --- |
| `msgpack` | 1 | plain data, and the extension types of `msgpack_types` (tuples, sets, numpy, Arrow, …) |
| `json` | 2 | what JSON has: text, finite numbers, booleans, null, lists, dicts with text keys |
| `pickle` | 3 | anything; only when asked for by name, since a writer to the store could run code |

With a `state_type` (a dataclass, a msgspec Struct, a TypedDict, …) a state is stored as plain data and read
back as that type. What is stored is read back at once and compared, so that a field whose value does not
fit its annotation fails the save and not the recovery. A whole number in a field annotated `float` is fine.
"""

from __future__ import annotations

import dataclasses
import enum
import pickle
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
import numpy as np

from ckpt.contract.addresses import suggestion
from ckpt.errors import ConfigError, SerializationError
from ckpt.values.msgpack_types import PLAIN_LEAVES, decode_untyped, is_plain, wrap

_PATH = re.compile(r"at `(\$[^`]*)`")


class Serializer(Protocol):
    """Turns a state into bytes and back. Both raise SerializationError, with no value in the message."""

    name: str
    id: int

    def dumps(self, state: Any) -> bytes:
        """The bytes of a state that `loads` brings back as it was."""

    def loads(self, data: bytes | memoryview, *, typed: bool = True) -> Any:
        """The state of these bytes; with `typed=False` as plain data, whatever the state type."""

    def as_typed(self, plain: Any) -> Any:
        """The state that plain data (from `typed=False`, then migrated) stands for."""


def make_serializer(name: str, state_type: Any = None) -> Serializer:
    """The serialiser of that name for states of that type.

    Examples
    --------
    >>> msgpack = make_serializer("msgpack")
    >>> msgpack.loads(msgpack.dumps({"seen": (1, 2), "words": {"be"}}))
    {'seen': (1, 2), 'words': {'be'}}
    >>> make_serializer("msgpck")
    Traceback (most recent call last):
        ...
    ckpt.errors.ConfigError: no serialiser 'msgpck'; did you mean 'msgpack'?
    """
    kind = SERIALIZERS.get(name)
    if kind is None:
        raise ConfigError(f"no serialiser {name!r}; {suggestion(str(name), SERIALIZERS)}")
    return kind(state_type)


class MsgpackSerializer:
    """msgpack through msgspec; plain data takes the fast path."""

    name = "msgpack"
    id = 1

    def __init__(self, state_type: Any = None) -> None:
        self._typed = TypedStates(state_type) if state_type is not None else None
        self._encode = msgspec.msgpack.Encoder().encode

    def dumps(self, state: Any) -> bytes:
        """The msgpack form; see `ckpt.values.msgpack_types` for what goes beyond plain data."""
        typed = self._typed
        try:
            plain = state if typed is None else typed.lower(state)
            if type(plain) in PLAIN_LEAVES or is_plain(plain):
                try:
                    data = self._encode(plain)
                except OverflowError:  # an integer beyond 64 bits: the extension types have a form for it
                    data = self._encode(wrap(plain))
            else:
                data = self._encode(wrap(plain))
        except UnicodeEncodeError:
            raise SerializationError("text with lone surrogates has no UTF-8 form; store bytes") from None
        except RecursionError:
            raise SerializationError("containers nest too deep or contain themselves") from None
        if typed is not None:
            typed.check_same(state, typed.raised(decode_untyped(data)))
        return data

    def loads(self, data: bytes | memoryview, *, typed: bool = True) -> Any:
        """The state; an extension type of a newer ckpt is an error."""
        try:
            state = decode_untyped(data)
        except SerializationError:
            raise
        except ImportError as error:
            raise SerializationError(
                f"it holds a value of {error.name}, which is not installed; pip install {error.name}"
            ) from error
        except Exception as error:
            # the text of the error may quote a value; its traceback stays with the cause
            raise SerializationError(f"the bytes are not valid msgpack ({type(error).__name__})") from error
        return state if self._typed is None or not typed else self._typed.raised(state)

    def as_typed(self, plain: Any) -> Any:
        """As the state type, if there is one."""
        return plain if self._typed is None else self._typed.raised(plain)


class JsonSerializer:
    """JSON text, for states that people or other tools read."""

    name = "json"
    id = 2

    def __init__(self, state_type: Any = None) -> None:
        self._typed = TypedStates(state_type) if state_type is not None else None
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder().decode
        self._decode_typed = (
            msgspec.json.Decoder(state_type).decode if state_type is not None else self._decode
        )

    def dumps(self, state: Any) -> bytes:
        """Compact JSON. Every save is read back and compared, since JSON has no tuples and no NaN."""
        try:
            data = self._encode(state)
            back = self._decode_typed(data)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise SerializationError(
                f"JSON has no form for this state ({_place(error)}); use msgpack"
            ) from None
        if not same(state, back):
            raise SerializationError(
                f"{type(state).__name__}: JSON would not bring this state back as it was; use msgpack"
            )
        return data

    def loads(self, data: bytes | memoryview, *, typed: bool = True) -> Any:
        """The state, as the state type if there is one."""
        try:
            return self._decode_typed(data) if typed else self._decode(data)
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise SerializationError(f"the JSON does not fit the state type ({_place(error)})") from None

    def as_typed(self, plain: Any) -> Any:
        """As the state type, if there is one; JSON's words for dates and bytes are understood."""
        return plain if self._typed is None else self._typed.raised(plain)


class PickleSerializer:
    """Python's pickle. Reading it runs code that the store's writers chose: use it where you trust them."""

    name = "pickle"
    id = 3

    def __init__(self, state_type: Any = None) -> None:
        self._state_type = state_type

    def dumps(self, state: Any) -> bytes:
        """The pickle of the state, protocol 5."""
        self._check(state)
        try:
            return pickle.dumps(state, protocol=5)
        except Exception as error:
            raise SerializationError(f"{type(state).__name__} cannot be pickled ({error})") from error

    def loads(self, data: bytes | memoryview, *, typed: bool = True) -> Any:
        """The state; whatever its own code raises is a SerializationError."""
        try:
            state = pickle.loads(data)
        except Exception as error:
            raise SerializationError(f"the pickle cannot be read ({type(error).__name__})") from error
        return self.as_typed(state) if typed else state

    def as_typed(self, plain: Any) -> Any:
        """The state itself, if it is of the state type."""
        self._check(plain)
        return plain

    def _check(self, state: Any) -> None:
        if isinstance(self._state_type, type) and not isinstance(state, self._state_type):
            raise SerializationError(f"expected {self._state_type.__name__}, got {type(state).__name__}")


class TypedStates:
    """Between states of a declared type and plain data; `raised(lower(state))` is the state again."""

    def __init__(self, state_type: Any) -> None:
        self._type = state_type
        try:
            msgspec.convert(None, state_type, dec_hook=_pass_instances)
        except msgspec.ValidationError:
            pass
        except TypeError as error:
            raise ConfigError(f"state_type={state_type!r} cannot be used: {error}") from None

    def lower(self, value: Any) -> Any:
        """Plain data: dataclasses and Structs become dicts, Enum members their values, all the way down."""
        kind = type(value)
        if kind is dict:
            return {self.lower(k): self.lower(v) for k, v in value.items()}
        if kind in (list, tuple, set, frozenset):
            return kind(map(self.lower, value))
        if isinstance(value, enum.Enum):
            return value.value
        if isinstance(value, msgspec.Struct):
            return self._lower_struct(value)
        if dataclasses.is_dataclass(kind):
            return {f.name: self.lower(getattr(value, f.name)) for f in dataclasses.fields(kind)}
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return tuple(map(self.lower, value))
        return value

    def _lower_struct(self, value: msgspec.Struct) -> Any:
        config = value.__struct_config__
        items: list[tuple[Any, Any]] = [
            (n, self.lower(getattr(value, f)))
            for n, f in zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        ]
        if config.tag is not None:
            items.insert(0, (config.tag_field, config.tag))
        return [v for _, v in items] if config.array_like else dict(items)

    def raised(self, plain: Any) -> Any:
        """The state that the plain data stands for."""
        try:
            return msgspec.convert(plain, self._type, dec_hook=_pass_instances)
        except msgspec.ValidationError as error:
            raise SerializationError(f"it does not fit {_type_name(self._type)} ({_place(error)})") from None

    def check_same(self, state: Any, back: Any) -> None:
        """Raise unless the state came back as it was."""
        if not same(state, back):
            raise SerializationError(
                f"{type(state).__name__} would not come back as it was: a value does not fit its annotation "
                f"in {_type_name(self._type)}"
            )


def _pass_instances(kind: Any, value: Any) -> Any:
    origin = getattr(kind, "__origin__", kind)
    if isinstance(origin, type) and isinstance(value, origin):
        return value
    raise msgspec.ValidationError(f"Expected `{_type_name(kind)}`, got `{type(value).__name__}`")


def _type_name(kind: Any) -> str:
    return getattr(kind, "__qualname__", None) or str(kind)


def _place(error: Exception) -> str:
    """Where an error is, without its text: msgspec quotes values in some of its messages."""
    found = _PATH.search(str(error))
    return f"{type(error).__name__} at {found[1]}" if found else type(error).__name__


def same(a: Any, b: Any) -> bool:
    """Whether b is what a was: equal, and of the same types all the way down."""
    kind = type(a)
    if kind is not type(b):
        return kind is int and type(b) is float and a == b
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Mapping):
        return (
            len(a) == len(b) and all(map(same, a.keys(), b.keys())) and all(map(same, a.values(), b.values()))
        )
    if isinstance(a, msgspec.Struct):
        return all(same(getattr(a, f), getattr(b, f)) for f in a.__struct_fields__)
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype) and a.shape == b.shape and a.tobytes() == b.tobytes()
    return bool(a == b) or bool(a != a and b != b)


SERIALIZERS: dict[str, Callable[[Any], Serializer]] = {
    "msgpack": MsgpackSerializer,
    "json": JsonSerializer,
    "pickle": PickleSerializer,
}
