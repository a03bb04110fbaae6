"""`ckpt demo` on Spark: a query that is killed with `kill -9` in the middle of a batch and counts exactly.

`run` is the demo; `driver` is the Spark application that it starts, kills and starts again; `messages` is
what the two say to each other.
"""

from ckpt.spark.demo.run import MIN_BATCHES, DemoError, Outcome, Settings, Step, require_spark, run

__all__ = ["MIN_BATCHES", "DemoError", "Outcome", "Settings", "Step", "require_spark", "run"]
