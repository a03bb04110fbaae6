"""Checkpoints as rows and cells of a server: the contract once, and what a server must offer for it."""

from ckpt_backends.cells.backend import CellBackend
from ckpt_backends.cells.options import CellOptions
from ckpt_backends.cells.server import CellServer, NotNowError

__all__ = ["CellBackend", "CellOptions", "CellServer", "NotNowError"]
