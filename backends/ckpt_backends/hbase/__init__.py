"""Checkpoints in HBase: the contract on top of rows whose timestamps are stamps."""

from ckpt_backends.hbase.backend import HBaseBackend
from ckpt_backends.hbase.options import HBaseOptions

__all__ = ["HBaseBackend", "HBaseOptions"]
