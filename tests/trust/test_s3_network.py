"""S3 behind a network that misbehaves: every call ends, nothing is there by halves, work goes on."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading

import pytest

from ckpt.contract.addresses import parse_address
from ckpt.contract.backend import Backend
from ckpt.contract.registry import open_backend
from ckpt.testing import NetworkConformance, server_address
from ckpt.testing.outcomes import PATIENT_S
from ckpt_backends.objects.backend import FsspecBackend

UPLOAD = """
import sys
import ckpt

with ckpt.open_backend(sys.argv[1]) as backend:
    backend.put_many("words", {b"be": b"small"})
    print("ready", flush=True)
    sys.stdin.readline()
    backend.put_many("words", {b"be": b"late", b"big": bytes(int(sys.argv[2]))})
"""


def segments(backend: Backend) -> dict[str, int]:
    """The size of each segment in the store, by its name."""
    assert isinstance(backend, FsspecBackend)
    return dict(backend._requests.list("segments"))


def unfinished_uploads(backend: Backend, address: str) -> int:
    assert isinstance(backend, FsspecBackend)
    bucket, _, path = parse_address(address).location.partition("/")
    answer = backend._requests._driver._fs.call_s3("list_multipart_uploads", Bucket=bucket)
    return sum(one["Key"].startswith(path) for one in answer.get("Uploads", ()))


class TestS3Network(NetworkConformance):
    timeout_s, retry_s = 0.7, 0.3

    @pytest.fixture
    def address(self) -> str:
        base, _, query = server_address("s3").partition("?")
        return f"{base}/network-{secrets.token_hex(6)}?{query}"

    @pytest.mark.parametrize("sent_bytes", [100, 3_000, 150_000, 299_000])
    def test_an_upload_that_is_cut_is_done_again_as_if_it_had_never_begun(self, sent_bytes: int) -> None:
        backend = self.through(retry_s=PATIENT_S)
        backend.put_many("words", {b"be": b"1"})
        for number in range(3):
            before = self.proxy.connections
            self.proxy.cut_after(sent_bytes + number, "to_server")
            backend.put_many("words", {b"be": b"%d" % number, b"big": secrets.token_bytes(300_000)})
            assert self.proxy.connections > before
            # Had the first attempt left anything under that number, there would be one more.
            assert len(segments(self.direct)) == number + 2
            assert dict(self.direct.scan("words")) == dict(backend.scan("words"))
        assert list(self.direct.verify()) == []

    def test_a_process_killed_in_the_middle_of_an_upload_leaves_nothing_visible(
        self, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of 150 MB, so in parts."""
        command = [sys.executable, "-c", UPLOAD, f"{self.proxied}&timeout_s=60", str(150_000_000)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdin is not None
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            self.proxy.delay(0.2)  # so that it is under way for longer than it takes to be killed
            self.proxy.cut_after(1 << 30, "to_server")  # which counts what passes
            writer.stdin.write("go\n")
            writer.stdin.flush()
            while self.proxy._allowed_bytes["to_server"] > (1 << 30) - 10_000_000:
                assert writer.poll() is None
                threading.Event().wait(0.001)
            writer.kill()
        self.proxy.restore()
        # The batch is larger than an object may be. Its beginning is there, and nobody sees it.
        leftover = max(segments(self.direct))
        assert segments(self.direct)[leftover] < 1000
        assert dict(self.direct.scan("words")) == {b"be": b"small"}
        assert unfinished_uploads(self.direct, address) == 1
        self.direct.put_many("words", {b"be": b"after"})
        assert dict(self.direct.scan("words")) == {b"be": b"after"}
        assert list(self.direct.verify()) == []
        with open_backend(address, grace_s=0) as again:
            assert isinstance(again, FsspecBackend)
            again.compact()
            assert leftover not in segments(again)
            assert unfinished_uploads(again, address) == 1  # for all one knows, somebody is working on it
            monkeypatch.setattr("ckpt_backends.objects.s3._LEFTOVER_AGE_S", -60)
            again.compact()
            assert unfinished_uploads(again, address) == 0
            assert dict(again.scan("words")) == {b"be": b"after"}
