"""Replicas of important keys as ftlb-2019 §3 keeps them: tuple by tuple, through a failure and its recovery.

Guarantees that every tuple is accounted for: applied by which instance, in which order, delivered when, and
whether a recovery lost or repeated it. Knows no file, no store and no Spark.
"""

from ckpt.rebalance.simulate.replicas.copies import Copies, Settings, Synchronisation, replicate
from ckpt.rebalance.simulate.replicas.recovery import Direction, KeysRecovered, recover, reload_task
from ckpt.rebalance.simulate.replicas.sorting import released
from ckpt.rebalance.simulate.replicas.takeover import FromReplicas
from ckpt.rebalance.simulate.replicas.tuples import Tuples

__all__ = ["Copies", "Direction", "FromReplicas", "KeysRecovered", "Settings", "Synchronisation", "Tuples"]
__all__ += ["recover", "released", "reload_task", "replicate"]
