"""The indexed log: the contract, with ordinary segments and with tiny ones that make every test collect."""

from __future__ import annotations

from pathlib import Path

import pytest

import ckpt
from ckpt.contract.backend import Backend
from ckpt.testing import BackendConformance, backend_machine
from ckpt_backends.engine import hashing, reading
from ckpt_backends.engine.manifest import decode_manifest, encode_manifest
from ckpt_backends.log import LogBackend
from tests.effort import effort

TINY = "segment_bytes=16KiB&recent_records=50"


class TestLog(BackendConformance):
    scheme = "log"
    reopens = True

    def open_backend(self) -> Backend:
        return ckpt.open_backend(f"log://{self.directory}/log", clock=self.clock)

    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestTinyLog(TestLog):
    def open_backend(self) -> Backend:
        return ckpt.open_backend(f"log://{self.directory}/log?{TINY}", clock=self.clock)


class TestTinyLogWithoutItsCompiledHalf(TestTinyLog):
    @pytest.fixture(autouse=True)
    def _pure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (hashing, reading):
            monkeypatch.setattr(module, "native", None)


class TestLogMachine(
    backend_machine(
        lambda directory: ckpt.open_backend(f"log://{directory}/log"), max_examples=effort(12, 300)
    )
):
    pass


class TestTinyLogMachine(
    backend_machine(
        lambda directory: ckpt.open_backend(f"log://{directory}/log?segment_bytes=16KiB&recent_records=5"),
        max_examples=effort(15, 300),
    )
):
    pass


def test_an_address_with_special_characters_opens_the_same_log_again(tmp_path: Path) -> None:
    with LogBackend(f"{tmp_path}/a?b%20c d") as log:
        log.put_many("words", {b"be": b"2"})
        address = log.address
    with ckpt.open_backend(address) as again:
        assert again.get_many("words", [b"be"]) == {b"be": b"2"}


def test_a_manifest_of_another_shape_only_means_replay(tmp_path: Path) -> None:
    path = f"{tmp_path}/log"
    with LogBackend(path) as log:
        log.put_many("words", {b"be": b"2"})
    with open(f"{path}/MANIFEST", "rb") as file:
        manifest, _ = decode_manifest(file.read())
    manifest.catalog = {"namespaces": [{"unknown": 1}]}
    with open(f"{path}/MANIFEST", "wb") as file:
        file.write(encode_manifest(manifest))
    with LogBackend(path) as again:
        assert again.get_many("words", [b"be"]) == {b"be": b"2"}
