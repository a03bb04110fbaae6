"""The object store on a real S3 service, through s3fs: the contract, and a model to agree with."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

import ckpt
from ckpt.contract.backend import Backend
from ckpt.dev.s3 import ACCESS_KEY, SECRET_KEY
from ckpt.testing import BackendConformance, backend_machine
from ckpt.testing.servers import server_address
from tests.effort import effort

TINY = "segment_bytes=4KiB&recent_records=50&unindexed_segments=3&small_segments=4&grace_s=0&cache_bytes=8KiB"
RUN = secrets.token_hex(4)
"""The server outlives the tests: each run has a place of its own."""


@pytest.fixture(autouse=True)
def _credentials_are_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the address that a store shows, which is without them, opens it again."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left_in_the_bucket() -> Iterator[None]:
    yield
    import s3fs

    base, _, query = server_address("s3").partition("?")
    arguments: dict[str, Any] = {"key": ACCESS_KEY, "secret": SECRET_KEY, "skip_instance_cache": True}
    arguments["endpoint_url"] = query.partition("fs.endpoint_url=")[2]
    filesystem = s3fs.S3FileSystem(**arguments)
    place = f"{base.removeprefix('fsspec+s3://')}/{RUN}"
    if filesystem.exists(place):
        filesystem.rm(place, recursive=True)


def opened(place: object, options: str = "", **extra: Any) -> Backend:
    base, _, query = server_address("s3").partition("?")
    return ckpt.open_backend(f"{base}/{RUN}/{str(place).strip('/')}?{query}&{options}", **extra)


class TestS3(BackendConformance):
    scheme = "fsspec"

    def open_backend(self) -> Backend:
        return opened(self.directory, clock=self.clock)

    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestTinyS3(TestS3):
    def open_backend(self) -> Backend:
        return opened(self.directory, TINY, clock=self.clock)


class TestS3Machine(
    backend_machine(
        opened,
        max_examples=effort(2, 100),
    )
):
    pass


class TestTinyS3Machine(
    backend_machine(
        lambda directory: opened(directory, TINY),
        max_examples=effort(2, 100),
    )
):
    pass
