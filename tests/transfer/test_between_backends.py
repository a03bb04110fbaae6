"""Copy from every backend to every other, and a real process that is killed while it copies."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ckpt
from ckpt.contract.backend import Backend
from ckpt.moving.copying import copy, diff
from ckpt.testing.servers import server_address
from tests.effort import PROVING, SEED, sample

COPY = """
import sys, ckpt
from ckpt.moving.copying import copy
with ckpt.open_backend(sys.argv[1], **({"mode": "read"} if sys.argv[1].startswith("log") else {})) as source:
    with ckpt.open_backend(sys.argv[2]) as target:
        copy(source, target, on_progress=lambda p: print(p.copied_keys, p.copied_commits, flush=True))
"""


KINDS = ("memory", "file", "log", "fsspec", "redis", "hbase", "cassandra", "s3")


def targets_of(source_kind: str) -> tuple[str, ...]:
    """Where a store of this kind is copied to: in the gate to one other, each kind from one."""
    first = KINDS.index(source_kind) + 1 + SEED % (len(KINDS) - 1)
    return KINDS if PROVING else (KINDS[first % len(KINDS)],)


def store(kind: str, place: Path) -> str:
    """The address of a store of this kind that no other test has."""
    name = place.as_posix().strip("/").replace("/", "-")
    match kind:
        case "file" | "log":
            return f"{kind}://{place}?durability=os"
        case "memory":
            return f"memory://{name}"
        case "fsspec":
            return f"fsspec+memory://{name}"
        case "redis":
            return f"{server_address('redis')}?prefix={name}"
        case "s3":
            return server_address("s3").replace("/dev?", f"/{name}?")
        case _:
            return server_address(kind)


def fill(backend: Backend, plain: str, versioned: str) -> None:
    """A plain namespace of a few batches and a history with branches and a truncation."""
    backend.put_many(plain, {b"%05d" % n: bytes([n % 251]) * (n % 40) for n in range(1300)})
    for version in range(1, 9):
        backend.commit(
            versioned, version, {b"k": b"%d" % version, b"%d" % version: b"x"}, commit_id=f"v{version}"
        )
    backend.commit(versioned, 7, {b"k": b"branch"}, base="v6", commit_id="branch")
    backend.truncate(versioned, 3)


@pytest.fixture
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of the given kind with something in it."""
    address = store(request.param, tmp_path / "source")
    with ckpt.open_backend(address) as backend:
        fill(backend, "plain", "store")
    return address


@pytest.mark.parametrize("source_kind", KINDS)
def test_from_this_backend_to_every_other(source_kind: str, tmp_path: Path) -> None:
    """Namespaces have names of their own: some servers have one store for all tests."""
    plain, versioned = (f"{word} of {tmp_path}" for word in ("plain", "store"))
    with ckpt.open_backend(store(source_kind, tmp_path / "source")) as source:
        fill(source, plain, versioned)
        for kind in targets_of(source_kind):
            if kind == source_kind and kind in ("hbase", "cassandra"):
                continue  # the same store
            with ckpt.open_backend(store(kind, tmp_path / f"target-{kind}")) as target:
                copy(source, target, namespaces=[plain, versioned])
                assert list(diff(source, target, namespaces=[plain, versioned])) == [], kind
                assert target.get_many(versioned, [b"k"], version=5) == {b"k": b"5"}
                with pytest.raises(ckpt.VersionNotFoundError):
                    target.get_many(versioned, [b"k"], version=2)
                for name in (plain, versioned):
                    target.drop(name)
        for name in (plain, versioned):
            source.drop(name)


@pytest.mark.parametrize(("filled", "kind"), [("file", "log"), ("log", "file")], indirect=["filled"])
@pytest.mark.parametrize("after", sample([1, 2, 5, 8], 2))
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
