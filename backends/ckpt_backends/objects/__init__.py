"""Checkpoints in object stores: the frames of the engine as immutable objects, through fsspec."""

from ckpt_backends.objects.backend import FsspecBackend, FsspecOptions

__all__ = ["FsspecBackend", "FsspecOptions"]
