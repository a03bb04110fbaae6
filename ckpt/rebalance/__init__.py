"""Who does what, where: loads per key, routing by key, plans that move as little state as they can.

Needs numpy alone, and knows no backend and no Spark: loads go in as arrays, plans come out as arrays.
"""

from ckpt.rebalance.loads import Loads

__all__ = ["Loads"]
