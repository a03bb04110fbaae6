"""A commit whose answer was lost is repeated, done once, and acknowledged only when it is durable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ckpt
from ckpt.contract.versions import EMPTY
from ckpt.errors import BackendUnavailableError, ConfigError, VersionNotFoundError
from ckpt.sidecar import Sidecar, SidecarClient, UnixListener

Start, Connect = Callable[..., Sidecar], Callable[..., SidecarClient]


def test_the_same_commit_again_is_done_already(client: SidecarClient) -> None:
    client.commit("store", 1, {b"k": b"1"}, commit_id="one")
    client.commit("store", 2, {b"k": b"2"}, base="one", commit_id="two")
    assert client.commit("store", 2, {b"k": b"2"}, base="one", commit_id="two") == "two"
    assert client.commit("store", 1, {b"k": b"1"}, commit_id="one") == "one"
    assert len(client.history("store").commits) == 2
    assert client.stats()["commits_repeated"] == 2


def test_another_commit_under_the_same_id_is_an_error(client: SidecarClient) -> None:
    client.commit("store", 1, {}, commit_id="one")
    client.commit("store", 2, {}, commit_id="two")
    client.commit("store", 3, {}, base="two", commit_id="three")
    with pytest.raises(ConfigError, match="taken"):
        client.commit("store", 4, {}, base="two", commit_id="three")
    with pytest.raises(ConfigError, match="taken"):
        client.commit("store", 3, {}, base="one", commit_id="three")
    assert client.stats()["commits"] == 3


def test_attempts_at_the_first_version_are_repeated_like_others(client: SidecarClient) -> None:
    for _ in range(2):
        client.commit("store", 1, {b"k": b"winner"}, base=EMPTY, commit_id="winner")
        client.commit("store", 1, {b"k": b"loser"}, base=EMPTY, commit_id="loser")
    assert dict(client.scan("store", commit_id="loser")) == {b"k": b"loser"}
    assert dict(client.scan("store")) == {b"k": b"winner"}
    with pytest.raises(ConfigError, match="taken"):
        client.commit("store", 1, {}, base="winner", commit_id="loser")


def test_a_repeated_commit_is_known_also_after_a_truncation(client: SidecarClient) -> None:
    client.commit("store", 1, {b"k": b"1"}, commit_id="one")
    client.commit("store", 2, {b"k": b"2"}, base="one", commit_id="two")
    client.commit("store", 3, {b"k": b"3"}, base="two", commit_id="three")
    client.truncate("store", 2)
    assert client.commit("store", 2, {b"k": b"2"}, base="one", commit_id="two") == "two"
    with pytest.raises(VersionNotFoundError):
        client.commit("store", 1, {b"k": b"1"}, commit_id="one")


def test_a_repeat_waits_for_the_first_attempt(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The log shows a commit before its sync ends: whoever repeats must not be told so early."""
    backend: Any = ckpt.open_backend(f"log://{tmp_path}/log")
    client = connect(start(backend))
    syncing, go_on = threading.Event(), threading.Event()
    sync = backend._engine.storage.sync

    def slow_sync() -> None:
        syncing.set()
        assert go_on.wait(20)
        sync()

    monkeypatch.setattr(backend._engine.storage, "sync", slow_sync)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(client.commit, "store", 1, {b"k": b"v"}, commit_id="one")
        assert syncing.wait(20)
        again = pool.submit(client.commit, "store", 1, {b"k": b"v"}, commit_id="one")
        while client.stats()["connections_open"] < 3:
            pass
        assert len(backend.versions("store")) == 1
        assert not again.done()
        go_on.set()
        assert first.result(20) == again.result(20) == "one"
    assert client.stats()["commits_repeated"] == 1


def test_a_client_goes_on_when_its_sidecar_was_replaced(folder: Path, connect: Connect) -> None:
    name = str(folder / "sidecar.sock")
    backend = f"log://{folder}/log"
    with Sidecar(ckpt.open_backend(backend), UnixListener(name)):
        client = connect(name)
        client.commit("store", 1, {b"k": b"1"}, commit_id="one")
    with pytest.raises(BackendUnavailableError, match="ckpt serve"):
        client.ping()
    with Sidecar(ckpt.open_backend(backend), UnixListener(name)):
        assert client.commit("store", 1, {b"k": b"1"}, commit_id="one") == "one"
        assert client.stats()["commits_repeated"] == 1
    with Sidecar(ckpt.open_backend(backend), UnixListener(name)):
        client.commit("store", 2, {b"k": b"2"})
        assert dict(client.scan("store")) == {b"k": b"2"}


def test_a_lost_answer_is_fetched_by_repeating(start: Start, connect: Connect) -> None:
    backend = ckpt.open_backend("memory://")
    sidecar = start(backend)
    client = connect(sidecar)
    client.ping()
    commit, cut = backend.commit, []

    def commit_and_cut(*args: Any, **kwargs: Any) -> Any:
        done = commit(*args, **kwargs)
        if not cut:
            cut.append(True)
            for session in list(sidecar._sessions):
                session.wire.close()
        return done

    backend.commit = commit_and_cut
    assert client.commit("store", 1, {b"k": b"v"}, commit_id="one") == "one"
    assert cut
    assert client.stats()["commits_repeated"] == 1


def test_many_threads_share_a_client(client: SidecarClient) -> None:
    def work(number: int) -> None:
        for version in range(1, 11):
            client.commit(f"store-{number}", version, {b"v": b"%d" % version})
        assert dict(client.scan(f"store-{number}")) == {b"v": b"10"}

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert client.stats()["commits"] == 80


def test_other_requests_are_answered_in_the_middle_of_a_load(client: SidecarClient) -> None:
    rows = {b"%06d" % n: b"v" * 100 for n in range(5000)}
    client.commit("store", 1, rows)
    scan = client.scan("store", block_bytes=4096)
    seen = dict([next(scan)])
    client.commit("store", 2, {}, list(rows))
    client.truncate("store", 2)
    assert list(client.scan("store")) == []
    seen.update(scan)
    assert seen == rows


def test_a_load_that_is_left_frees_its_connection(client: SidecarClient) -> None:
    client.commit("store", 1, {b"%06d" % n: b"v" * 1000 for n in range(5000)})
    for _ in range(3):
        next(client.scan("store", block_bytes=4096))
    client.ping()
    while client.stats()["connections_open"] > 1:
        pass


def test_a_closed_client_says_so(client: SidecarClient) -> None:
    client.ping()
    client.close()
    client.close()
    with pytest.raises(BackendUnavailableError, match="closed"):
        client.ping()


@pytest.mark.parametrize("name", ["nonsense", "host:port", ":7", "host:"])
def test_a_name_that_leads_nowhere_is_a_mistake(name: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        SidecarClient(name).ping()
