"""A stream in continuous time: instances that queue and pause, state that travels, planners that react.

Needs numpy alone. Guarantees that the same workload and the same options give the same result, the time that
planning took aside. Knows no file, no store and no Spark.
"""

from ckpt.rebalance.simulate.cluster import Cluster, Network
from ckpt.rebalance.simulate.engine import Engine, Halt, Passed, Watch
from ckpt.rebalance.simulate.failing import Crash, Failure, FromStore, Recovered, Recovery
from ckpt.rebalance.simulate.flow import Hold
from ckpt.rebalance.simulate.interval import Interval, Workload, window
from ckpt.rebalance.simulate.latency import Latencies
from ckpt.rebalance.simulate.moving import (
    PROTOCOLS,
    Migration,
    Protocol,
    Schedule,
    Splitter,
    pause_and_resume,
    reload_tasks,
)
from ckpt.rebalance.simulate.result import Record, Result
from ckpt.rebalance.simulate.routes import ByRule, ByTable, Parts, Route
from ckpt.rebalance.simulate.running import Balancing, run

__all__ = ["Cluster", "Engine", "Halt", "Hold", "Interval", "Latencies", "Network", "Passed", "Watch"]
__all__ += ["ByRule", "ByTable", "Parts", "Route", "Workload", "window"]
__all__ += ["PROTOCOLS", "Migration", "Protocol", "Schedule", "Splitter", "pause_and_resume", "reload_tasks"]
__all__ += ["Crash", "Failure", "FromStore", "Recovered", "Recovery"]
__all__ += ["Balancing", "Record", "Result", "run"]
