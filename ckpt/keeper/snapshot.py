"""A snapshot never changes, whatever the operator does to its state after `save`.

Builtin containers and numpy arrays are copied structurally, immutable values are passed through, and anything
else goes through `copy.deepcopy`. Keys of dicts and members of sets are hashable and taken as immutable.
"""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ckpt.errors import SerializationError

IMMUTABLE: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, decimal.Decimal, uuid.UUID}
    | {dt.datetime, dt.date, dt.time, dt.timedelta, range}
    | {kind for kind in np.sctypeDict.values() if kind is not np.void and kind is not np.object_}
)
_all_immutable = IMMUTABLE.issuperset


def snapshot(state: Any) -> Any:
    """A copy that no later change of the state reaches; SerializationError if the state cannot be copied.

    Examples
    --------
    >>> live = {"seen": [1, 2]}
    >>> kept = snapshot(live)
    >>> live["seen"].append(3)
    >>> kept
    {'seen': [1, 2]}
    """
    kind = type(state)
    if kind in IMMUTABLE:
        return state
    try:
        if kind is dict and _all_immutable(map(type, state.values())):
            return state.copy()  # by far the most frequent kind of state
        return _copy(kind, state)
    except Exception as error:
        reason = "contains itself" if isinstance(error, RecursionError) else f"{type(error).__name__}"
        raise SerializationError(
            f"a state of type {kind.__name__} cannot be copied ({reason}); "
            f"do not change it while it is being saved, and use plain data"
        ) from error


def _copy(kind: type, state: Any) -> Any:
    if kind is dict:
        if _all_immutable(map(type, state.values())):
            return state.copy()
        return {key: _one(value) for key, value in state.items()}
    if kind is list:
        return state.copy() if _all_immutable(map(type, state)) else list(map(_one, state))
    if kind is tuple:
        return state if _all_immutable(map(type, state)) else tuple(map(_one, state))
    copier = _COPIERS.get(kind)
    if copier is not None:
        return copier(state)
    if kind.__module__.partition(".")[0] == "pyarrow":
        return state  # Arrow values are immutable
    return copy.deepcopy(state)


def _one(value: Any) -> Any:
    kind = type(value)
    return value if kind in IMMUTABLE else _copy(kind, value)


def _array(state: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return copy.deepcopy(state) if state.dtype.hasobject else state.copy(order="K")


def _frozenset(state: frozenset[Any]) -> frozenset[Any]:
    return state


_COPIERS: dict[type, Callable[[Any], Any]] = {
    set: set,
    frozenset: _frozenset,
    bytearray: bytearray,
    np.ndarray: _array,
    deque: lambda state: deque(map(_one, state), state.maxlen),
    Counter: Counter,
    OrderedDict: lambda state: OrderedDict((k, _one(v)) for k, v in state.items()),
    defaultdict: lambda state: defaultdict(state.default_factory, {k: _one(v) for k, v in state.items()}),
}
