"""S3 behind a network that misbehaves: every call ends, nothing is there by halves, work goes on."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

import ckpt
from ckpt.config import parse_address
from ckpt.dev.s3 import ACCESS_KEY, SECRET_KEY
from ckpt.errors import BackendUnavailableError, FencedError
from ckpt.testing.proxy import TcpProxy
from ckpt.testing.servers import server_address
from ckpt_backends.fsspec import FsspecBackend

PATIENT_S = 120.0
"""Longer than any call may take; who waits longer waits for ever."""
Open = Callable[..., FsspecBackend]


@pytest.fixture
def place() -> str:
    return f"{parse_address(server_address('s3')).location}/network-{secrets.token_hex(6)}"


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    server = urlsplit(parse_address(server_address("s3")).options["fs.endpoint_url"])
    assert server.hostname
    assert server.port
    with TcpProxy(server.hostname, server.port) as between:
        yield between


def opened(place: str, endpoint: str, **options: Any) -> FsspecBackend:
    credentials = {"fs.key": ACCESS_KEY, "fs.secret": SECRET_KEY}
    address = f"fsspec+s3://{place}?fs.endpoint_url={endpoint}"
    backend = ckpt.open_backend(address, **{"timeout_s": 1, "retry_s": 0.5, **credentials, **options})
    assert isinstance(backend, FsspecBackend)
    return backend


@pytest.fixture
def through(proxy: TcpProxy, place: str) -> Iterator[Open]:
    """Opens handles whose connections go through the proxy."""
    with contextlib.ExitStack() as handles:
        yield lambda **options: handles.enter_context(
            opened(place, f"http://{proxy.host}:{proxy.port}", **options)
        )
        proxy.restore()


@pytest.fixture
def direct(place: str) -> Iterator[FsspecBackend]:
    """A handle that is not disturbed."""
    with opened(
        place, parse_address(server_address("s3")).options["fs.endpoint_url"], timeout_s=10
    ) as backend:
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


TROUBLES: dict[str, Callable[[TcpProxy], None]] = {
    "cut": lambda proxy: proxy.cut(),
    "freeze": lambda proxy: proxy.freeze(),
    "half-closed by the server": lambda proxy: proxy.half_close("to_client"),
    "half-closed by the client": lambda proxy: proxy.half_close("to_server"),
    "reset": lambda proxy: proxy.drop(),
    "cut in the middle of a reply": lambda proxy: proxy.cut_after(30, "to_client"),
    "cut in the middle of a request": lambda proxy: proxy.cut_after(2000, "to_server"),
    "slow": lambda proxy: proxy.delay(0.02),
    "slower than the timeout": lambda proxy: proxy.delay(1.5),
}
CALLS: dict[str, Callable[[ckpt.Backend], Any]] = {
    "put": lambda backend: backend.put_many("words", {b"be": b"2", b"big": bytes(100_000)}),
    "get": lambda backend: backend.get_many("words", [b"be", b"or", b"big"]),
    "scan": lambda backend: list(backend.scan("words")),
    "delete": lambda backend: backend.delete_many("words", [b"or"]),
    "commit": lambda backend: backend.commit("store", 2, {b"k": bytes(50_000)}),
    "namespaces": lambda backend: backend.namespaces(),
    "claim": lambda backend: backend.claim("other"),
    "compact": lambda backend: backend.compact(),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_every_call_ends_and_work_goes_on(
    proxy: TcpProxy, through: Open, direct: FsspecBackend, trouble: str
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
    backend.put_many("words", {b"not": b"3"})
    assert direct.get_many("words", [b"be", b"not"]) in (
        {b"be": b"1", b"not": b"3"},
        {b"be": b"2", b"not": b"3"},
    )
    tip = direct.history("store").tip
    assert tip is not None
    backend.commit("store", tip.version + 1, {b"k": b"new"})
    assert direct.get_many("store", [b"k"]) == {b"k": b"new"}
    assert list(direct.verify()) == []


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


def test_opening_a_store_that_does_not_answer_ends(proxy: TcpProxy, through: Open) -> None:
    for trouble in (proxy.cut, proxy.freeze):
        trouble()
        outcome = outcome_of(through)
        assert isinstance(outcome, BackendUnavailableError)
        assert str(proxy.port) in str(outcome)
        proxy.restore()
    through().put_many("words", {b"be": b"1"})


@pytest.mark.parametrize("trouble", ["cut", "freeze"])
def test_closing_ends_while_the_store_does_not_answer(
    proxy: TcpProxy, through: Open, direct: FsspecBackend, trouble: str
) -> None:
    backend = through()
    backend.claim("words")
    backend.put_many("words", {b"be": b"1"})
    TROUBLES[trouble](proxy)
    assert outcome_of(backend.close) is None
    proxy.restore()
    assert dict(direct.scan("words")) == {b"be": b"1"}
    direct.claim("words")
    direct.put_many("words", {b"be": b"2"})


@pytest.mark.parametrize("sent_bytes", [100, 3_000, 150_000, 299_000])
def test_an_upload_that_is_cut_is_done_again_as_if_it_had_never_begun(
    proxy: TcpProxy, through: Open, direct: FsspecBackend, sent_bytes: int
) -> None:
    backend = through(retry_s=PATIENT_S)
    backend.put_many("words", {b"be": b"1"})
    for number in range(3):
        before = proxy.connections
        proxy.cut_after(sent_bytes + number, "to_server")
        backend.put_many("words", {b"be": b"%d" % number, b"big": secrets.token_bytes(300_000)})
        assert proxy.connections > before
        # Had the first attempt left anything under that number, there would be one more.
        assert len(direct._requests.list("segments")) == number + 2
        assert dict(direct.scan("words")) == dict(backend.scan("words"))
    assert list(direct.verify()) == []


UPLOAD = """
import sys
import ckpt

with ckpt.open_backend(sys.argv[1]) as backend:
    backend.put_many("words", {b"be": b"small"})
    print("ready", flush=True)
    sys.stdin.readline()
    backend.put_many("words", {b"be": b"late", b"big": bytes(int(sys.argv[2]))})
"""


def unfinished_uploads(backend: FsspecBackend, place: str) -> int:
    bucket, _, path = place.partition("/")
    answer = backend._requests._driver._fs.call_s3("list_multipart_uploads", Bucket=bucket)
    return sum(one["Key"].startswith(path) for one in answer.get("Uploads", ()))


@pytest.mark.crash
def test_a_process_killed_in_the_middle_of_an_upload_leaves_nothing_visible(
    proxy: TcpProxy, place: str, direct: FsspecBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 150 MB, so in parts."""
    credentials = f"fs.key={ACCESS_KEY}&fs.secret={SECRET_KEY}"
    address = (
        f"fsspec+s3://{place}?fs.endpoint_url=http://{proxy.host}:{proxy.port}&{credentials}&timeout_s=60"
    )
    command = [sys.executable, "-c", UPLOAD, address, str(150_000_000)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        proxy.delay(0.2)  # so that it is under way for longer than it takes to be killed
        proxy.cut_after(1 << 30, "to_server")  # which counts what passes
        writer.stdin.write("go\n")
        writer.stdin.flush()
        while proxy._allowed_bytes["to_server"] > (1 << 30) - 10_000_000:
            assert writer.poll() is None
            threading.Event().wait(0.001)
        writer.kill()
    proxy.restore()
    # The batch is larger than an object may be. Its beginning is there, and nobody sees it.
    leftover = max(direct._requests.list("segments"))
    assert direct._requests.list("segments")[leftover] < 1000
    assert dict(direct.scan("words")) == {b"be": b"small"}
    assert unfinished_uploads(direct, place) == 1
    direct.put_many("words", {b"be": b"after"})
    assert dict(direct.scan("words")) == {b"be": b"after"}
    assert list(direct.verify()) == []
    server = parse_address(server_address("s3")).options["fs.endpoint_url"]
    with opened(place, server, timeout_s=10, grace_s=0) as again:
        again.compact()
        assert leftover not in again._requests.list("segments")
        assert unfinished_uploads(again, place) == 1  # for all one knows, somebody is working on it
        monkeypatch.setattr("ckpt_backends.fsspec_s3._LEFTOVER_AGE_S", -60)
        again.compact()
        assert unfinished_uploads(again, place) == 0
        assert dict(again.scan("words")) == {b"be": b"after"}


def test_a_commit_whose_answer_was_lost_is_there_once(
    proxy: TcpProxy, through: Open, direct: FsspecBackend
) -> None:
    backend = through(retry_s=PATIENT_S)
    backend.commit("store", 1, {b"k": b"1"})
    for version in range(2, 10):
        proxy.cut_after(version, "to_client")
        backend.commit("store", version, {b"k": b"%d" % version, b"new-%d" % version: b"1"})
    assert [commit.version for commit in direct.versions("store")] == list(range(1, 10))
    assert direct.get_many("store", [b"k"]) == {b"k": b"9"}


def test_a_write_under_way_while_another_claims_is_fenced(
    proxy: TcpProxy, through: Open, direct: FsspecBackend
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


def test_a_write_given_up_does_not_come_back_after_a_claim(
    proxy: TcpProxy, through: Open, direct: FsspecBackend
) -> None:
    old = through(retry_s=0)
    old.claim("words")
    old.put_many("words", {b"be": b"old"})
    proxy.freeze()
    assert isinstance(outcome_of(lambda: old.put_many("words", {b"be": b"late"})), BackendUnavailableError)
    direct.claim("words")
    direct.put_many("words", {b"be": b"new"})
    proxy.thaw()
    with pytest.raises(FencedError):
        old.put_many("words", {b"be": b"later"})
    assert dict(direct.scan("words")) == {b"be": b"new"}


@pytest.mark.parametrize("trouble", ["cut", "freeze", "cut in the middle of a reply", "reset"])
def test_a_keeper_accounts_for_every_save(
    proxy: TcpProxy, through: Open, direct: FsspecBackend, trouble: str
) -> None:
    keeper = ckpt.SafeKeeper(through(), retry_s=0.5, on_result=lambda _: None)
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
