"""The memory backend: the contract, and what its two kinds of address promise."""

from __future__ import annotations

import pytest

import ckpt
from ckpt.contract.backend import Backend
from ckpt.errors import ConfigError
from ckpt.testing import BackendConformance, backend_machine
from tests.effort import effort


class TestMemory(BackendConformance):
    scheme = "memory"
    reopens = True

    def open_backend(self) -> Backend:
        return ckpt.open_backend(f"memory://{self.directory}", clock=self.clock)

    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)


def test_each_anonymous_store_is_fresh() -> None:
    with ckpt.open_backend("memory://") as one, ckpt.open_backend("memory://") as other:
        one.put_many("words", {b"be": b"1"})
        assert other.namespaces() == []


def test_a_named_store_is_shared_and_outlives_its_handles() -> None:
    with ckpt.open_backend("memory://test-shared") as one, ckpt.open_backend("memory://test-shared") as other:
        one.put_many("words", {b"be": b"1"})
        assert other.get_many("words", [b"be"]) == {b"be": b"1"}
    with ckpt.open_backend("memory://test-shared") as again:
        assert again.get_many("words", [b"be"]) == {b"be": b"1"}
    with ckpt.open_backend("memory://test-other") as other:
        assert other.namespaces() == []


def test_it_has_no_options() -> None:
    with pytest.raises(ConfigError, match="memory has no option 'durability'"):
        ckpt.open_backend("memory://?durability=fsync")


class TestMemoryMachine(
    backend_machine(
        lambda directory: ckpt.open_backend(f"memory://{directory}"), max_examples=effort(30, 300)
    )
):
    pass
