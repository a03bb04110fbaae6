"""Parts of a commit that fits into no frame: they wait in memory for their COMMIT, or are forgotten."""

from __future__ import annotations

import numpy as np

from ckpt.errors import ConfigError
from ckpt.sidecar.requests import CommitRequest, Request, StageRequest
from ckpt.types import Block


class Staging:
    """The parts that one connection has sent before a commit; at most `most_bytes` of them.

    Examples
    --------
    >>> staging = Staging(1 << 20)
    >>> staging.add(StageRequest(Block.of([(b"be", b"2")]), [b"not"]))
    >>> last = CommitRequest("store", 1, None, None, Block.of([(b"or", b"1")]), [])
    >>> whole = staging.completed(last)
    >>> dict(whole.puts.rows()), whole.deletes
    ({b'be': b'2', b'or': b'1'}, [b'not'])
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._parts: list[StageRequest] = []
        self._bytes = 0

    def add(self, part: StageRequest) -> None:
        """Keep one more part, or forget all and raise ConfigError: there is no room for so much."""
        self._bytes += part.puts.total_bytes + 8 * len(part.puts) + sum(len(key) + 4 for key in part.deletes)
        if self._bytes > self._most_bytes:
            size = self._bytes
            self.forget()
            raise ConfigError(
                f"a commit of {size} bytes or more is longer than the sidecar takes ({self._most_bytes}); "
                "use more partitions, or smaller batches"
            )
        self._parts.append(part)

    def completed(self, request: Request) -> Request:
        """The request, a commit with all parts in front of its own rows; after any request none is left."""
        if not self._parts:
            return request
        staged = self._parts
        self.forget()
        if not isinstance(request, CommitRequest):
            return request
        parts: list[StageRequest | CommitRequest] = [*staged, request]
        puts = [part.puts for part in parts]
        deletes = [key for part in parts for key in part.deletes]
        block = Block(
            np.concatenate([part.key_lengths for part in puts]),
            np.concatenate([part.value_lengths for part in puts]),
            b"".join(part.keys for part in puts),
            b"".join(part.values for part in puts),
        )
        return CommitRequest(
            request.namespace, request.version, request.base, request.commit_id, block, deletes
        )

    def forget(self) -> None:
        """Give the memory back."""
        self._parts, self._bytes = [], 0
