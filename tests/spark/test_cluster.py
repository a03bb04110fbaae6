"""On a cluster of two workers, executors that are killed or run twice change nothing about the result."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

import pyspark

import ckpt
from ckpt.spark.rebalancing.placement import misplaced
from tests.effort import PROVING, effort, sample
from tests.spark.small import ARGUMENTS, ENVIRONMENT, JAVA_OPTIONS
from tests.spark.streams import add_file

DRIVER = Path(__file__).with_name("count_words.py")
HOSTS = ("127.0.0.1", "127.0.0.2")
FILES = effort(4, 6)
KILLS = {1: 1, 3: 1, 4: 2} if PROVING else {1: 1, 2: 2}
"""How many executors are killed in which batch."""
PLACED = ["hash", "tables"] if PROVING else ["tables"]
"""By what keys are placed: the tables change with every batch, so executors are killed while state moves."""


class Cluster:
    """A master and two workers that take each other for different hosts."""

    def __init__(self, folder: Path) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        self._folder = folder
        master = self._start("master.Master", "--host", HOSTS[0], "--port", "0", said=r"(spark://\S+)")
        self.url = master
        for number, host in enumerate(HOSTS):
            size = ("-c", "2", "-m", "1g", "--work-dir", str(folder / f"work-{number}"))
            said, runtime = "Successfully registered", folder / f"run-{number}"
            self._start("worker.Worker", "--host", host, *size, master, said=said, runtime=runtime)

    def _start(self, name: str, *arguments: str, said: str, runtime: Path | None = None) -> str:
        spark = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(spark),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            "SPARK_NO_DAEMONIZE": "1",
        }
        if runtime is not None:
            runtime.mkdir(mode=0o700)
            environment["XDG_RUNTIME_DIR"] = str(runtime)
        command = [str(spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--webui-port", "0"]
        process = subprocess.Popen(
            [*command, *arguments],
            env=environment,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._processes.append(process)
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(said, line):
                # A full pipe would stop it.
                self._readers.append(threading.Thread(target=process.stderr.read, daemon=True))
                self._readers[-1].start()
                return found[found.re.groups]
        raise AssertionError(f"{name} did not start:\n{''.join(lines)}")

    def executors(self) -> list[int]:
        """The processes of the workers that run tasks."""
        workers = {process.pid for process in self._processes}
        found = []
        for entry in Path("/proc").iterdir():
            try:
                parent = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
                if parent in workers and b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except (OSError, ValueError, IndexError):
                continue
        return sorted(found)

    def stop(self) -> None:
        for process in self._processes:
            os.killpg(process.pid, signal.SIGTERM)
        for process, reader in zip(self._processes, self._readers, strict=True):
            process.wait()
            reader.join()
            assert process.stderr is not None
            process.stderr.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.stop()


def words_of(file: int) -> list[str]:
    return [f"w{(n * (file + 3)) % 23}" for n in range(60)]


class Job:
    """The driver of one query on the cluster, and its lines."""

    def __init__(
        self,
        folder: Path,
        address: str,
        cluster: Cluster,
        *arguments: str,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._folder = folder
        for name in ("in", "out", "again"):
            (folder / name).mkdir()
        for file in range(FILES):
            add_file(folder / "in", [{"word": word} for word in words_of(file)])
        options = [*ARGUMENTS, "--master", cluster.url, "--conf", "spark.executor.memory=512m"]
        with open(folder / "driver.log", "w") as log:
            self._driver = subprocess.Popen(
                [sys.executable, str(DRIVER), str(folder), address, *options, *arguments],
                env={**os.environ, **ENVIRONMENT, **(environment or {})},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def lines(self) -> Iterator[str]:
        """What it says, until it ends well."""
        assert self._driver.stdout is not None
        try:
            with self._driver, self._driver.stdout:
                yield from map(str.strip, self._driver.stdout)
        finally:
            if self._driver.poll() is None:
                os.killpg(self._driver.pid, signal.SIGKILL)
        assert self._driver.returncode == 0, (self._folder / "driver.log").read_text()[-4000:]

    def newest(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for batch in range(FILES):
            counts |= json.loads((self._folder / "out" / f"{batch}.json").read_text())
        return counts


ALL = Counter(word for file in range(FILES) for word in words_of(file))


def wait_for_commit(address: str, version: int) -> None:
    """Until one partition has committed the version, and perhaps not all of them have."""
    with ckpt.open_backend(address, mode="read") as backend:
        while not any(
            (tip := backend.history(name).tip) is not None and tip.version >= version
            for name in backend.namespaces()
        ):
            pass


@pytest.mark.budget(60)
@pytest.mark.parametrize("sidecars", sample(["one", "each"], 1, "sidecars"))
@pytest.mark.parametrize("placed", PLACED)
def test_killed_executors(cluster: Cluster, tmp_path: Path, sidecars: str, placed: str) -> None:
    if sidecars == "one":
        address, runtime = f"log://{tmp_path}/state", tmp_path / "run"
        runtime.mkdir(mode=0o700)
        arguments = ["--placed", placed, "--conf", f"spark.executorEnv.XDG_RUNTIME_DIR={runtime}"]
        # The driver reads tables through the sidecar that has the log open.
        environment = {"XDG_RUNTIME_DIR": str(runtime)}
        job = Job(tmp_path, address, cluster, *arguments, environment=environment)
    else:
        # What several processes write to at once; the workers have a runtime folder each, as hosts have.
        address = f"fsspec+file://{tmp_path}/state"
        job = Job(tmp_path, address, cluster, "--placed", placed)
    killed = []
    for line in job.lines():
        word, number = line.split()
        if word == "begins" and int(number) in KILLS:
            wait_for_commit(address, int(number) + 1)
            victims = cluster.executors()[: KILLS[int(number)]]
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
            killed += victims
    assert len(killed) >= len(KILLS)
    assert job.newest() == ALL
    require_places(address)


def require_places(address: str) -> None:
    """Each key is in one partition, and in the right one."""
    with ckpt.open_backend(address, mode="read") as backend:
        (query,) = {name.split("/")[1] for name in backend.namespaces() if name.startswith("spark/")}
        assert list(misplaced(backend, query)) == []


@pytest.mark.budget(60)
@pytest.mark.parametrize("placed", PLACED)
def test_tasks_that_run_twice(cluster: Cluster, tmp_path: Path, placed: str) -> None:
    """Both attempts commit; the one that Spark has killed is never seen again."""
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "200ms",
        "spark.locality.wait": "0s",
    }
    options = [word for pair in speculation.items() for word in ("--conf", "=".join(pair))]
    address = f"fsspec+file://{tmp_path}/state"
    job = Job(tmp_path, address, cluster, "--speculate", "--placed", placed, *options)
    assert [line for line in job.lines() if line.startswith("ended")] == [f"ended {n}" for n in range(FILES)]
    assert job.newest() == ALL
    assert len(list((tmp_path / "again").iterdir())) >= FILES
    require_places(address)
    with ckpt.open_backend(address, mode="read") as backend:
        twice = [
            name
            for name in backend.namespaces()
            if max(Counter(commit.version for commit in backend.history(name).commits()).values()) > 1
        ]
    assert any(name.endswith("/0/0/default") for name in twice)  # the partition whose first attempt got stuck
