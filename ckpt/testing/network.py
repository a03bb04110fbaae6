"""A store behind a network that misbehaves: every call ends, every save is accounted for, work goes on."""

from __future__ import annotations

import contextlib
import random
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from ckpt.contract.backend import Backend, Compacts
from ckpt.contract.registry import open_backend
from ckpt.errors import BackendUnavailableError, FencedError
from ckpt.keeper.safekeeper import SafeKeeper
from ckpt.testing.load import Load
from ckpt.testing.outcomes import PATIENT_S, ArgsT, ResultT, begin, outcome, until_it_works
from ckpt.testing.proxy import TcpProxy

Trouble = Callable[["NetworkConformance"], None]

LASTING: Mapping[str, Trouble] = MappingProxyType(
    {
        "cut": lambda suite: suite.proxy.cut(),
        "freeze": lambda suite: suite.proxy.freeze(),
        "slow": lambda suite: suite.proxy.delay(suite.timeout_s / 20),
        "slower than the timeout": lambda suite: suite.proxy.delay(1.5 * suite.timeout_s),
    }
)
"""They last until the network is restored, for all connections."""

PASSING: Mapping[str, Trouble] = MappingProxyType(
    {
        "half-closed by the server": lambda suite: suite.proxy.half_close("to_client"),
        "half-closed by the client": lambda suite: suite.proxy.half_close("to_server"),
        "reset": lambda suite: suite.proxy.drop(),
        "cut in the middle of a reply": lambda suite: suite.proxy.cut_after(suite.reply_bytes, "to_client"),
        "cut in the middle of a request": lambda suite: suite.proxy.cut_after(2000, "to_server"),
    }
)
"""They hit the connections that are there, or one of them; new ones are whole."""

_TROUBLES = {**LASTING, **PASSING}
_KEYS = [b"key-%02d" % number for number in range(50)]
_OLD = dict.fromkeys(_KEYS, b"old")
_random = random.Random(4)
_NEW = {key: _random.randbytes(2000) for key in _KEYS}
"""Of bytes that no connection compresses, so that a request is as long as it looks."""


class NetworkConformance:
    """Every trouble with every call, on the store at the `address` that the subclass gives.

    A `TcpProxy` takes the place of the first `host:port` in the address. Handles that go through it are
    opened with the options `timeout_s` and `retry_s`, which the backend must know: how long one answer may
    take, and for how long a call is tried again.

    ```python
    class TestMyNetwork(NetworkConformance):
        @pytest.fixture
        def address(self):
            return f"mine://127.0.0.1:4321/{uuid.uuid4().hex}"
    ```
    """

    timeout_s: ClassVar[float] = 0.5
    """As short as the server, on a busy machine, can keep."""
    retry_s: ClassVar[float] = 0.5
    reply_bytes: ClassVar[int] = 20
    """Less than the shortest reply of the server has."""
    reconnects_later: ClassVar[bool] = False
    """Whether its driver connects again in its own time, so that a call soon after may still fail."""
    resumes_scans: ClassVar[bool] = True
    """Whether a scan goes on where its connection was cut; otherwise it raises, and is begun again."""
    silent_says: ClassVar[str] = ""
    """What the error says, as a regular expression, if the server does not answer."""

    proxy: TcpProxy
    direct: Backend
    """A handle that nothing disturbs."""
    proxied: str
    """The address of the store behind the proxy."""
    _address: str
    _handles: contextlib.ExitStack

    @pytest.fixture
    def address(self) -> str:
        """The address of a store of this test alone, with the server's `host:port`: subclasses say which."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _network_of_this_test(self, address: str) -> Iterator[None]:
        server = re.search(r"([\w.-]+):(\d+)(?=[/,?&]|$)", address)
        assert server is not None, f"no host:port in {address}"
        with contextlib.ExitStack() as self._handles:
            self.proxy = self._handles.enter_context(TcpProxy(server[1], int(server[2])))
            self._address = address
            self.proxied = address.replace(server[0], f"{self.proxy.host}:{self.proxy.port}", 1)
            # First of all: what is made when a store is opened for the first time is made in peace.
            self.direct = self.around()
            yield
            self.proxy.restore()

    def through(self, **options: Any) -> Backend:
        """One more handle behind the proxy, opened while the network is whole; closed with the test."""
        # A busy server may take longer than a handle waits that is made for trouble.
        return self._handles.enter_context(until_it_works(self._open_once, **options))

    def _open_once(self, **options: Any) -> Backend:
        return open_backend(self.proxied, **{"timeout_s": self.timeout_s, "retry_s": self.retry_s, **options})

    def around(self) -> Backend:
        """One more handle that nothing disturbs, closed at the end of the test."""
        return self._handles.enter_context(open_backend(self._address))

    def when_restored(
        self, call: Callable[ArgsT, ResultT], *args: ArgsT.args, **kwargs: ArgsT.kwargs
    ) -> ResultT:
        """What a call answers when the network is whole again; to reconnect may take a moment."""
        return until_it_works(call, *args, **kwargs) if self.reconnects_later else call(*args, **kwargs)

    # -- every call ----------------------------------------------------------------------------------

    @pytest.mark.parametrize("trouble", _TROUBLES)
    def test_every_call_ends_and_work_goes_on(self, trouble: str) -> None:
        backend = self.through()
        until_it_works(backend.put_many, "words", {**_OLD, b"gone": b"old"})
        until_it_works(backend.commit, "store", 1, _OLD)
        calls = _calls(backend)
        if trouble in LASTING:
            _TROUBLES[trouble](self)
            begun = {name: begin(call) for name, call in calls.items()}
            ended = {name: outcome(call) for name, call in begun.items()}
            self.proxy.restore()
        else:
            ended = {}
            for name, call in calls.items():
                _TROUBLES[trouble](self)
                ended[name] = outcome(begin(call))
                self.proxy.restore()
        for name, end in ended.items():
            assert isinstance(end, BackendUnavailableError) or not isinstance(end, BaseException), (name, end)
        self._require_true_answers(ended)
        self.when_restored(backend.put_many, "words", {b"after": b"1"})
        assert self.direct.get_many("words", [b"after"]) == {b"after": b"1"}
        tip = self.direct.history("store").tip
        assert tip is not None
        self.when_restored(backend.commit, "store", tip.version + 1, {b"after": b"2"})
        assert self.direct.get_many("store", [b"after"]) == {b"after": b"2"}
        assert list(self.direct.verify()) == []

    def _require_true_answers(self, ended: Mapping[str, Any]) -> None:
        """What calls have answered is so, and what they have not is there as a whole or not at all."""
        words = dict(self.direct.scan("words"))
        seen = {key: words[key] for key in _KEYS}
        whole = self.direct.capabilities.atomic_put
        for found in [seen, *(answer for answer in [ended["get"]] if isinstance(answer, dict))]:
            assert all(found[key] in (_OLD[key], _NEW[key]) for key in _KEYS)
            assert found in (_OLD, _NEW) or not whole
        if ended["put"] is None:
            assert seen == _NEW
        if ended["delete"] is None:
            assert b"gone" not in words
        if isinstance(ended["scan"], dict):
            assert {*_KEYS} <= {*ended["scan"]}
        if isinstance(ended["scan of a version"], dict):
            assert ended["scan of a version"] == _OLD
        if isinstance(ended["namespaces"], list):
            assert {"words", "store"} <= {*ended["namespaces"]}
        tip = self.direct.history("store").tip
        assert tip is not None
        if isinstance(ended["commit"], str):
            assert tip.id == ended["commit"]
        assert dict(self.direct.scan("store", commit_id=tip.id)) == (_NEW if tip.version == 2 else _OLD)

    def test_a_short_trouble_is_waited_out(self) -> None:
        backend = self.through(retry_s=PATIENT_S)
        backend.put_many("words", {b"be": b"1"})
        self.proxy.cut()
        call = begin(backend.put_many, "words", {b"be": b"2"})
        with pytest.raises(TimeoutError):
            call.result(timeout=0.3)
        self.proxy.restore()
        assert outcome(call) is None
        assert backend.get_many("words", [b"be"]) == {b"be": b"2"}

    def test_opening_ends_while_the_server_does_not_answer(self) -> None:
        for trouble, says in (("cut", ""), ("freeze", self.silent_says)):
            _TROUBLES[trouble](self)
            refused = outcome(begin(self._open_once))
            assert isinstance(refused, BackendUnavailableError)
            assert str(self.proxy.port) in str(refused)
            assert re.search(says, str(refused))
            self.proxy.restore()
        until_it_works(self.through().put_many, "words", {b"be": b"1"})

    @pytest.mark.parametrize("trouble", ["cut", "freeze"])
    def test_closing_ends_while_the_server_does_not_answer(self, trouble: str) -> None:
        backend = self.through()
        until_it_works(backend.claim, "words")
        until_it_works(backend.put_many, "words", {b"be": b"1"})
        _TROUBLES[trouble](self)
        assert outcome(begin(backend.close)) is None
        self.proxy.restore()
        assert dict(self.direct.scan("words")) == {b"be": b"1"}
        self.direct.claim("words")
        self.direct.put_many("words", {b"be": b"2"})

    # -- what is under way ---------------------------------------------------------------------------

    def test_a_commit_whose_answer_was_lost_is_there_once(self) -> None:
        backend = self.through(retry_s=PATIENT_S)
        backend.commit("store", 1, {b"k": b"1"})
        for version, answered_bytes in enumerate((2, 5, 8, 11, 40, 90, 160, 280), start=2):
            self.proxy.cut_after(answered_bytes, "to_client")
            backend.commit("store", version, {b"k": b"%d" % version, b"new-%d" % version: b"1"})
        assert [commit.version for commit in self.direct.versions("store")] == list(range(1, 10))
        assert self.direct.get_many("store", [b"k"]) == {b"k": b"9"}

    def test_a_scan_that_is_cut_goes_on_or_says_so(self) -> None:
        backend = self.through(timeout_s=PATIENT_S / 4, retry_s=PATIENT_S)
        items = {b"key-%05d" % number: b"v" * 100 for number in range(3000)}
        backend.put_many("words", items)
        backend.commit("store", 1, items)
        for namespace in ("words", "store"):
            seen = {}
            try:
                for number, (key, value) in enumerate(backend.scan(namespace)):
                    seen[key] = value
                    if number in (10, 1500):
                        self.proxy.drop()
            except BackendUnavailableError:
                if self.resumes_scans:
                    raise
                seen = self.when_restored(_scanned, backend, namespace)
            assert seen == items

    def test_threads_share_a_handle_through_trouble(self) -> None:
        """Each writes keys of its own while connections are reset; what was acknowledged is there."""
        backend = self.through(timeout_s=PATIENT_S / 4, retry_s=PATIENT_S)

        def write(thread: int) -> dict[bytes, bytes]:
            acknowledged = {}
            for number in range(20):
                if number == 4 + thread:
                    self.proxy.drop()
                key, value = b"%d-%d" % (thread, number % 10), b"%d" % number
                backend.put_many("words", {key: value})
                acknowledged[key] = value
            return acknowledged

        expected: dict[bytes, bytes] = {}
        for call in [begin(write, thread) for thread in range(4)]:
            expected |= call.result(timeout=PATIENT_S)
        assert dict(self.direct.scan("words")) == expected

    # -- fences --------------------------------------------------------------------------------------

    @pytest.mark.parametrize("then", ["delayed", "repeated", "given up"])
    def test_a_write_that_was_under_way_during_a_claim_is_never_seen(self, then: str) -> None:
        owner = self.direct
        zombie = self.through(
            timeout_s=PATIENT_S / 2 if then == "delayed" else self.timeout_s,
            retry_s=0 if then == "given up" else PATIENT_S,
        )
        for earlier in (0, 4):
            name = f"words-{earlier}"
            # A backend that gives up at once may still feel the trouble of the turn before, or a slow server.
            until_it_works(zombie.claim, name)
            until_it_works(zombie.put_many, name, {b"old": b"zombie"})
            for number in range(earlier):
                until_it_works(zombie.put_many, name, {b"old": b"zombie", b"key": b"%d" % number})
            before = dict(owner.scan(name))
            self.proxy.freeze()
            call = begin(zombie.put_many, name, {b"key": b"late", b"other": b"late", b"old": b"late"})
            if then == "given up":
                assert isinstance(outcome(call), BackendUnavailableError)
            else:
                self.proxy.wait_for_client()
            owner.claim(name)
            owner.put_many(name, {b"key": b"owner"})
            expected = {**before, b"key": b"owner"}
            assert dict(owner.scan(name)) == expected
            assert call.done() == (then == "given up")
            self.proxy.thaw()
            if then != "given up":
                assert isinstance(outcome(call), FencedError)
            with pytest.raises(FencedError):
                self.when_restored(zombie.put_many, name, {b"key": b"later still"})
            with pytest.raises(FencedError):
                self.when_restored(zombie.delete_many, name, [b"key"])
            assert dict(owner.scan(name)) == expected
            assert owner.get_many(name, [b"key", b"other", b"old"]) == expected
            owner.put_many(name, {b"other": b"owner"})
            assert dict(self.around().scan(name)) == {**expected, b"other": b"owner"}

    def test_a_stream_of_writes_ends_where_another_claims(self) -> None:
        """The network stands still wherever the stream is, so also within what one batch takes."""
        old = self.through(timeout_s=PATIENT_S / 2)
        keys = [b"key-%d" % number for number in range(20)]
        for turn in range(6):
            old.claim("words")

            def write(number: int, turn: int = turn) -> None:
                old.put_many("words", dict.fromkeys(keys, b"%d-%d" % (turn, number) + bytes(10_000)))

            with Load(write) as load:
                load.wait_for_more()
                threading.Event().wait(turn * 0.007)
                self.proxy.freeze()
                self.direct.claim("words")
                before = dict(self.direct.scan("words"))
                self.direct.put_many("words", {b"new": b"%d" % turn})
                self.proxy.thaw()
                assert isinstance(load.error(), FencedError)
            assert dict(self.direct.scan("words")) == before | {b"new": b"%d" % turn}

    # -- the SafeKeeper ------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "trouble", ["cut", "freeze", "half-closed by the server", "cut in the middle of a reply", "reset"]
    )
    def test_a_keeper_accounts_for_every_save(self, trouble: str) -> None:
        backend = self.through()
        results: list[Any] = []
        with SafeKeeper(backend, retry_s=0.5, on_result=results.append) as keeper:
            words = keeper.namespace("words")
            acks = [words.save(f"{n}", {"n": n}) for n in range(50)]
            keeper.flush()
            _TROUBLES[trouble](self)
            acks += [words.save(f"{n}", {"n": n + 100}) for n in range(50)]
            assert words.accounts().balanced
            outcome(begin(keeper.flush))
            assert words.accounts().balanced
            self.proxy.restore()
            self.when_restored(backend.namespaces)
            acks += [words.save(f"{n}", {"n": n + 200}) for n in range(50)]
            outcome(begin(keeper.flush))
            accounts = words.accounts()
            assert accounts.balanced
            assert accounts.pending == 0
            assert accounts.submitted == 150
            assert all(ack.done() for ack in acks)
            assert all(ack.exception() is None for ack in acks[:50] + acks[100:])
        assert len(results) == 150
        with SafeKeeper(self.direct) as again:
            found = again.namespace("words")
            assert [found.load(f"{n}") for n in range(50)] == [{"n": n + 200} for n in range(50)]


def _scanned(backend: Backend, namespace: str) -> dict[bytes, bytes]:
    return dict(backend.scan(namespace))


def _calls(backend: Backend) -> dict[str, Callable[[], Any]]:
    calls: dict[str, Callable[[], Any]] = {
        "put": lambda: backend.put_many("words", _NEW),
        "get": lambda: backend.get_many("words", _KEYS),
        "scan": lambda: _scanned(backend, "words"),
        "scan of a version": lambda: dict(backend.scan("store", version=1)),
        "delete": lambda: backend.delete_many("words", [b"gone"]),
        "commit": lambda: backend.commit("store", 2, _NEW),
        "namespaces": backend.namespaces,
        "claim": lambda: backend.claim("other"),
    }
    if isinstance(backend, Compacts):
        calls["compact"] = backend.compact
    return calls
