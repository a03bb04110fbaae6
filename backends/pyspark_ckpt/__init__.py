"""Makes `spark.read.format("ckpt")` work without registration.

PySpark looks for installed packages whose names begin with `pyspark_`, and takes their `DefaultSource`.
"""

from ckpt.spark.source import CkptDataSource as DefaultSource

__all__ = ["DefaultSource"]
