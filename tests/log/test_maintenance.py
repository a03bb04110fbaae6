"""What happens in the background goes on happening, whatever stood in its way once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from ckpt.disk import Disk
from ckpt_backends.log import LogBackend, LogOptions

PATIENCE_S = 60


class _MeagreDisk(Disk):
    """Has no memory for its first index file."""

    def __init__(self) -> None:
        self.refused, self.written = threading.Event(), threading.Event()

    def replace_file(self, path: str, buffers: Sequence[bytes | memoryview], *, durable: bool = True) -> None:
        if not path.endswith(".idx"):
            super().replace_file(path, buffers, durable=durable)
        elif not self.refused.is_set():
            self.refused.set()
            raise MemoryError
        else:
            super().replace_file(path, buffers, durable=durable)
            self.written.set()


def test_a_lack_of_memory_does_not_end_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Else nothing would bound the memory of the index, or the disk space, until the log is opened again."""
    caplog.set_level(logging.WARNING, "ckpt.log")
    disk = _MeagreDisk()
    with LogBackend(f"{tmp_path}/log", LogOptions(recent_records=1), disk=disk) as log:
        log.put_many("words", {b"be": b"1", b"or": b"1"})
        assert disk.refused.wait(PATIENCE_S)
        turn = 1
        while not disk.written.wait(0.01):
            turn += 1
            assert turn < PATIENCE_S * 100, "the index is not written any more"
            log.put_many("words", {b"be": b"%d" % turn, b"or": b"1"})
        assert log.get_many("words", [b"be", b"or"]) == {b"be": b"%d" % turn, b"or": b"1"}
    [told] = [record for record in caplog.records if record.exc_info]
    assert "will be tried again" in told.getMessage()
    assert "MemoryError" in caplog.text
