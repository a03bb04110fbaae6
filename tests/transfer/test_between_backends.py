"""Copy between the embedded backends, and a real process that is killed while it copies."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ckpt
from ckpt.transfer import copy, diff

COPY = """
import sys, ckpt
from ckpt.transfer import copy
with ckpt.open_backend(sys.argv[1], **({"mode": "read"} if sys.argv[1].startswith("log") else {})) as source:
    with ckpt.open_backend(sys.argv[2]) as target:
        copy(source, target, on_progress=lambda p: print(p.copied_keys, p.copied_commits, flush=True))
"""


@pytest.fixture
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with a plain namespace of a few batches and a history with branches and a truncation."""
    options = "" if request.param == "memory" else "?durability=os"
    address = f"{request.param}://{tmp_path}/source{options}"
    with ckpt.open_backend(address) as backend:
        backend.put_many("plain", {b"%05d" % n: bytes([n % 251]) * (n % 40) for n in range(1300)})
        for version in range(1, 9):
            backend.commit(
                "store", version, {b"k": b"%d" % version, b"%d" % version: b"x"}, commit_id=f"v{version}"
            )
        backend.commit("store", 7, {b"k": b"branch"}, base="v6", commit_id="branch")
        backend.truncate("store", 3)
    return address


@pytest.mark.parametrize("filled", ["file", "log", "memory"], indirect=True)
@pytest.mark.parametrize("kind", ["file", "log", "memory"])
def test_any_pair(filled: str, kind: str, tmp_path: Path) -> None:
    options = "" if kind == "memory" else "?durability=os"
    with (
        ckpt.open_backend(filled) as source,
        ckpt.open_backend(f"{kind}://{tmp_path}/target{options}") as target,
    ):
        copy(source, target)
        assert list(diff(source, target)) == []
        assert target.get_many("store", [b"k"], version=5) == {b"k": b"5"}
        with pytest.raises(ckpt.VersionNotFoundError):
            target.get_many("store", [b"k"], version=2)


@pytest.mark.crash
@pytest.mark.parametrize(("filled", "kind"), [("file", "log"), ("log", "file")], indirect=["filled"])
@pytest.mark.parametrize("after", [1, 2, 5, 8])
def test_a_killed_process_is_continued(filled: str, kind: str, after: int, tmp_path: Path) -> None:
    address = f"{kind}://{tmp_path}/target?durability=os"
    with subprocess.Popen([sys.executable, "-c", COPY, filled, address], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        shown = [child.stdout.readline() for _ in range(after)]
        child.send_signal(signal.SIGKILL)
    assert all(shown)
    with ckpt.open_backend(filled) as source, ckpt.open_backend(address) as target:
        copy(source, target)
        assert list(diff(source, target)) == []
