"""A commit that fits into no frame is sent in parts, and is whole or not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ckpt
from ckpt.sidecar.frames import ErrorKind, ResponseStatus, decode_committed, frame
from ckpt.sidecar.requests import CommitRequest, PingRequest, StageRequest
from ckpt.types import Block

MEGABYTE = 1 << 20


class Client:
    """Sends requests and takes their answers, one after the other."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._requests = 0

    def ask(self, request: Any) -> tuple[int, bytes]:
        self._requests += 1
        self._raw.say(b"".join(bytes(b) for b in frame(request.operation, self._requests, request.encode())))
        status, request_id, body = self._raw.answer()
        assert request_id == self._requests
        return status, body


@pytest.fixture
def backend() -> ckpt.Backend:
    return ckpt.open_backend("memory://")


@pytest.fixture
def client(start: Callable[..., Any], raw: Callable[..., Any], backend: ckpt.Backend) -> Client:
    return Client(raw(start(backend, max_commit_bytes=2 * MEGABYTE)))


def part(deletes: tuple[bytes, ...] = (), **puts: bytes) -> StageRequest:
    return StageRequest(Block.of([(key.encode(), value) for key, value in puts.items()]), deletes)


def commit(version: int, **puts: bytes) -> CommitRequest:
    return CommitRequest("store", version, None, f"c{version}", part(**puts).puts, [])


def test_parts_become_one_commit(client: Client, backend: ckpt.Backend) -> None:
    backend.commit("store", 1, {b"old": b"1", b"older": b"1"})
    assert client.ask(part(a=b"1", b=b"2")) == (ResponseStatus.DONE, b"")
    assert client.ask(part((b"old", b"older"), c=b"3" * MEGABYTE)) == (ResponseStatus.DONE, b"")
    assert dict(backend.scan("store")) == {b"old": b"1", b"older": b"1"}
    status, body = client.ask(commit(2, d=b"4"))
    assert status == ResponseStatus.DONE
    assert decode_committed(memoryview(body))[0] == "c2"
    expected = {b"a": b"1", b"b": b"2", b"c": b"3" * MEGABYTE, b"d": b"4"}
    assert dict(backend.scan("store")) == expected
    client.ask(commit(3, e=b"5"))
    assert dict(backend.scan("store")) == expected | {b"e": b"5"}


def test_parts_without_their_commit_are_forgotten(client: Client, backend: ckpt.Backend) -> None:
    client.ask(part(a=b"1"))
    client.ask(PingRequest())
    client.ask(commit(1, b=b"2"))
    assert dict(backend.scan("store")) == {b"b": b"2"}


def test_a_commit_that_is_refused_forgets_its_parts(client: Client, backend: ckpt.Backend) -> None:
    client.ask(part(a=b"1"))
    status, body = client.ask(commit(1, a=b"2"))
    assert (status, body[0]) == (ResponseStatus.ERROR, ErrorKind.CONFIG)
    client.ask(commit(1, b=b"2"))
    assert dict(backend.scan("store")) == {b"b": b"2"}


def test_there_is_an_end_to_it(client: Client, backend: ckpt.Backend) -> None:
    assert client.ask(part(a=b"1" * MEGABYTE))[0] == ResponseStatus.DONE
    status, body = client.ask(part(b=b"2" * MEGABYTE))
    assert (status, body[0]) == (ResponseStatus.ERROR, ErrorKind.CONFIG)
    assert b"use more partitions" in body
    client.ask(commit(1, c=b"3"))
    assert dict(backend.scan("store")) == {b"c": b"3"}
