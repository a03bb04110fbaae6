"""The rows of both sides of a join, in the order in which they come."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import mixed
from ckpt.rebalance.loads import F64, U64
from ckpt.rebalance.table import Side

I8 = npt.NDArray[np.int8]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """One entry per row; a later row never has an earlier time.

    Examples
    --------
    >>> rows = Rows.of([Side.LEFT, Side.RIGHT], value=[7, 7], time_s=[0.0, 1.5])
    >>> len(rows), len(set(rows.salt.tolist()))
    (2, 2)
    """

    side: I8
    """`Side.LEFT` or `Side.RIGHT`."""
    value: I64
    """The key column, from which a predicate makes the identity."""
    time_s: F64
    salt: U64
    """A hash of each row's bytes, by which routers draw."""

    def __post_init__(self) -> None:
        if not len(self.side) == len(self.value) == len(self.time_s) == len(self.salt):
            raise ConfigError("the columns of rows must be equally long")
        if not np.isin(self.side, (Side.LEFT, Side.RIGHT)).all():
            raise ConfigError("each row is of the left or of the right side")
        if not np.isfinite(self.time_s).all() or (np.diff(self.time_s) < 0).any():
            raise ConfigError("rows must come in the order of their times, which are finite numbers")

    @classmethod
    def of(cls, side: npt.ArrayLike, value: npt.ArrayLike, time_s: npt.ArrayLike, seed: int = 0) -> Rows:
        """Rows whose bytes are their number in this stream, hashed with a seed."""
        sides = np.asarray(side, np.int8)
        salt = mixed(np.arange(len(sides), dtype=np.uint64) + (np.uint64(seed) << np.uint64(40)))
        return cls(sides, np.asarray(value, np.int64), np.asarray(time_s, np.float64), salt)

    def __len__(self) -> int:
        return len(self.side)
