"""What a worker may be asked to do, as both sides of the pipe know it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Self


@dataclasses.dataclass(frozen=True, slots=True)
class SessionSpec:
    """What all queries of one session share."""

    master: str
    memory: str
    partitions: int
    address: str
    """Where ckpt keeps the state."""


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One thing to do in one session; what a kind of job does not need is left at nothing."""

    kind: str
    session: SessionSpec
    folder: str
    providers: tuple[str, ...]
    rows: int = 0
    keys: int = 0
    batches: int = 0
    warmup: int = 0
    sizes: tuple[int, ...] = ()
    seed: int = 1

    def encode(self) -> str:
        """The argument of a worker.

        Examples
        --------
        >>> job = Job("fill", SessionSpec("local[2]", "1g", 3, "memory://"), "/f", ("ckpt",), keys=9)
        >>> Job.decode(job.encode()) == job
        True
        """
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def decode(cls, argument: str) -> Self:
        """The inverse of `encode`."""
        fields: dict[str, Any] = json.loads(argument)
        fields["session"] = SessionSpec(**fields["session"])
        for name in ("providers", "sizes"):
            fields[name] = tuple(fields[name])
        return cls(**fields)
