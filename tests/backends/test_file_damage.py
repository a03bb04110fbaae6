"""Damage to the files of a file store: a read is right or raises; verify names the file, repair moves it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ckpt.contract.backend import Backend
from ckpt.errors import CkptError, CorruptRecordError, VersionNotFoundError
from ckpt_backends.file import names as file_names
from ckpt_backends.file.backend import FileBackend

LONG = b"long" * 50
NAMESPACE = "a name too long to be spelled " * 4
ITEMS = {b"be": b"two", b"": b"empty", LONG: b"long"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A small store with every kind of file."""
    with FileBackend(str(tmp_path)) as backend:
        backend.put_many("words", ITEMS)
        backend.put_many(NAMESPACE, {b"x": b"1"})
        backend.claim("words")
        backend.commit("store", 1, {b"a": b"1", b"b": b"1"}, commit_id="one")
        backend.commit("store", 2, {b"b": b"2", b"c": b"2"}, commit_id="two")
        backend.truncate("store", 2)
        backend.commit("store", 3, {b"c": b"3"}, [b"a"], commit_id="three")
    return tmp_path


STATES = {2: {b"a": b"1", b"b": b"2", b"c": b"2"}, 3: {b"b": b"2", b"c": b"3"}}


def files(store: Path) -> list[Path]:
    return sorted(path for path in store.rglob("*") if path.is_file() and not path.name.endswith("lock"))


def reads(backend: Backend) -> Iterator[tuple[object, object]]:
    """Each thing that can be read, and what it should be; a CkptError is an answer of its own."""
    yield "words", _answer(lambda: dict(backend.scan("words")), ITEMS)
    for key, value in ITEMS.items():
        yield ("words", key), _answer(lambda key=key: backend.get_many("words", [key]), {key: value})
    yield "long name", _answer(lambda: backend.get_many(NAMESPACE, [b"x"]), {b"x": b"1"})
    for version, state in STATES.items():
        yield version, _answer(lambda v=version: dict(backend.scan("store", version=v)), state)
        for key in (b"a", b"b", b"c", b"d"):
            expected = {key: state[key]} if key in state else {}
            yield (
                (version, key),
                _answer(lambda k=key, v=version: backend.get_many("store", [k], version=v), expected),
            )
    yield "list", _answer(backend.namespaces, sorted(["words", "store", NAMESPACE]))
    yield "ids", _answer(lambda: [c.id for c in backend.versions("store")], ["two", "three"])


def _answer(read: object, expected: object) -> str:
    try:
        return "right" if read() == expected else "WRONG"
    except CorruptRecordError:
        return "corrupt"
    except VersionNotFoundError:
        return "GONE"


def test_every_flipped_byte_is_noticed_and_never_read(store: Path) -> None:
    total = 0
    for path in files(store):
        data = path.read_bytes()
        for offset in range(len(data)):
            flipped = bytearray(data)
            flipped[offset] ^= 1 << (offset % 8)
            path.write_bytes(flipped)
            total += 1
            where = f"byte {offset} of {path.relative_to(store)}"
            try:
                with FileBackend(str(store)) as backend:
                    answers = dict(reads(backend))
                    assert set(answers.values()) <= {"right", "corrupt"}, f"{where}: {answers}"
                    bad = list(backend.verify())
                    assert bad, f"{where} was not noticed by verify"
                    assert any(path.name in record.place or record.place in str(path) for record in bad), (
                        where
                    )
                    if path.parent.name == "keys" and path.parent.parent.name.startswith("k"):
                        hit = {key for key in ITEMS if answers["words", key] == "corrupt"}
                        assert len(hit) == 1, f"{where} hit {hit}"
            except CorruptRecordError:
                assert path.name == "ckpt-file", where
        path.write_bytes(data)
    assert total > 1000


def test_every_truncated_file_is_noticed(store: Path) -> None:
    for path in files(store):
        data = path.read_bytes()
        for length in {0, 1, len(data) // 2, len(data) - 1}:
            path.write_bytes(data[:length])
            try:
                with FileBackend(str(store)) as backend:
                    assert set(dict(reads(backend)).values()) <= {"right", "corrupt"}, path
                    assert list(backend.verify()), path
            except CorruptRecordError:
                assert path.name == "ckpt-file"
        path.write_bytes(data + b"\0")
        try:
            with FileBackend(str(store)) as backend:
                assert set(dict(reads(backend)).values()) <= {"right", "corrupt"}, path
                assert list(backend.verify()), path
        except CorruptRecordError:
            assert path.name == "ckpt-file"
        path.write_bytes(data)


def test_after_repair_the_store_verifies_and_nothing_was_destroyed(store: Path) -> None:
    """For one byte of each file: after a repair, namespaces that it does not belong to are whole."""
    for path in files(store):
        if path.name == "ckpt-file":
            continue
        data = path.read_bytes()
        flipped = bytearray(data)
        flipped[len(data) // 2] ^= 0xFF
        everything = {p: p.read_bytes() for p in files(store)}
        path.write_bytes(flipped)
        with FileBackend(str(store)) as backend:
            report = backend.repair()
            assert report.quarantined, path
            assert report.quarantine is not None
            assert list(backend.verify()) == [], path
            answers = dict(reads(backend))
            if path.is_relative_to(store / "spaces" / file_names.file_name(b"store")):
                unhurt = ["words", "long name", *(("words", key) for key in ITEMS)]
            else:
                unhurt = [*STATES, "ids"]
            assert {answers[name] for name in unhurt} == {"right"}, path
            backend.put_many("more", {b"x": b"1"})
            backend.drop("more")
            quarantined = [p for p in Path(report.quarantine).rglob("*") if p.is_file()]
            assert bytes(flipped) in [p.read_bytes() for p in quarantined]
        for p in files(store):
            p.unlink()
        for p, content in everything.items():
            p.parent.mkdir(parents=True, exist_ok=True)
            p.write_bytes(content)


def test_repairing_a_damaged_commit_goes_back_to_the_last_whole_one(tmp_path: Path) -> None:
    with FileBackend(str(tmp_path)) as backend:
        for version in range(1, 5):
            backend.commit("store", version, {b"v": b"%d" % version}, commit_id=f"c{version}")
        third = sorted((tmp_path / "spaces").rglob("*.commit"))[2]
        third.write_bytes(third.read_bytes()[:-1])
    with FileBackend(str(tmp_path)) as backend:
        with pytest.raises(CorruptRecordError, match=third.name):
            backend.scan("store")
        report = backend.repair()
        assert len(report.quarantined) == 2
        assert "builds on commit c3" in str(report.quarantined[1])
        assert [c.id for c in backend.versions("store")] == ["c1", "c2"]
        assert dict(backend.scan("store")) == {b"v": b"2"}
        backend.commit("store", 3, {b"v": b"again"})
        assert dict(backend.scan("store")) == {b"v": b"again"}
        assert list(backend.verify()) == []


def test_a_removed_commit_file_is_not_an_empty_commit(tmp_path: Path) -> None:
    with FileBackend(str(tmp_path)) as backend:
        backend.commit("store", 1, {b"a": b"1"})
        backend.commit("store", 2, {b"b": b"2"})
    min((tmp_path / "spaces").rglob("*.commit")).unlink()
    with FileBackend(str(tmp_path)) as backend:
        with pytest.raises(CorruptRecordError, match="missing"):
            backend.get_many("store", [b"a"])
        assert len(list(backend.verify())) == 1


def test_a_removed_key_file_is_a_missing_key(store: Path) -> None:
    (store / "spaces" / file_names.file_name(b"words") / "keys" / file_names.file_name(b"be")).unlink()
    with FileBackend(str(store)) as backend:
        assert backend.get_many("words", [b"be"]) == {}
        assert list(backend.verify()) == []


def test_a_file_under_another_keys_name_is_corrupt(store: Path) -> None:
    keys = store / "spaces" / file_names.file_name(b"words") / "keys"
    os.rename(keys / file_names.file_name(b"be"), keys / file_names.file_name(b"or"))
    with FileBackend(str(store)) as backend:
        assert backend.get_many("words", [b"be"]) == {}
        with pytest.raises(CorruptRecordError, match="it holds the key b'be'"):
            backend.get_many("words", [b"or"])


def test_two_keys_of_one_hash_never_overwrite_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Same:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def hexdigest(self) -> str:
            return "0" * 64

    monkeypatch.setattr(file_names.hashlib, "blake2b", Same)
    with FileBackend(str(tmp_path)) as backend:
        backend.put_many("words", {LONG: b"first"})
        for refused in (
            lambda: backend.put_many("words", {LONG + b"!": b"second"}),
            lambda: backend.delete_many("words", [LONG + b"!"]),
            lambda: backend.get_many("words", [LONG + b"!"]),
        ):
            with pytest.raises(CorruptRecordError):
                refused()
        assert backend.get_many("words", [LONG]) == {LONG: b"first"}


def test_a_put_mends_a_damaged_key(store: Path) -> None:
    keys = store / "spaces" / file_names.file_name(b"words") / "keys"
    for path in keys.iterdir():
        path.write_bytes(b"garbage")
    with FileBackend(str(store)) as backend:
        with pytest.raises(CkptError):
            backend.get_many("words", [b"be"])
        backend.put_many("words", ITEMS)
        assert dict(backend.scan("words")) == ITEMS
        assert list(backend.verify()) == []


def test_messages_name_path_namespace_and_key_but_no_value(store: Path) -> None:
    path = store / "spaces" / file_names.file_name(b"words") / "keys" / file_names.file_name(b"be")
    path.write_bytes(path.read_bytes().replace(b"two", b"owt"))
    with FileBackend(str(store)) as backend, pytest.raises(CorruptRecordError) as raised:
        backend.get_many("words", [b"be"])
    message = str(raised.value)
    assert str(path) in message
    assert "b'be'" in message
    assert "'words'" in message
    assert "ckpt repair" in message
    assert "two" not in message
    assert "owt" not in message


def test_verify_reports_nothing_while_others_write(tmp_path: Path) -> None:
    over = threading.Event()

    def write() -> None:
        try:
            for version in range(1, 60):
                backend.commit("store", version, {b"v": b"%d" % version})
                backend.truncate("store", version)
                backend.put_many("words", {b"v": b"%d" % version, LONG: b"%d" % version})
                backend.delete_many("words", [b"v"])
        finally:
            over.set()

    with FileBackend(str(tmp_path)) as backend, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not over.is_set():
            assert list(backend.verify()) == []
        writing.result()
