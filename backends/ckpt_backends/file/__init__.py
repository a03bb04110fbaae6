"""One file per key, for few keys that other tools read."""

from ckpt_backends.file.backend import FileBackend

__all__ = ["FileBackend"]
