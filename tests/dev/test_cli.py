"""`ckpt dev`: servers that outlive the command, are found again, and are started again on their data."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from ckpt.dev import fleet, processes
from ckpt.dev.state import ServerState

Run = Callable[..., Result]
Ask = Callable[..., bytes]


def ckpt_dev(*args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ckpt", "dev", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def status(run: Run) -> dict[str, dict[str, object]]:
    return json.loads(run("status", "--json").stdout)


@pytest.mark.usefixtures("own_cache")
class TestRoundTrip:
    def test_up_status_down(self, run: Run, require: Callable[..., None]) -> None:
        require("redis", "s3")
        up = ckpt_dev("up", "redis", "s3")
        printed, progress = up.communicate(timeout=300)
        assert up.returncode == 0, progress
        addresses = dict(line.split() for line in printed.splitlines()[1:])
        assert re.fullmatch(r"redis://127\.0\.0\.1:\d+/0", addresses["redis"])
        assert re.fullmatch(
            r"fsspec\+s3://ckpt/dev\?.*fs\.endpoint_url=http://127\.0\.0\.1:\d+", addresses["s3"]
        )
        assert "s3: waiting until it answers" in progress.splitlines()

        running = status(run)
        assert {name: one["address"] for name, one in running.items()} == addresses
        assert all(len(one["pids"]) == 1 for one in running.values())
        assert addresses["redis"] in run("status").stdout

        assert run("down", "redis").stdout == "redis stopped\n"
        assert list(status(run)) == ["s3"]
        assert run("down").stdout.splitlines() == [
            "redis does not run",
            "hbase does not run",
            "cassandra does not run",
            "s3 stopped",
        ]
        assert status(run) == {}

    def test_up_again_says_so_and_changes_nothing(self, run: Run, require: Callable[..., None]) -> None:
        require("redis")
        first = run("up", "redis")
        before = status(run)
        second = run("up", "redis")
        assert "redis: runs already" in second.stderr.splitlines()
        assert second.stdout == first.stdout
        assert status(run) == before

    @pytest.mark.parametrize("ended_by", ["kill -9", "down"])
    def test_started_again_on_its_data(
        self, run: Run, ask: Ask, require: Callable[..., None], ended_by: str
    ) -> None:
        require("redis")
        run("up", "redis")
        before = status(run)["redis"]
        redis = fleet.shared("redis")
        assert ask(redis, "SET", "k", "kept") == b"+OK\r\n"
        if ended_by == "down":
            run("down", "redis")
        else:
            os.kill(redis.pids["redis"], signal.SIGKILL)
            ServerState.load(redis.folder).processes["redis"].wait(60)
        assert status(run) == {}
        run("up", "redis")
        after = status(run)["redis"]
        assert after["address"] == before["address"]
        assert after["pids"] != before["pids"]
        assert ask(redis, "GET", "k") == b"$4\r\nkept\r\n"

    def test_wipe_removes_the_data(self, run: Run, ask: Ask, require: Callable[..., None]) -> None:
        require("redis")
        run("up", "redis")
        redis = fleet.shared("redis")
        ask(redis, "SET", "k", "v")
        assert run("down", "redis", "--wipe").stdout == "redis stopped, data removed\n"
        assert not os.path.exists(redis.folder)
        run("up", "redis")
        assert ask(redis, "GET", "k") == b"$-1\r\n"

    def test_two_that_start_it_at_once_share_one(self, run: Run, require: Callable[..., None]) -> None:
        require("redis")
        both = [ckpt_dev("up", "redis") for _ in range(2)]
        printed = {up.communicate(timeout=120)[0] for up in both}
        assert [up.returncode for up in both] == [0, 0]
        assert len(printed) == 1
        assert status(run)["redis"]["address"] in printed.pop()

    def test_a_port_that_somebody_else_took_is_left_to_them(
        self, run: Run, require: Callable[..., None]
    ) -> None:
        require("redis")
        run("up", "redis")
        redis = fleet.shared("redis")
        port = redis.port
        run("down", "redis")
        with socket.create_server((redis.host, port)):
            run("up", "redis")
            assert redis.port != port


def test_nothing_runs_in_an_empty_cache(empty_cache: Path, run: Run) -> None:
    assert run("status", "--json").stdout == "{}\n"
    assert [line.split()[0] for line in run("status").stdout.splitlines()] == [
        "server",
        "redis",
        "hbase",
        "cassandra",
        "s3",
    ]
    assert not empty_cache.exists()


def test_a_number_that_belongs_to_another_process_now_is_not_running(
    own_cache: Path, run: Run, tmp_path: Path
) -> None:
    """The state says that Redis has the number of a process that is not Redis."""
    other = processes.spawn(
        ["sleep", "3600"], folder=str(tmp_path), log=str(tmp_path / "log"), environment={}
    )
    redis = fleet.shared("redis")
    os.makedirs(redis.folder)
    recycled = processes.Process(other.pid, other.started_ticks - 1, other.boot)
    ServerState(ports={"port": 1}, processes={"redis": recycled}).save(redis.folder)
    assert status(run) == {}
    assert run("down", "redis").stdout == "redis does not run\n"
    assert other.alive
    processes.kill([other])


@pytest.mark.parametrize("content", ["", "not json", '{"ports": 7}', "[]"])
def test_a_state_that_cannot_be_read_is_no_server(own_cache: Path, run: Run, content: str) -> None:
    redis = fleet.shared("redis")
    os.makedirs(redis.folder)
    Path(redis.folder, "server.json").write_text(content)
    assert status(run) == {}


class TestFailures:
    @pytest.fixture
    def programs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        """A PATH with nothing but the programs that a test writes, in sh."""
        folder = tmp_path / "bin"
        folder.mkdir()
        monkeypatch.setenv("PATH", str(folder))

        def write(name: str, script: str) -> None:
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)

        return write

    def test_a_missing_tool_is_one_line_with_the_command(
        self, empty_cache: Path, run: Run, programs: Callable[..., None]
    ) -> None:
        assert run("up", "redis", code=2).stderr.splitlines()[-1] == (
            "ckpt: redis-server is missing; install it: sudo apt-get install redis-server "
            "(or: ckpt dev install redis)"
        )

    def test_a_java_that_does_not_fit_is_named(
        self,
        empty_cache: Path,
        run: Run,
        programs: Callable[..., None],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.only_java(tmp_path, "1.8.0_412", monkeypatch)
        last = run("up", "s3", code=2).stderr.splitlines()[-1]
        assert "s3 needs Java 17 or later, but" in last
        assert "is Java 8" in last
        assert "sudo apt-get install openjdk-17-jre-headless" in last

    def test_no_maven_is_named(
        self,
        empty_cache: Path,
        run: Run,
        programs: Callable[..., None],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.only_java(tmp_path, "17.0.15", monkeypatch)
        for name in ("s3", "cassandra", "hbase"):
            assert "sudo apt-get install maven" in run("up", name, code=2).stderr.splitlines()[-1]

    def only_java(self, folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "jdk" / "bin").mkdir(parents=True)
        (folder / "jdk" / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
        java = folder / "jdk" / "bin" / "java"
        java.touch(0o755)
        monkeypatch.setenv("JAVA_HOME", str(folder / "jdk"))
        monkeypatch.setattr("ckpt.dev.tools.SYSTEM_JAVAS", str(folder / "none"))

    def test_dead_at_its_start_is_one_line_with_the_reason_and_the_log(
        self, empty_cache: Path, run: Run, programs: Callable[..., None]
    ) -> None:
        programs("redis-server", "echo 'Fatal error: no luck today'; echo 'Bye bye.'; exit 1")
        failed = run("up", "redis", code=3)
        log = empty_cache / "servers" / "redis" / "redis.log"
        assert failed.stderr.splitlines()[-1] == (
            f"ckpt: redis (redis) ended at its start: Fatal error: no luck today; see {log}"
        )
        assert failed.stdout == ""
        assert status(run) == {}

    def test_each_failure_is_told_and_what_works_is_there(
        self, own_cache: Path, run: Run, monkeypatch: pytest.MonkeyPatch, require: Callable[..., None]
    ) -> None:
        require("redis")
        monkeypatch.setattr("ckpt.dev.s3.S3Server.least_java", 999)
        result = run("up", "redis", "s3", code=2)
        assert "s3 needs Java 999" in result.stderr.splitlines()[-1]
        assert result.stdout.splitlines()[1].startswith("redis ")

    def test_an_unknown_server_is_answered_with_the_nearest(self, run: Run) -> None:
        assert "did you mean 'redis'?" in run("up", "rediss", code=2).stderr
