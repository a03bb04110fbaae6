"""The sorting buffer in front of an instance (ftlb-2019 §3.1.2, Fig. 5).

Tuples arrive in any order. The buffer holds `size` of them; when one more arrives, the one with the earliest
timestamp leaves it. So tuples leave in the order of their timestamps as long as none arrives more than `size`
places late. A larger buffer sorts more and makes each tuple wait longer.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.loads import F64

I64 = npt.NDArray[np.int64]


def released(numbers: I64, arrival_s: F64, size: int) -> tuple[I64, F64]:
    """The tuples in the order in which they leave the buffer, and when each does.

    `numbers` rise with the timestamps. After the last arrival the buffer is emptied.

    Examples
    --------
    >>> order, at_s = released(np.array([1, 2, 3]), np.array([0.5, 0.1, 0.2]), size=1)
    >>> order.tolist(), at_s.tolist()
    ([2, 1, 3], [0.2, 0.5, 0.5])
    >>> released(np.array([1, 2, 3]), np.array([0.5, 0.1, 0.2]), size=2)[0].tolist()
    [1, 2, 3]
    """
    if size < 0:
        raise ConfigError(f"a sorting buffer holds at least 0 tuples, not {size}")
    held: list[int] = []
    left: list[int] = []
    left_s: list[float] = []
    now_s = 0.0
    arrivals = np.lexsort((numbers, arrival_s))
    for number, now_s in zip(numbers[arrivals].tolist(), arrival_s[arrivals].tolist(), strict=True):
        heapq.heappush(held, number)
        if len(held) > size:
            left.append(heapq.heappop(held))
            left_s.append(now_s)
    left += sorted(held)
    left_s += [now_s] * len(held)
    return np.array(left, np.int64), np.array(left_s)
