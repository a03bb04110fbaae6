"""The object store on the memory and the local filesystem: the contract, and a model to agree with."""

from __future__ import annotations

import ckpt
from ckpt.contract.backend import Backend
from ckpt.testing import BackendConformance, backend_machine
from tests.effort import effort

TINY = "segment_bytes=4KiB&recent_records=50&unindexed_segments=3&small_segments=4&grace_s=0&cache_bytes=8KiB"


class TestFsspecMemory(BackendConformance):
    scheme = "fsspec"
    reopens = True

    def open_backend(self) -> Backend:
        return ckpt.open_backend(f"fsspec+memory://{self.directory}", clock=self.clock)

    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestFsspecFile(TestFsspecMemory):
    def open_backend(self) -> Backend:
        return ckpt.open_backend(f"fsspec+file://{self.directory}/objects", clock=self.clock)


class TestTinyFsspecMemory(TestFsspecMemory):
    def open_backend(self) -> Backend:
        return ckpt.open_backend(f"fsspec+memory://{self.directory}?{TINY}", clock=self.clock)


class TestTinyFsspecFile(TestFsspecMemory):
    def open_backend(self) -> Backend:
        return ckpt.open_backend(f"fsspec+file://{self.directory}/objects?{TINY}", clock=self.clock)


class TestFsspecMachine(
    backend_machine(
        lambda directory: ckpt.open_backend(f"fsspec+memory://{directory}"), max_examples=effort(8, 300)
    )
):
    pass


class TestTinyFsspecMachine(
    backend_machine(
        lambda directory: ckpt.open_backend(f"fsspec+memory://{directory}?{TINY}"),
        max_examples=effort(8, 300),
    )
):
    pass


class TestTinyFsspecFileMachine(
    backend_machine(
        lambda directory: ckpt.open_backend(f"fsspec+file://{directory}?{TINY}"), max_examples=effort(4, 300)
    )
):
    pass
