"""The peers keep what they are given, so that what is measured is work done."""

from __future__ import annotations

from pathlib import Path

import pytest

import ckpt
from ckpt.errors import ConfigError, UnsupportedError
from ckpt_bench.compare.behind import PeerBackend
from ckpt_bench.stores import NAMESPACE, STORES, open_store

READABLE = [name for name in STORES if name != "raw-append"]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("name", READABLE)
def test_what_is_put_is_found_again_after_reopening(tmp_path: Path, name: str, durable: bool) -> None:
    folder = str(tmp_path / "a folder" / name)
    Path(folder).parent.mkdir()
    store = open_store(name, folder, durable=durable)
    store.put_many({b"be": b"1", b"or": b"2"})
    store.put_many({b"be": b"3"})
    store.close()
    store = open_store(name, folder, durable=durable)
    assert store.get_many([b"be", b"or", b"not"]) == {b"be": b"3", b"or": b"2"}
    store.put_many({b"or": b"4"})
    store.compact()
    assert store.get_many([b"or"]) == {b"or": b"4"}
    assert sorted(store.scan()) == [(b"be", b"3"), (b"or", b"4")]
    store.close()


def test_the_floor_writes_every_value_and_finds_nothing(tmp_path: Path) -> None:
    store = open_store("raw-append", str(tmp_path), durable=True)
    store.put_many({b"be": b"12", b"or": b"345"})
    store.put_many({b"be": b"6"})
    assert (tmp_path / "raw").read_bytes() == b"123456"
    with pytest.raises(ConfigError, match="cannot find a key again"):
        store.get_many([b"be"])
    with pytest.raises(ConfigError, match="cannot tell one record from another"):
        store.scan()
    store.close()


@pytest.mark.parametrize("name", ["rocksdict", "lmdb", "sqlite3"])
def test_a_peer_behind_a_safekeeper_keeps_states(tmp_path: Path, name: str) -> None:
    def backend() -> PeerBackend:
        return PeerBackend(name, open_store(name, str(tmp_path / name), durable=True))

    with backend() as first, ckpt.SafeKeeper(first) as keeper:
        keeper.namespace(NAMESPACE).save("be", {"count": 2})
    with backend() as second, ckpt.SafeKeeper(second) as keeper:
        assert keeper.namespace(NAMESPACE).load("be") == {"count": 2}
        assert keeper.namespace(NAMESPACE).load("or") is None
        with pytest.raises(UnsupportedError, match=f"peer://{name} takes part in benchmarks"):
            second.commit("store", 1, {b"k": b"v"})
