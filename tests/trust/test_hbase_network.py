"""HBase behind a network that misbehaves: calls end in time, nothing acknowledged is lost, fences hold."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import ckpt
from ckpt.config import parse_address
from ckpt.errors import BackendUnavailableError, FencedError
from ckpt.testing.proxy import TcpProxy

ENDS_S = 60
"""Far more than any call may take with these options; nothing waits for it unless something hangs."""


class Network:
    """A proxy in front of HBase, and handles on one store before and behind it."""

    def __init__(self, address: str) -> None:
        location, _, table = parse_address(address).location.partition("/")
        host, _, port = location.partition(":")
        self.proxy = TcpProxy(host, int(port))
        self._direct, self._bad = address, f"hbase://{self.proxy.host}:{self.proxy.port}/{table}"
        self._prefix = uuid.uuid4().hex
        self._opened: list[ckpt.Backend] = []

    def through(self, *, timeout_s: float = 0.5, retry_s: float = 1.0, **options: Any) -> ckpt.Backend:
        return self._open(self._bad, timeout_s=timeout_s, retry_s=retry_s, **options)

    def around(self) -> ckpt.Backend:
        return self._open(self._direct)

    def _open(self, address: str, **options: Any) -> ckpt.Backend:
        self._opened.append(ckpt.open_backend(address, prefix=self._prefix, **options))
        return self._opened[-1]

    def close(self) -> None:
        self.proxy.restore()
        for backend in self._opened:
            backend.close()
        self.proxy.close()


@pytest.fixture
def network(hbase_table: str) -> Iterator[Network]:
    with ckpt.open_backend(hbase_table):
        pass  # the table is made with more patience than these tests have
    made = Network(hbase_table)
    yield made
    made.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4, thread_name_prefix="caller") as made:
        yield made


def outcome(call: Future[Any]) -> Any:
    """What a call returned, or the error that says the server is unavailable; that it ends is the point."""
    try:
        return call.result(timeout=ENDS_S)
    except BackendUnavailableError as error:
        return error


TROUBLE: dict[str, Callable[[TcpProxy], None]] = {
    "delay": lambda proxy: proxy.delay(0.1),
    "long delay": lambda proxy: proxy.delay(5.0),
    "cut": lambda proxy: proxy.cut(),
    "drop": lambda proxy: proxy.drop(),
    "freeze": lambda proxy: proxy.freeze(),
    "half-close to us": lambda proxy: proxy.half_close("to_client"),
    "half-close to the server": lambda proxy: proxy.half_close("to_server"),
    "cut in an answer": lambda proxy: proxy.cut_after(40, "to_client"),
    "cut in a request": lambda proxy: proxy.cut_after(2000, "to_server"),
}


@pytest.mark.parametrize("trouble", TROUBLE)
def test_every_call_ends_and_work_goes_on(network: Network, pool: ThreadPoolExecutor, trouble: str) -> None:
    backend, other = network.through(), network.around()
    old = {b"key-%d" % n: b"old" for n in range(50)}
    new = {b"key-%d" % n: b"n" * 1000 for n in range(50)}
    backend.put_many("words", old)
    backend.commit("store", 1, old)
    TROUBLE[trouble](network.proxy)
    calls = {
        "put": pool.submit(backend.put_many, "words", new),
        "get": pool.submit(backend.get_many, "words", list(old)),
        "scan": pool.submit(lambda: dict(backend.scan("store", version=1))),
        "commit": pool.submit(backend.commit, "store", 2, new),
    }
    ended = {name: outcome(call) for name, call in calls.items()}
    seen = dict(other.scan("words"))
    assert seen in (old, new), "a batch is seen whole or not at all"
    if ended["put"] is None:
        assert seen == new
    if isinstance(ended["get"], dict):
        assert ended["get"] in (old, new)
    if isinstance(ended["scan"], dict):
        assert ended["scan"] == old
    tip = other.versions("store")[-1]
    if isinstance(ended["commit"], str):
        assert tip.id == ended["commit"]
    assert dict(other.scan("store")) == (new if tip.version == 2 else old)
    network.proxy.restore()
    backend.put_many("words", {b"after": b"1"})
    version = tip.version + 1
    backend.commit("store", version, {b"after": b"1"})
    assert other.get_many("words", [b"after"]) == backend.get_many("store", [b"after"]) == {b"after": b"1"}


def test_connections_that_died_while_idle_cost_no_error(network: Network) -> None:
    backend = network.through(retry_s=0.0)
    for number in range(3):
        backend.put_many("words", {b"a": b"%d" % number})
        network.proxy.drop()
        assert backend.get_many("words", [b"a"]) == {b"a": b"%d" % number}
        network.proxy.half_close("to_client")


def test_a_handle_has_no_more_connections_than_it_may(network: Network, pool: ThreadPoolExecutor) -> None:
    backend = network.through(connections=2, timeout_s=30.0)
    for call in [pool.submit(backend.put_many, f"n{n % 5}", {b"a": b"1"}) for n in range(20)]:
        call.result(timeout=ENDS_S)
    assert network.proxy.connections <= 2


def test_opening_a_server_that_is_not_there_says_so(network: Network, pool: ThreadPoolExecutor) -> None:
    for trouble in (network.proxy.cut, network.proxy.freeze):
        trouble()
        with pytest.raises(BackendUnavailableError, match="HBase at "):
            pool.submit(network.through, timeout_s=0.3, retry_s=0.3).result(timeout=ENDS_S)
        network.proxy.restore()


@pytest.mark.parametrize("earlier", [0, 4])
@pytest.mark.parametrize("timeout_s", [0.5, 60.0], ids=["repeated", "delayed"])
def test_a_write_that_was_frozen_during_a_claim_is_never_seen(
    network: Network, pool: ThreadPoolExecutor, earlier: int, timeout_s: float
) -> None:
    zombie, owner = network.through(timeout_s=timeout_s, retry_s=ENDS_S), network.around()
    zombie.claim("words")
    zombie.put_many("words", {b"old": b"zombie"})
    for number in range(earlier):
        zombie.put_many("words", {b"old": b"zombie", b"key": b"%d" % number})
    before = dict(owner.scan("words"))
    network.proxy.freeze()
    late = pool.submit(zombie.put_many, "words", {b"key": b"late", b"other": b"late", b"old": b"late"})
    while zombie._server._connections._idle:
        time.sleep(0.001)  # until the request is under way
    owner.claim("words")
    owner.put_many("words", {b"key": b"owner"})
    expected = {**before, b"key": b"owner"}
    assert dict(owner.scan("words")) == expected
    network.proxy.restore()
    with pytest.raises(FencedError):
        late.result(timeout=ENDS_S)
    with pytest.raises(FencedError):
        zombie.put_many("words", {b"key": b"later still"})
    assert dict(owner.scan("words")) == expected
    assert owner.get_many("words", [b"key", b"other", b"old"]) == expected
    owner.put_many("words", {b"other": b"owner"})
    assert dict(network.around().scan("words")) == {**expected, b"other": b"owner"}


def test_a_keeper_accounts_for_every_save(network: Network) -> None:
    results: list[ckpt.SaveResult] = []
    backend = network.through(timeout_s=0.3, retry_s=0.3)
    troubles = [TROUBLE[name] for name in ("cut", "freeze", "half-close to us", "cut in an answer", "drop")]
    unbalanced: list[Any] = []
    with ckpt.SafeKeeper(backend, on_result=results.append, retry_s=0.05) as keeper:
        words = keeper.namespace("words")
        acks = []
        for number in range(20):
            acks.append(words.save(f"key-{number % 7}", {"n": number}))
            if number % 4 == 1:
                troubles[number // 4](network.proxy)
            accounts = words.accounts()
            unbalanced += [] if accounts.balanced else [accounts]
            if number % 4 == 3:
                network.proxy.restore()
        network.proxy.restore()
        for ack in acks:
            ack.exception(timeout=ENDS_S)
        accounts = words.accounts()
        assert accounts.balanced
        assert accounts.pending == 0
        assert accounts.submitted == 20
        done = {n: ack.exception() is None for n, ack in enumerate(acks)}
        for number in range(13, 20):
            if done[number]:
                assert words.load(f"key-{number % 7}") == {"n": number}
        words.save("last", {"n": -1}).result(timeout=ENDS_S)
    assert not unbalanced
    with ckpt.SafeKeeper(network.around()) as keeper:
        assert keeper.namespace("words").load("last") == {"n": -1}


def test_a_reader_goes_on_where_its_scan_was_cut(network: Network) -> None:
    backend = network.through(timeout_s=30.0)
    items = {b"key-%05d" % n: b"v" * 100 for n in range(3000)}
    backend.put_many("words", items)
    backend.commit("store", 1, items)
    for namespace in ("words", "store"):
        seen = {}
        for number, (key, value) in enumerate(backend.scan(namespace)):
            seen[key] = value
            if number in (10, 1500):
                network.proxy.drop()
        assert seen == items


def test_threads_share_a_handle_through_trouble(network: Network) -> None:
    """Four threads write keys of their own while connections are reset; what was acknowledged is there."""
    backend = network.through(timeout_s=5.0, retry_s=ENDS_S)
    stop = threading.Event()
    acknowledged: list[dict[bytes, bytes]] = [{} for _ in range(4)]

    def write(number: int) -> None:
        for n in range(30):
            key, value = b"%d-%d" % (number, n % 10), b"%d" % n
            backend.put_many("words", {key: value})
            acknowledged[number][key] = value

    def disturb() -> None:
        while not stop.wait(0.05):
            network.proxy.drop()

    with ThreadPoolExecutor(5, thread_name_prefix="writer") as pool:
        trouble = pool.submit(disturb)
        for writer in [pool.submit(write, number) for number in range(4)]:
            writer.result(timeout=ENDS_S)
        stop.set()
        trouble.result()
    expected = {key: value for done in acknowledged for key, value in done.items()}
    assert dict(network.around().scan("words")) == expected
