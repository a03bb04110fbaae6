"""What each key costs and holds, as columns: the only thing that a planner knows about a stream.

A `Loads` is checked when it is made and read-only from then on. Keys are identities as `hashing` defines
them, names are kept beside them for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError, shown_key
from ckpt.rebalance.hashing import Name, homes, identities

F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
U64 = npt.NDArray[np.uint64]

MAX_INSTANCES = 1 << 20
"""More are a mistake in the data: loads are kept in one array per instance."""


@dataclass(frozen=True, eq=False)
class Loads:
    """Per key cost, state and place; every column has one entry per key, and no key is there twice.

    Parameters
    ----------
    keys
        Identities (integers from 0), or names (text or bytes), whose identities are then computed.
    cost
        The load that each key causes in one interval, in any unit.
    state
        How many bytes move if the key moves.
    instance
        Where each key is now, from 0.
    home
        Where the base hash puts each key; None: as Spark would, see `home_of`.
    rows
        How many rows of each key came in one interval; None: not counted.
    names
        What people call the keys; None: the names given as `keys`, or not known.
    rest
        Per instance, the cost of all keys that are not listed (too small to be counted one by one). No plan
        can move it. None: every key is listed.

    Examples
    --------
    >>> loads = Loads(["be", "or", "not"], [5, 2, 1], [80, 10, 10], [0, 0, 1])
    >>> loads.per_instance(3).tolist()
    [7.0, 1.0, 0.0]
    >>> Loads(["be", "be"], [5, 2], [80, 10], [0, 0])
    Traceback (most recent call last):
        ...
    ckpt.errors.ConfigError: keys: b'be' is there twice
    """

    keys: U64
    cost: F64
    state: F64
    instance: I32
    home: I32 | None = None
    rows: F64 | None = None
    names: npt.NDArray[np.object_] | None = None
    rest: F64 | None = None

    def __init__(
        self,
        keys: npt.ArrayLike | Sequence[Name],
        cost: npt.ArrayLike,
        state: npt.ArrayLike,
        instance: npt.ArrayLike,
        home: npt.ArrayLike | None = None,
        rows: npt.ArrayLike | None = None,
        names: Sequence[Name] | npt.NDArray[np.object_] | None = None,
        rest: npt.ArrayLike | None = None,
    ) -> None:
        identified, given = _identified(keys)
        count = len(identified)
        if names is not None:
            given = _objects(names)
            if len(given) != count:
                raise ConfigError(f"names has {len(given)} entries for {count} keys")
        self._set("keys", identified)
        self._set("names", given)
        for name, column in (("cost", cost), ("state", state), ("rows", rows)):
            self._set(name, None if column is None else amounts(name, column, count))
        for name, column in (("instance", instance), ("home", home)):
            self._set(name, None if column is None else _instances(name, column, count))
        self._set("rest", None if rest is None else amounts("rest", rest, None))
        self._refuse_duplicates()

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        return f"Loads({len(self)} keys, cost {self.total_cost:g}, state {self.state.sum():g} bytes)"

    @property
    def total_cost(self) -> float:
        """The load of the whole stream, listed keys and rest."""
        return float(self.cost.sum()) + (0.0 if self.rest is None else float(self.rest.sum()))

    @property
    def instances(self) -> int:
        """The least number of instances that has every place named here."""
        ends = [
            int(column.max(initial=-1)) + 1 for column in (self.instance, self.home) if column is not None
        ]
        return max(*ends, 0 if self.rest is None else len(self.rest), 1)

    def home_of(self, instances: int) -> I32:
        """Where the base hash puts each key: the column, else Spark's hash modulo the number of instances."""
        return homes(self.keys, instances) if self.home is None else self.home

    def per_instance(self, instances: int) -> F64:
        """The load of each instance now, with the rest."""
        if instances < self.instances:
            raise ConfigError(f"the loads name instance {self.instances - 1}, but there are {instances}")
        load = sums(self.instance, self.cost, instances)
        if self.rest is not None:
            load[: len(self.rest)] += self.rest
        return load

    def name(self, index: int) -> Name | int:
        """What to call a key in front of people: its name, else its identity."""
        return int(self.keys[index]) if self.names is None else self.names[index]

    def take(self, chosen: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Loads:
        """The loads of some of the keys; the rest stays as it is."""
        return Loads(
            self.keys[chosen],
            self.cost[chosen],
            self.state[chosen],
            self.instance[chosen],
            home=None if self.home is None else self.home[chosen],
            rows=None if self.rows is None else self.rows[chosen],
            names=None if self.names is None else self.names[chosen],
            rest=self.rest,
        )

    def _set(self, name: str, column: npt.NDArray[Any] | None) -> None:
        if column is not None:
            column.flags.writeable = False
        object.__setattr__(self, name, column)

    def _refuse_duplicates(self) -> None:
        ordered = np.sort(self.keys)
        twice = ordered[1:] == ordered[:-1]
        if twice.any():
            key = ordered[1:][twice][0]
            shown = self.name(int(np.flatnonzero(self.keys == key)[0]))
            raise ConfigError(f"keys: {shown if isinstance(shown, int) else shown_key(shown)} is there twice")


def amounts(name: str, column: npt.ArrayLike, count: int | None) -> F64:
    """A column of its own of finite numbers from 0, or a ConfigError that names the first that is not."""
    try:
        array = np.array(column, np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} must be a column of numbers: {error}") from None
    _check_shape(name, array, count)
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        at = int(wrong.argmax())
        raise ConfigError(f"{name} must be finite and from 0, entry {at} is {array[at]:g}")
    return array


def sums(owner: npt.NDArray[Any], weights: F64, count: int) -> F64:
    """What belongs to each of at least `count` owners together."""
    return np.bincount(owner, weights=weights, minlength=count).astype(np.float64, copy=False)


def _instances(name: str, column: npt.ArrayLike, count: int) -> I32:
    array = np.asarray(column)
    if array.size and array.dtype.kind not in "iu":
        raise ConfigError(f"{name} must be a column of whole numbers, not of {array.dtype}")
    _check_shape(name, array, count)
    wrong = (array < 0) | (array >= MAX_INSTANCES)
    if wrong.any():
        at = int(wrong.argmax())
        raise ConfigError(f"{name} must be from 0 to {MAX_INSTANCES - 1}, entry {at} is {array[at]}")
    return array.astype(np.int32)


def _check_shape(name: str, array: npt.NDArray[Any], count: int | None) -> None:
    if array.ndim != 1:
        raise ConfigError(f"{name} must have one dimension, not {array.ndim}")
    if count is not None and len(array) != count:
        raise ConfigError(f"{name} has {len(array)} entries for {count} keys")


def _identified(keys: npt.ArrayLike | Sequence[Name]) -> tuple[U64, npt.NDArray[np.object_] | None]:
    array = keys if isinstance(keys, np.ndarray) else _objects(keys)
    if array.ndim != 1:
        raise ConfigError(f"keys must have one dimension, not {array.ndim}")
    if array.dtype.kind in "OSU":
        listed = array.tolist()
        if not all(isinstance(key, int | np.integer) for key in listed):
            for at, key in enumerate(listed):
                if not isinstance(key, str | bytes):
                    raise ConfigError(
                        f"keys are text, bytes or whole numbers, entry {at} is {type(key).__name__}"
                    )
            return identities(listed), _objects(listed)
        try:
            array = np.array(listed, np.uint64)
        except OverflowError:
            raise ConfigError("keys that are numbers are identities: from 0 to 2**64 - 1") from None
    if array.dtype.kind not in "iu":
        raise ConfigError(f"keys are text, bytes or whole numbers, not {array.dtype}")
    if array.dtype.kind == "i" and (array < 0).any():
        raise ConfigError("keys that are numbers are identities, from 0; view Spark's hashes as uint32 first")
    return array.astype(np.uint64), None


def _objects(values: Any) -> npt.NDArray[np.object_]:
    listed = list(values)
    array = np.empty(len(listed), object)
    array[:] = listed
    return array
