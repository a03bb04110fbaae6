"""A process that writes to a store until it is killed, and says of every write when it was acknowledged.

It reads from stdin where and how, `[address, namespace, bytes, "backend" or "safekeeper"]` as JSON, writes n
under the key of n, for n from 0 on, and prints n on a line of its own once that is durable.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import count

from ckpt.contract.registry import open_backend
from ckpt.keeper.acks import SaveResult
from ckpt.keeper.safekeeper import SafeKeeper

_OUT = 1


def crash_key(number: int) -> bytes:
    """The key of write n."""
    return b"crash%012d" % number


def crash_value(number: int, size: int) -> bytes:
    """What write n holds: so many bytes that no other write has.

    Examples
    --------
    >>> crash_value(7, 20)
    b'00000000000700000000'
    """
    return (b"%012d" % number * (size // 12 + 1))[:size]


def _write(address: str, namespace: str, size: int) -> None:
    with open_backend(address) as backend:
        for number in count():
            backend.put_many(namespace, {crash_key(number): crash_value(number, size)})
            os.write(_OUT, b"%d\n" % number)


def _save(address: str, namespace: str, size: int) -> None:
    def acknowledged(result: SaveResult) -> None:
        if result.error is None:
            os.write(_OUT, b"%d\n" % int(result.key.removeprefix(b"crash")))

    with SafeKeeper(address, on_result=acknowledged) as keeper:
        states = keeper.namespace(namespace)
        for number in count():
            states.save(crash_key(number), crash_value(number, size))


if __name__ == "__main__":
    where, into, length, way = json.load(sys.stdin)
    (_save if way == "safekeeper" else _write)(where, into, length)
