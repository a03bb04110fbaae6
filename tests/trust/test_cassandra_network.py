"""Cassandra behind a network that misbehaves: every call ends, every save is accounted for, work goes on."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ckpt
from ckpt.config import parse_address
from ckpt.errors import BackendUnavailableError, FencedError
from ckpt.testing.proxy import TcpProxy

PATIENT_S = 90.0
"""Longer than any call may take; who waits longer waits for ever."""

Open = Callable[..., ckpt.Backend]


@pytest.fixture
def prefix() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def proxy(cassandra_keyspace: str) -> Iterator[TcpProxy]:
    host, _, port = parse_address(cassandra_keyspace).location.partition("/")[0].partition(":")
    with TcpProxy(host, int(port)) as between:
        yield between


@pytest.fixture
def through(proxy: TcpProxy, cassandra_keyspace: str, prefix: str) -> Iterator[Open]:
    """Opens handles whose connections go through the proxy."""
    keyspace = cassandra_keyspace.rpartition("/")[2]
    with contextlib.ExitStack() as handles:

        def open_through(**options: Any) -> ckpt.Backend:
            given = {"prefix": prefix, "timeout_s": 1.5, "retry_s": 0.5, **options}
            return handles.enter_context(
                ckpt.open_backend(f"cassandra://{proxy.host}:{proxy.port}/{keyspace}", **given)
            )

        yield open_through
        proxy.restore()


@pytest.fixture
def direct(cassandra_keyspace: str, prefix: str) -> Iterator[ckpt.Backend]:
    with ckpt.open_backend(cassandra_keyspace, prefix=prefix) as backend:
        yield backend


def in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:  # noqa: BLE001 the test looks at whatever it is
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def outcome_of(call: Callable[[], Any]) -> Any:
    """What a call returns or raises, if it ends."""
    thread, outcome = in_thread(call)
    thread.join(PATIENT_S)
    assert outcome, "the call does not end"
    return outcome[0]


def until_it_works(call: Callable[[], Any]) -> Any:
    """The answer of a handle that has to find its connections again; it has a minute and a half for that."""
    deadline = threading.Event()
    timer = threading.Timer(PATIENT_S, deadline.set)
    timer.start()
    try:
        while True:
            outcome = outcome_of(call)
            if not isinstance(outcome, BackendUnavailableError) or deadline.is_set():
                break
    finally:
        timer.cancel()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


TROUBLES: dict[str, Callable[[TcpProxy], None]] = {
    "cut": lambda proxy: proxy.cut(),
    "freeze": lambda proxy: proxy.freeze(),
    "half-closed by the server": lambda proxy: proxy.half_close("to_client"),
    "half-closed by the client": lambda proxy: proxy.half_close("to_server"),
    "reset": lambda proxy: proxy.drop(),
    "cut in the middle of a reply": lambda proxy: proxy.cut_after(20, "to_client"),
    "cut in the middle of a request": lambda proxy: proxy.cut_after(500, "to_server"),
    "slow": lambda proxy: proxy.delay(0.05),
    "slower than the timeout": lambda proxy: proxy.delay(2.5),
}
CALLS: dict[str, Callable[[ckpt.Backend], Any]] = {
    "put": lambda backend: backend.put_many("words", {b"be": b"2", b"big": bytes(100_000)}),
    "get": lambda backend: backend.get_many("words", [b"be", b"or", b"big"]),
    "scan": lambda backend: list(backend.scan("words")),
    "delete": lambda backend: backend.delete_many("words", [b"or"]),
    "commit": lambda backend: backend.commit("store", 2, {b"k": bytes(50_000)}),
    "namespaces": lambda backend: backend.namespaces(),
    "claim": lambda backend: backend.claim("other"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_every_call_ends_and_work_goes_on(
    proxy: TcpProxy, through: Open, direct: ckpt.Backend, trouble: str
) -> None:
    backend = through()
    backend.put_many("words", {b"be": b"1", b"or": b"1", b"big": b"1"})
    backend.commit("store", 1, {b"k": b"1"})
    for call in CALLS.values():
        TROUBLES[trouble](proxy)
        outcome = outcome_of(lambda call=call: call(backend))
        if isinstance(outcome, Exception):
            assert isinstance(outcome, BackendUnavailableError), outcome
        proxy.restore()
    until_it_works(lambda: backend.put_many("words", {b"not": b"3"}))
    assert direct.get_many("words", [b"be", b"not"]) in (
        {b"be": b"1", b"not": b"3"},
        {b"be": b"2", b"not": b"3"},
    )
    version = direct.history("store").tip
    assert version is not None
    until_it_works(lambda: backend.commit("store", version.version + 1, {b"k": b"new"}))
    assert direct.get_many("store", [b"k"]) == {b"k": b"new"}


def test_a_short_trouble_is_waited_out(proxy: TcpProxy, through: Open) -> None:
    backend = through(retry_s=PATIENT_S)
    backend.put_many("words", {b"be": b"1"})
    proxy.cut()
    thread, outcome = in_thread(lambda: backend.put_many("words", {b"be": b"2"}))
    thread.join(0.3)
    assert not outcome
    proxy.restore()
    thread.join(PATIENT_S)
    assert outcome == [None]
    assert backend.get_many("words", [b"be"]) == {b"be": b"2"}


def test_opening_a_server_that_is_not_there_ends(proxy: TcpProxy, through: Open) -> None:
    proxy.cut()
    outcome = outcome_of(through)
    assert isinstance(outcome, BackendUnavailableError)
    assert str(proxy.port) in str(outcome)
    assert "cannot be reached" in str(outcome)
    assert "check that it runs" in str(outcome)
    proxy.restore()
    proxy.freeze()
    outcome = outcome_of(through)
    assert isinstance(outcome, BackendUnavailableError)
    assert str(proxy.port) in str(outcome)


def test_a_write_under_way_while_another_claims_is_fenced(
    proxy: TcpProxy, through: Open, direct: ckpt.Backend
) -> None:
    old = through(timeout_s=PATIENT_S / 2)
    old.claim("words")
    old.put_many("words", {b"be": b"old", b"or": b"old"})
    proxy.freeze()
    thread, outcome = in_thread(lambda: old.put_many("words", {b"be": b"late", b"not": b"late"}))
    thread.join(0.2)
    direct.claim("words")
    direct.put_many("words", {b"be": b"new"})
    expected = {b"be": b"new", b"or": b"old"}
    assert dict(direct.scan("words")) == expected
    assert not outcome
    proxy.thaw()
    thread.join(PATIENT_S)
    assert isinstance(outcome[0], FencedError)
    assert dict(direct.scan("words")) == expected
    with pytest.raises(FencedError):
        until_it_works(lambda: old.delete_many("words", [b"be"]))
    assert dict(direct.scan("words")) == expected


def test_rows_under_way_while_another_claims_are_never_seen(
    proxy: TcpProxy, through: Open, direct: ckpt.Backend
) -> None:
    """The network stands still in a stream of writes, so also between an announcement and its rows."""
    old = through(timeout_s=PATIENT_S / 2)
    keys = [b"key-%d" % n for n in range(20)]
    for turn in range(6):
        old.claim("words")
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():  # noqa: B023 one thread per turn
                number += 1
                old.put_many("words", dict.fromkeys(keys, b"%d-%d" % (turn, number) + bytes(10_000)))  # noqa: B023

        thread, outcome = in_thread(write)
        thread.join(0.3 + turn * 0.007)
        proxy.freeze()
        direct.claim("words")
        before = dict(direct.scan("words"))
        direct.put_many("words", {b"new": b"%d" % turn})
        proxy.thaw()
        thread.join(PATIENT_S)
        stop.set()
        assert isinstance(outcome[0], FencedError), outcome
        assert dict(direct.scan("words")) == before | {b"new": b"%d" % turn}


def test_a_commit_whose_answer_was_lost_is_there_once(
    proxy: TcpProxy, through: Open, direct: ckpt.Backend
) -> None:
    backend = through(retry_s=PATIENT_S)
    backend.commit("store", 1, {b"k": b"1"})
    for version in range(2, 8):
        proxy.cut_after(40 * version, "to_client")
        backend.commit("store", version, {b"k": b"%d" % version, b"new-%d" % version: b"1"})
    assert [commit.version for commit in direct.versions("store")] == list(range(1, 8))
    assert direct.get_many("store", [b"k"]) == {b"k": b"7"}


@pytest.mark.parametrize("trouble", ["cut", "freeze", "cut in the middle of a reply", "reset"])
def test_a_keeper_accounts_for_every_save(
    proxy: TcpProxy, through: Open, direct: ckpt.Backend, trouble: str
) -> None:
    keeper = ckpt.SafeKeeper(through(retry_s=3), retry_s=2, on_result=lambda _: None)
    words = keeper.namespace("words")
    acks = [words.save(f"{n}", {"n": n}) for n in range(50)]
    keeper.flush()
    TROUBLES[trouble](proxy)
    acks += [words.save(f"{n}", {"n": n + 100}) for n in range(50)]
    assert words.accounts().balanced
    outcome_of(keeper.flush)
    assert words.accounts().balanced
    proxy.restore()
    acks += [words.save(f"{n}", {"n": n + 200}) for n in range(50)]
    outcome_of(keeper.flush)
    accounts = words.accounts()
    assert accounts.balanced
    assert accounts.pending == 0
    assert accounts.submitted == 150
    for ack in acks:
        assert ack.done()
    assert all(ack.exception() is None for ack in acks[:50] + acks[100:])
    keeper.close()
    with ckpt.SafeKeeper(direct) as again:
        found = again.namespace("words")
        assert [found.load(f"{n}") for n in range(50)] == [{"n": n + 200} for n in range(50)]
