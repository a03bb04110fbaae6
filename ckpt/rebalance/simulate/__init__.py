"""A stream in continuous time: instances that queue and pause, state that travels, planners that react.

Needs numpy alone. Guarantees that the same workload and the same options give the same result, the time that
planning took aside. Knows no file, no store and no Spark.
"""

from ckpt.rebalance.simulate.interval import Interval, Workload, window

__all__ = ["Interval", "Workload", "window"]
