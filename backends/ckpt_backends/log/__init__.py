"""The embedded default: an append-only log of frames with a disposable index and garbage collection."""

from ckpt_backends.log.backend import LogBackend, LogOptions

__all__ = ["LogBackend", "LogOptions"]
