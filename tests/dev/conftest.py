"""A cache of its own for each test, with the jars and tools that the machine's real cache has."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ckpt.cli import main
from ckpt.dev import NAMES, Server, cache, fleet
from ckpt.testing.servers import skipped_if_missing

Ask = Callable[..., bytes]


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache without anything in it; servers that are started in it are gone after the test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CKPT_CACHE", str(folder))
    yield folder
    monkeypatch.setenv("CKPT_CACHE", str(folder))
    for name in NAMES:
        fleet.shared(name).kill()


@pytest.fixture
def own_cache(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without servers."""
    with monkeypatch.context() as real:
        real.delenv("CKPT_CACHE")
        shared = {part: cache.folder(part) for part in ("jars", "tools")}
    empty_cache.mkdir()
    for part, folder in shared.items():
        os.makedirs(folder, exist_ok=True)
        (empty_cache / part).symlink_to(folder)
    return empty_cache


@pytest.fixture
def require() -> Callable[..., None]:
    """Skip the test, or in CI fail it, if these servers cannot be had."""

    def require_servers(*names: str) -> None:
        with skipped_if_missing():
            for name in names:
                fleet.shared(name).prepare()

    return require_servers


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run `ckpt dev …` in this process."""

    def run_command(*args: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["dev", *args], prog_name="ckpt")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return run_command


@pytest.fixture
def ask() -> Ask:
    """Send Redis a command; what it answers."""

    def ask_redis(server: Server, *words: str) -> bytes:
        parts = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        with socket.create_connection((server.host, server.port), timeout=10) as connection:
            connection.sendall(f"*{len(words)}\r\n{parts}".encode())
            return connection.recv(1 << 16)

    return ask_redis
