"""Readers in other processes while the writer writes, rotates, collects, closes and opens again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ckpt
from ckpt.errors import ConfigError
from ckpt_backends.log import LogBackend, LogOptions

KEYS = [b"key-%02d" % i for i in range(20)]
BUSY = LogOptions(segment_bytes=16 << 10, recent_records=60)

READER = """
import sys
import ckpt

keys = [b"key-%02d" % i for i in range(20)]
newest, rounds, seen = dict.fromkeys(keys, 0), 0, set()
version = 0
with ckpt.open_backend(sys.argv[1], mode="read") as backend:
    print("reading", flush=True)
    while newest[keys[0]] < int(sys.argv[2]):
        found = backend.get_many("words", keys)
        assert found.keys() == newest.keys(), ("missing", newest.keys() - found.keys())
        for key, value in found.items():
            number = int(value.split()[0])
            assert value == b"%d " % number * (1 + number % 97), "wrong"
            assert number >= newest[key], ("back in time", key, number, newest[key])
            newest[key] = number
        scanned = dict(backend.scan("words"))
        assert scanned.keys() == found.keys(), ("scan", found.keys() ^ scanned.keys())
        tip = backend.get_many("store", [b"number", b"again"])
        assert tip[b"number"] == tip[b"again"], "half of a commit"
        assert int(tip[b"number"]) >= version
        version = int(tip[b"number"])
        rounds += 1
        seen.add(newest[keys[0]])
print(rounds, len(seen))
"""


def value(number: int) -> bytes:
    return b"%d " % number * (1 + number % 97)


def write(backend: ckpt.Backend, number: int) -> None:
    some = KEYS[number % 4 :: 4]
    backend.put_many("words", {key: value(number) for key in some})
    if number % 5 == 0:
        text = b"%d" % number
        backend.commit("store", number + 1, {b"number": text, b"again": text}, [b"number %d" % (number - 9)])
        backend.truncate("store", max(1, number - 20))


@pytest.mark.parametrize("readers", [2])
def test_readers_are_never_wrong_and_see_what_is_new(tmp_path: Path, readers: int) -> None:
    path, last = str(tmp_path / "log"), 1200
    with LogBackend(path, BUSY) as backend:
        backend.put_many("words", {key: value(0) for key in KEYS})
        write(backend, 0)
    command = [sys.executable, "-c", READER, f"log://{path}", str(last)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(readers)]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "reading\n"
        number = 0
        while number < last:
            with LogBackend(path, BUSY) as backend:
                for _ in range(150):
                    number += 1
                    write(backend, number)
                backend.compact()
        with LogBackend(path, BUSY) as backend:
            backend.put_many("words", {key: value(last) for key in KEYS})
            for process in started:
                output, _ = process.communicate(timeout=120)
                assert process.returncode == 0, "a reader failed; its error is above"
                rounds, seen = map(int, output.split())
                assert rounds > 1
                assert seen > 1
    finally:
        for process in started:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def test_a_reader_sees_each_write_as_soon_as_it_returned(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with LogBackend(path, BUSY) as backend, LogBackend(path, LogOptions(mode="read")) as reader:
        for number in range(300):
            backend.put_many("words", {b"key": value(number)})
            assert reader.get_many("words", [b"key"]) == {b"key": value(number)}
            if number % 60 == 59:
                backend.compact()


def test_a_reader_follows_a_writer_that_comes_back(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with LogBackend(path, BUSY) as backend:
        backend.put_many("words", {b"key": b"0"})
    with LogBackend(path, LogOptions(mode="read")) as reader:
        for number in range(1, 6):
            with LogBackend(path, BUSY) as backend:
                backend.put_many("words", {b"key": b"%d" % number})
                assert reader.get_many("words", [b"key"]) == {b"key": b"%d" % number}
            assert reader.get_many("words", [b"key"]) == {b"key": b"%d" % number}
        assert list(reader.verify()) == []


def test_a_reader_can_wait_for_a_log_that_is_still_empty(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with LogBackend(path, BUSY) as backend, LogBackend(path, LogOptions(mode="read")) as reader:
        assert reader.namespaces() == []
        backend.put_many("words", {b"key": b"1"})
        assert reader.get_many("words", [b"key"]) == {b"key": b"1"}


def test_a_reader_of_nothing_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no log at"):
        ckpt.open_backend(f"log://{tmp_path}/none?mode=read")
