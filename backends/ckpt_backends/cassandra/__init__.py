"""Checkpoints in Cassandra: bucketed partitions, versions as a clustering column, fences that hold."""

from ckpt_backends.cassandra.backend import CassandraBackend
from ckpt_backends.cassandra.options import CassandraOptions

__all__ = ["CassandraBackend", "CassandraOptions"]
