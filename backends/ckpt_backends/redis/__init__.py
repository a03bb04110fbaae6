"""Checkpoints in Redis or Valkey."""

from ckpt_backends.redis.backend import RedisBackend
from ckpt_backends.redis.options import RedisOptions

__all__ = ["RedisBackend", "RedisOptions"]
