"""Frames arrive whole however they are cut into pieces on the way, and as many at once as anybody likes."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.sidecar.frames import HEAD, ID_BYTES, encode_hello, frame
from ckpt.sidecar.wire import PeerGoneError, SlowPeerError, Wire

SIZES = st.one_of(
    st.integers(0, 200), st.sampled_from([65_523, 65_536, 65_537, 131_072, 1 << 20, (1 << 20) + 1])
)


def joined(buffers: list[Any]) -> bytes:
    return b"".join(bytes(b) for b in buffers)


def pair(frame_timeout_s: float = 20.0) -> tuple[Wire, socket.socket]:
    """A wire, and the bare other end of it."""
    near, far = socket.socketpair()
    far.settimeout(20)
    return Wire(near, frame_timeout_s=frame_timeout_s), far


@given(sizes=st.lists(SIZES, min_size=1, max_size=4), cuts=st.lists(st.integers(1, 100_000), max_size=8))
@settings(deadline=None, max_examples=50)
def test_frames_in_any_pieces_are_the_frames_that_were_sent(sizes: list[int], cuts: list[int]) -> None:
    bodies = [bytes([n + 1]) * size for n, size in enumerate(sizes)]
    data = encode_hello("token") + b"".join(joined(frame(n, n, [body])) for n, body in enumerate(bodies))
    wire, far = pair()

    def send() -> None:
        rest = memoryview(data)
        for cut in cuts:
            far.sendall(rest[:cut])
            rest = rest[cut:]
        far.sendall(rest)
        far.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        assert wire.receive_hello(20) == (1, 0, b"token")
        for number, body in enumerate(bodies):
            assert wire.wait()
            size, code, request_id = wire.receive_head()
            assert (size, code, request_id) == (len(body), number, number)
            assert wire.receive_body(size, to_keep=number % 2 == 1) == body
        assert not wire.wait()
    finally:
        sender.join()
        wire.close()
        far.close()


def test_a_body_to_keep_is_not_overwritten_by_the_next() -> None:
    wire, far = pair()
    for size in (10, 100_000, 2 << 20):
        bodies = []
        for letter in (b"a", b"b"):
            sender = threading.Thread(target=far.sendall, args=(joined(frame(0, 0, [letter * size])),))
            sender.start()
            bodies.append(wire.receive_body(wire.receive_head()[0], to_keep=True))
            sender.join()
        assert bodies == [b"a" * size, b"b" * size]
    wire.close()
    far.close()


@given(sizes=st.lists(SIZES, min_size=1, max_size=5))
@settings(deadline=None, max_examples=20)
def test_buffers_are_sent_one_after_the_other(sizes: list[int]) -> None:
    wire, far = pair()
    buffers: list[bytes | memoryview] = [bytes([n]) * size for n, size in enumerate(sizes)]
    sender = threading.Thread(target=wire.send, args=(buffers,))
    sender.start()
    received = b""
    while len(received) < sum(sizes):
        received += far.recv(1 << 20)
    sender.join()
    assert received == joined(buffers)
    wire.close()
    far.close()


def test_the_end_inside_a_frame_is_told_from_the_end_between_frames() -> None:
    for data in (b"", joined(frame(1, 1, [b"body"]))[:-1], HEAD.pack(ID_BYTES + 9, 1, 1)):
        wire, far = pair()
        far.sendall(data)
        far.close()
        assert wire.wait() == bool(data)
        if data:
            size, _, _ = wire.receive_head()
            with pytest.raises(PeerGoneError):
                wire.receive_body(size)
        wire.close()


def test_who_waits_is_woken_and_can_still_answer() -> None:
    wire, far = pair()
    woken = threading.Timer(0.05, wire.wake)
    woken.start()
    assert not wire.wait()
    wire.send(frame(0, 1, [b"the answer"]))
    assert far.recv(100).endswith(b"the answer")
    wire.close()
    far.close()


def test_patience_ends_inside_a_frame_only() -> None:
    wire, far = pair(frame_timeout_s=0.1)
    late = threading.Timer(0.4, far.sendall, [joined(frame(1, 7, [b"half a bo"]))[:-5]])
    late.start()
    assert wire.wait()
    size, _, request_id = wire.receive_head()
    assert request_id == 7
    with pytest.raises(SlowPeerError):
        wire.receive_body(size)
    with pytest.raises(SlowPeerError):
        wire.send([bytes(64 << 20)])
    wire.close()
    far.close()
