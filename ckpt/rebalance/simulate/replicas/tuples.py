"""The tuples of a stream, one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.loads import F64, U64


@dataclass(frozen=True, eq=False)
class Tuples:
    """One entry per tuple; a tuple's number is its position, and a later one has a later timestamp.

    Examples
    --------
    >>> Tuples.of([7, 7, 9], [0.0, 1.0, 2.5]).keys.tolist()
    [7, 7, 9]
    """

    keys: U64
    time_s: F64
    """When each was sent; also its timestamp."""

    def __post_init__(self) -> None:
        if len(self.keys) != len(self.time_s):
            raise ConfigError(f"{len(self.keys)} keys and {len(self.time_s)} times do not fit")
        if not np.isfinite(self.time_s).all() or (np.diff(self.time_s) <= 0).any():
            raise ConfigError("tuples come one after the other: their times must rise, and be finite")

    @classmethod
    def of(cls, keys: npt.ArrayLike, time_s: npt.ArrayLike) -> Tuples:
        """From columns of any kind."""
        return cls(np.asarray(keys, np.uint64), np.asarray(time_s, np.float64))

    def __len__(self) -> int:
        return len(self.keys)
