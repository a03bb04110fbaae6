"""Requests to Redis: a write counts once enough replicas have it, and none is larger than Redis takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from typing import Any

from ckpt.errors import ConfigError, shown_key
from ckpt_backends.cells import NotNowError
from ckpt_backends.redis.link import Command, RedisLink

_LARGEST_REQUEST_BYTES = 256 << 20
"""Redis gives up a connection whose request is larger than a gigabyte."""

_FIELDS_AT_ONCE = 250


def script(text: str, keys: Sequence[bytes], arguments: Sequence[bytes] = ()) -> Command:
    """The command that runs a script."""
    return [b"EVAL", text.encode(), b"%d" % len(keys), *keys, *arguments]


def set_fields(key: bytes, items: Mapping[bytes, bytes]) -> Iterator[Command]:
    """The commands that put items into a hash: several, as the server reads one while the next is packed."""
    left = iter(items.items())
    while some := list(islice(left, _FIELDS_AT_ONCE)):
        yield [b"HSET", key, *chain.from_iterable(some)]


def add_members(key: bytes, names: Iterable[bytes]) -> Command:
    """The command that puts names into a sorted set: one score for all, so in the order of their bytes."""
    return [b"ZADD", key, *chain.from_iterable(zip(repeat(b"0"), names))]


def in_parts(items: Mapping[bytes, bytes], most_bytes: int) -> Iterator[Mapping[bytes, bytes]]:
    """The items in as few parts of at most so many bytes as their order allows.

    Examples
    --------
    >>> [list(part) for part in in_parts({b"a": b"12", b"b": b"34", b"c": b"5"}, 5)]
    [[b'a'], [b'b', b'c']]
    """
    part: dict[bytes, bytes] = {}
    part_bytes = 0
    for key, value in items.items():
        size = len(key) + len(value)
        if part and part_bytes + size > most_bytes:
            yield part
            part, part_bytes = {}, 0
        part[key] = value
        part_bytes += size
    yield part


class RedisRequests:
    """Reads and writes through a link; a write returns when as many replicas have it as were asked for."""

    def __init__(
        self, link: RedisLink, *, wait: int, wait_timeout_s: float, largest_value_bytes: int
    ) -> None:
        self._link, self._wait, self._largest_value_bytes = link, wait, largest_value_bytes
        self._wait_timeout_s = wait_timeout_s
        self._waiting: list[Command] = (
            [[b"WAIT", b"%d" % wait, b"%d" % max(1, int(wait_timeout_s * 1000))]] if wait else []
        )
        self.at = link.at

    def read(self, key: bytes, *commands: Command) -> list[Any]:
        """The answers to commands that change nothing."""
        return self._link.ask(key, *commands)

    def write(self, key: bytes, *commands: Command) -> list[Any]:
        """The answers to commands that may change something, once that is replicated."""
        answers = self._link.ask(key, *commands, *self._waiting)
        if self._waiting:
            have = answers.pop()
            if have < self._wait:
                raise NotNowError(
                    f"{have} of {self._wait} replicas have confirmed a write to {self.at} within "
                    f"{self._wait_timeout_s:g} s; it may be there or not: check the replicas, or lower wait="
                )
        return answers

    def transact(self, key: bytes, *commands: Command) -> list[Any]:
        """The answers to commands that happen all together or not at all, once that is replicated."""
        if len(commands) == 1:
            return self.write(key, *commands)
        answers = self.write(key, [b"MULTI"], *commands, [b"EXEC"])
        done = answers[-1]
        assert isinstance(done, list)
        return done

    def parts(
        self, namespace: str, items: Mapping[bytes, bytes], key_of: Callable[[bytes], bytes] = bytes
    ) -> list[Mapping[bytes, bytes]]:
        """The items in as few requests as Redis allows: one, unless there are hundreds of megabytes.

        Raises ConfigError if one is larger than the server takes, so that a SafeKeeper fails that save and no
        other of its batch; `key_of` is how the message names it.
        """
        most = self._largest_value_bytes
        total = _size(items)
        if total < most and total <= _LARGEST_REQUEST_BYTES:
            return [items]
        for name, value in items.items():
            if max(len(value), len(name)) >= most:
                raise ConfigError(
                    f"key {shown_key(key_of(name))} of namespace {namespace!r} has {len(value):,} bytes, and "
                    f"{self.at} takes less than {most:,}; split the state, or raise its proto-max-bulk-len"
                )
        return list(in_parts(items, _LARGEST_REQUEST_BYTES))

    def require_one(self, namespace: str, items: Mapping[bytes, bytes]) -> None:
        """Raise ConfigError unless the items fit into one request: a crash between two would leave half."""
        if len(self.parts(namespace, items)) > 1:
            raise ConfigError(
                f"{len(items)} puts to namespace {namespace!r} take {_size(items):,} bytes, and a "
                f"transaction of {self.at} at most {_LARGEST_REQUEST_BYTES:,}; put fewer keys at once"
            )


def _size(items: Mapping[bytes, bytes]) -> int:
    return sum(map(len, items.values())) + sum(map(len, items))
