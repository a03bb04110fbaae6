"""What the demo tells its Spark application, and what that reports: one line of JSON each."""

from __future__ import annotations

import msgspec

CKPT, DEFAULT = "ckpt", "default"
"""The two queries: on ckpt, and on Spark's default provider. Also the names of their folders."""
QUERIES = (CKPT, DEFAULT)


class Job(msgspec.Struct, frozen=True):
    """What the application is to do. It comes by standard input, because an address may hold a secret."""

    address: str
    folder: str
    """Holds the words of each batch; gets inputs, outputs and checkpoints of the queries."""
    batches: int
    partitions: int
    first: int
    """The batch to go on with; those before it are done."""
    hold_in: int | None
    """The batch of the query on ckpt that the application does not finish: it waits there to be killed."""


class Started(msgspec.Struct, frozen=True, tag=True):
    """Spark is there."""

    version: str


class Done(msgspec.Struct, frozen=True, tag=True):
    """A query has finished a batch."""

    query: str
    batch: int
    ms: float
    words: int
    """Words in the state of the query now."""


class Halfway(msgspec.Struct, frozen=True, tag=True):
    """Some partitions have committed the batch that is not to be finished, and the others have not."""

    partitions: int


class Ended(msgspec.Struct, frozen=True, tag=True):
    """All batches are done."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The application has to give up."""

    message: str


Message = Started | Done | Halfway | Ended | Failed
