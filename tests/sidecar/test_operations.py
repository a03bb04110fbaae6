"""Through the sidecar a backend behaves as if it were here: the same answers, the same exceptions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ckpt
from ckpt.errors import (
    BackendUnavailableError,
    CkptError,
    ConfigError,
    CorruptRecordError,
    FencedError,
    UnsupportedError,
    VersionNotFoundError,
)
from ckpt.sidecar import Sidecar, SidecarClient, UnixListener
from ckpt.testing.harness import numbered
from ckpt.testing.servers import server_address
from ckpt_backends.memory import MemoryBackend

Start, Connect = Callable[..., Sidecar], Callable[..., SidecarClient]


@pytest.fixture(params=["memory", "log", "file", "fsspec", "redis"])
def served(
    request: pytest.FixtureRequest, tmp_path: Path, start: Start, connect: Connect
) -> Iterator[SidecarClient]:
    """A client of a sidecar over each embedded backend, and over a server."""
    address = {
        "memory": "memory://",
        "log": f"log://{tmp_path}/log",
        "file": f"file://{tmp_path}/file",
        "fsspec": f"fsspec+file://{tmp_path}/objects",
    }
    if request.param == "redis":
        backend = ckpt.open_backend(server_address("redis"), prefix=f"sidecar-{uuid.uuid4().hex}")
    else:
        backend = ckpt.open_backend(address[request.param])
    client = connect(start(backend))
    yield client
    for name in client.namespaces():
        client.drop(name)


def test_a_repeated_commit_is_done_once(served: SidecarClient) -> None:
    served.commit("store", 1, {b"k": b"1"}, commit_id="one")
    served.commit("store", 2, {b"k": b"2"}, base="one", commit_id="two")
    assert served.commit("store", 2, {b"k": b"2"}, base="one", commit_id="two") == "two"
    assert len(served.history("store").commits) == 2
    with pytest.raises(ConfigError):
        served.commit("store", 3, {}, base="one", commit_id="two")


def test_versions_are_committed_and_read(served: SidecarClient) -> None:
    first = served.commit("store", 1, {b"a": b"1", b"b": b"1"})
    second = served.commit("store", 2, {b"a": b"2", b"": b""}, [b"b", b"missing"], base=first)
    assert dict(served.scan("store")) == {b"a": b"2", b"": b""}
    assert dict(served.scan("store", version=1)) == {b"a": b"1", b"b": b"1"}
    assert list(served.scan("store", version=0)) == []
    assert served.get_many("store", [b"a", b"b", b"c"]) == {b"a": b"2"}
    assert served.get_many("store", [b"a", b"b"], version=1) == {b"a": b"1", b"b": b"1"}
    assert served.get_many("store", [b"b"], commit_id=first) == {b"b": b"1"}
    assert first != second


def test_a_second_attempt_is_read_by_its_id(served: SidecarClient) -> None:
    base = served.commit("store", 1, {b"k": b"1"}, commit_id="one")
    served.commit("store", 2, {b"k": b"winner"}, base=base, commit_id="winner")
    served.commit("store", 2, {b"k": b"loser"}, base=base, commit_id="loser")
    assert dict(served.scan("store", commit_id="loser")) == {b"k": b"loser"}
    assert dict(served.scan("store")) == {b"k": b"winner"}
    commits, tip = served.history("store")
    assert [(c.id, c.version, c.base) for c in commits] == [
        ("one", 1, None),
        ("winner", 2, "one"),
        ("loser", 2, "one"),
    ]
    assert tip == "winner"


def test_truncate_drop_and_names(served: SidecarClient) -> None:
    for version in (1, 2, 3):
        served.commit("app/store", version, {b"v": b"%d" % version, b"%d" % version: b""})
    served.commit("other", 1, {b"k": b"v"})
    served.truncate("app/store", 3)
    assert dict(served.scan("app/store")) == {b"v": b"3", b"1": b"", b"2": b"", b"3": b""}
    with pytest.raises(VersionNotFoundError, match="truncated"):
        list(served.scan("app/store", version=2))
    assert [c.version for c in served.history("app/store").commits] == [3]
    assert served.namespaces() == ["app/store", "other"]
    assert served.namespaces("app/") == ["app/store"]
    served.drop("app/store")
    served.drop("app/store")
    assert served.namespaces() == ["other"]
    assert served.history("app/store") == ([], None)


def test_an_unknown_namespace_is_empty(served: SidecarClient) -> None:
    assert list(served.scan("nothing")) == []
    assert served.get_many("nothing", [b"k"]) == {}
    assert served.history("nothing") == ([], None)
    with pytest.raises(VersionNotFoundError):
        list(served.scan("nothing", version=1))


def test_mistakes_are_told_and_the_connection_goes_on(served: SidecarClient) -> None:
    served.commit("store", 1, {b"k": b"v"}, commit_id="one")
    with pytest.raises(ConfigError, match="namespace"):
        served.commit("", 2, {b"k": b"v"})
    with pytest.raises(ConfigError, match="namespace"):
        served.commit("n" * 2000, 2, {b"k": b"v"})
    with pytest.raises(ConfigError, match="version"):
        served.commit("store", 0, {})
    with pytest.raises(ConfigError, match="both put and deleted"):
        served.commit("store", 2, {b"k": b"v"}, [b"k"])
    with pytest.raises(VersionNotFoundError, match="'nobody'"):
        served.commit("store", 2, {}, base="nobody")
    with pytest.raises(VersionNotFoundError):
        served.get_many("store", [b"k"], version=9)
    with pytest.raises(VersionNotFoundError):
        served.truncate("store", 9)
    assert dict(served.scan("store")) == {b"k": b"v"}
    assert served.stats()["connections"] == 1


def test_a_load_comes_in_parts_of_the_size_that_was_asked_for(served: SidecarClient) -> None:
    rows = numbered(3000, b"v" * 30)
    served.commit("store", 1, rows)
    blocks = list(served.scan_blocks("store", block_bytes=1 << 14))
    assert len(blocks) > 5
    assert all(block.total_bytes + 8 * len(block) <= 1 << 14 for block in blocks)
    assert {k: v for block in blocks for k, v in block.rows()} == rows


@given(
    commits=st.lists(
        st.tuples(
            st.dictionaries(st.binary(max_size=3), st.binary(max_size=30), max_size=6),
            st.sets(st.binary(max_size=3), max_size=3),
            st.booleans(),
        ),
        max_size=6,
    )
)
@settings(deadline=None, max_examples=30)
def test_a_sidecar_is_its_backend(
    tmp_path_factory: pytest.TempPathFactory, commits: list[tuple[dict[bytes, bytes], set[bytes], bool]]
) -> None:
    name = tmp_path_factory.mktemp("s") / "s"
    with (
        MemoryBackend() as here,
        Sidecar(MemoryBackend(), UnixListener(str(name))) as sidecar,
        SidecarClient(sidecar.name) as there,
    ):
        ids: list[str] = []
        for number, (puts, deletes, branch) in enumerate(commits, 1):
            gone = deletes - puts.keys()
            version, base = (number, ids[-1]) if branch and ids else (max(number - 1, 1), None)
            commit_id = f"id-{number}"
            try:
                here.commit("store", version, puts, gone, base=base, commit_id=commit_id)
            except CkptError as error:
                with pytest.raises(type(error)):
                    there.commit("store", version, puts, gone, base=base, commit_id=commit_id)
            else:
                there.commit("store", version, puts, gone, base=base, commit_id=commit_id)
                ids.append(commit_id)
        history = here.history("store")
        told = there.history("store")
        assert [(c.id, c.version, c.base) for c in told.commits] == [
            (c.id, c.version, c.base) for c in history.commits()
        ]
        for commit in told.commits:
            expected = dict(here.scan("store", commit_id=commit.id))
            assert dict(there.scan("store", commit_id=commit.id)) == expected
            assert there.get_many("store", list(expected), commit_id=commit.id) == expected


@pytest.mark.parametrize(
    "error", [BackendUnavailableError, CorruptRecordError, FencedError, UnsupportedError, ConfigError]
)
def test_exceptions_of_the_backend_arrive(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch, error: type[CkptError]
) -> None:
    backend = ckpt.open_backend("memory://")
    client = connect(start(backend))

    def fail(*_: object, **__: object) -> None:
        raise error("namespace 'store': what to do next")

    for method in ("commit", "scan", "get_many", "truncate", "drop"):
        monkeypatch.setattr(backend, method, fail)
    for ask in (
        lambda: client.commit("store", 1, {}),
        lambda: list(client.scan("store")),
        lambda: client.get_many("store", [b"k"]),
        lambda: client.truncate("store", 1),
        lambda: client.drop("store"),
    ):
        with pytest.raises(error, match="what to do next"):
            ask()
    assert client.stats()["errors"] == 5


def test_an_unforeseen_exception_says_nothing_of_what_it_saw(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backend = ckpt.open_backend("memory://")
    client = connect(start(backend))
    monkeypatch.setattr(backend, "drop", lambda _: {}["a secret value"])
    with pytest.raises(CkptError, match="KeyError in the sidecar") as caught:
        client.drop("store")
    assert "secret" not in str(caught.value)
    assert "nobody foresaw" in caplog.text
    client.ping()


def test_an_error_in_the_middle_of_a_load_ends_it(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = ckpt.open_backend("memory://")
    client = connect(start(backend))
    backend.commit("store", 1, numbered(2000))

    def scan(*_: object, **__: object) -> object:
        yield from numbered(1000).items()
        raise CorruptRecordError("namespace 'store': a record is bad")

    monkeypatch.setattr(backend, "scan", scan)
    rows = client.scan("store", block_bytes=4096)
    with pytest.raises(CorruptRecordError, match="is bad"):
        list(rows)
    client.ping()
    assert client.stats()["connections"] == 1


def test_what_fits_into_no_frame_is_refused_without_harm(start: Start, connect: Connect) -> None:
    backend = ckpt.open_backend("memory://")
    client = connect(start(backend, max_frame_bytes=1 << 14))
    backend.commit("store", 1, {b"small": b"v", b"large": b"v" * (1 << 14)})
    with pytest.raises(ConfigError, match="commit less at once"):
        client.commit("store", 2, {b"k": b"v" * (1 << 14)})
    with pytest.raises(UnsupportedError, match="fits into no frame"):
        list(client.scan("store"))
    with pytest.raises(UnsupportedError, match="fits into no frame"):
        client.get_many("store", [b"large"])
    assert client.get_many("store", [b"small"]) == {b"small": b"v"}
    for number in range(400):
        backend.commit(f"store-{number:04d}-{'x' * 40}", 1, {b"k": b"v"})
    with pytest.raises(UnsupportedError, match="longer prefix"):
        client.namespaces()
    assert len(client.namespaces("store-000")) == 10


def test_numbers_are_counted_and_shown_for_prometheus(start: Start, connect: Connect, tmp_path: Path) -> None:
    client = connect(start(f"log://{tmp_path}/log"))
    client.commit("store", 1, {b"key": b"value"}, [b"gone"])
    list(client.scan("store"))
    client.get_many("store", [b"key", b"none"])
    with client.lifeline():
        stats = client.stats()
    expected = {
        "commits": 1,
        "commit_rows": 2,
        "commit_bytes": 12,
        "loads": 1,
        "load_rows": 1,
        "load_bytes": 8,
        "gets": 1,
        "get_rows": 1,
        "lifelines": 1,
        "connections_open": 2,
        "errors": 0,
    }
    assert expected.items() <= stats.items()
    assert stats["commit_seconds"] > 0
    assert stats["group_size"] == stats["commits"] / stats["backend_durable_writes"]
    text = client.prometheus()
    assert "# TYPE ckpt_sidecar_commits_total counter\nckpt_sidecar_commits_total 1\n" in text
    assert "# TYPE ckpt_sidecar_group_size gauge" in text
    assert "ckpt_sidecar_backend_durable_writes_total" in text
