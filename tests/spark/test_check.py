"""What stands between a query and its state is one line before the session exists; each is made to happen."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

import ckpt
from ckpt.cli import main
from ckpt.dev import TlsFiles
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt.sidecar import Door, Sidecar, SidecarClient, TcpListener
from ckpt.spark import RunningSidecar
from ckpt.spark.check import check_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Python = Callable[[str], str]
PYTHON = "spark.sql.streaming.stateStore.ckpt.python"
NOBODY = "redis://:hunter2@127.0.0.1:1/0?retry_s=0"


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """Makes an executor's Python out of a line of shell; `$PYTHON` is this one."""

    def make(line: str) -> str:
        script = tmp_path / "python"
        script.write_text(f"#!/bin/sh\nPYTHON={sys.executable}\n{line}\n")
        script.chmod(0o755)
        return str(script)

    return make


def test_a_store_that_can_be_served(tmp_path: Path) -> None:
    address = f"log://{tmp_path}/log"
    check_address(address, sys.executable)
    check_address(address, sys.executable)  # nothing of the first is in the way


def test_a_store_that_is_served_already(tmp_path: Path, serving: Any) -> None:
    address = f"log://{tmp_path}/log"
    with serving(address) as client:
        check_address(address, sys.executable)
        client.ping()


@pytest.fixture
def serving() -> Iterator[Any]:
    """Starts the sidecar that an executor of this machine would find."""
    started = []

    def serve(address: str) -> SidecarClient:
        process = subprocess.Popen(
            [sys.executable, "-m", "ckpt", "serve", "--on-demand", "--grace", "0", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        return SidecarClient(process.stdout.readline().removeprefix("READY ").strip())

    yield serve
    for process in started:
        process.communicate()


def test_a_server_that_refuses_the_password(refusing: int) -> None:
    with pytest.raises(ckpt.CkptError, match="password") as caught:
        check_address(f"redis://:hunter2@127.0.0.1:{refusing}/0", sys.executable)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def refusing() -> Iterator[int]:
    """The port of a Redis that knows another password."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse(connection: socket.socket) -> None:
            with connection:
                while connection.recv(4096):
                    connection.sendall(b"-WRONGPASS invalid username-password pair or user is disabled.\r\n")

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=refuse, args=(listener.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=accept)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_log_that_another_process_writes(tmp_path: Path) -> None:
    with ckpt.open_backend(f"log://{tmp_path}/log"), pytest.raises(BackendUnavailableError, match="log"):
        check_address(f"log://{tmp_path}/log", sys.executable)


def test_no_such_python() -> None:
    with pytest.raises(ConfigError, match="cannot start /no/such/python: No such file or directory"):
        check_address("memory://", "/no/such/python")


def test_a_python_without_ckpt(python: Python) -> None:
    without = python('exec "$PYTHON" -I -S "$@"')
    with pytest.raises(ConfigError, match=r"cannot run ckpt \(.*No module named ckpt\); install it there"):
        check_address("memory://", without)


def test_a_python_without_the_driver_of_the_backend(python: Python, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "redis.py").write_text("raise ImportError('not installed')\n")
    without = python(f'PYTHONPATH="{tmp_path}/hidden:$PYTHONPATH" exec "$PYTHON" "$@"')
    with pytest.raises(ConfigError, match=r"not installed; install it with: pip install 'ckpt\[redis\]'"):
        check_address(NOBODY, without)


def test_a_ckpt_that_speaks_another_protocol(python: Python, stranger: str) -> None:
    with pytest.raises(ckpt.CkptError, match="version 1 of the protocol is not spoken here"):
        check_address("memory://", python(f"read address; echo READY {stranger}; read end"))


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[str]:
    """A sidecar of some other version of ckpt, which refuses whoever comes."""
    path = str(tmp_path / "s")
    message = b"version 1 of the protocol is not spoken here"
    refusal = struct.pack("<BQHH", 3, 0, 7, len(message)) + message
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def refuse() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(64)
                    connection.sendall(struct.pack("<I", len(refusal)) + refusal)

        thread = threading.Thread(target=refuse)
        thread.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


class TestASidecarThatRuns:
    """`--sidecar`: the same questions, asked of somebody else's sidecar."""

    @pytest.fixture
    def serve(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Sidecar]:
        monkeypatch.setenv("CKPT_TOKEN", "opensesame")

        def start(tls: ssl.SSLContext | None = None) -> Sidecar:
            door = Door(token=b"opensesame", tls=tls)
            return Sidecar(ckpt.open_backend("memory://"), TcpListener("127.0.0.1", 0), door=door)

        return start

    def test_it_lets_us_in(self, serve: Callable[..., Sidecar], tls_files: Callable[[str], TlsFiles]) -> None:
        files = tls_files("sidecar")
        with serve() as sidecar:
            RunningSidecar(sidecar.name).check()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate)
        with serve(context) as sidecar:
            RunningSidecar(sidecar.name, ca=files.authority).check()

    def test_a_wrong_token(self, serve: Callable[..., Sidecar], monkeypatch: pytest.MonkeyPatch) -> None:
        with serve() as sidecar:
            monkeypatch.setenv("SHOP_TOKEN", "hunter2")
            with pytest.raises(ConfigError, match="wrong token") as caught:
                RunningSidecar(sidecar.name, token="env:SHOP_TOKEN").check()
            assert "hunter2" not in str(caught.value)
            monkeypatch.delenv("SHOP_TOKEN")
            with pytest.raises(
                ConfigError, match="SHOP_TOKEN is to hold the sidecar's token, but is not set"
            ):
                RunningSidecar(sidecar.name, token="env:SHOP_TOKEN").check()

    def test_one_has_tls_and_the_other_has_not(
        self, serve: Callable[..., Sidecar], tls_files: Callable[[str], TlsFiles], tmp_path: Path
    ) -> None:
        files = tls_files("sidecar")
        with serve() as sidecar:
            with pytest.raises(BackendUnavailableError, match=r"no sidecar lets us in .* with TLS"):
                RunningSidecar(sidecar.name, ca=files.authority).check()
            with pytest.raises(ConfigError, match="name a PEM file"):
                RunningSidecar(sidecar.name, ca=str(tmp_path / "none")).check()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate)
        with serve(context) as sidecar:
            with pytest.raises(BackendUnavailableError, match=r"no sidecar lets us in .* without TLS"):
                RunningSidecar(sidecar.name).check()
            elsewhere = f"localhost:{sidecar.name.rpartition(':')[2]}"
            with pytest.raises(BackendUnavailableError, match="no sidecar lets us in at localhost"):
                RunningSidecar(elsewhere, ca=files.authority).check()

    def test_nobody_is_there(self, serve: Callable[..., Sidecar]) -> None:
        pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")
        with serve() as sidecar:
            answered = run("log:///var/ckpt", "--sidecar", sidecar.name)
        assert answered.exit_code == 0, answered.output
        assert answered.stdout.splitlines()[-1] == f"the sidecar at {sidecar.name} lets us in"
        result = run("log:///var/ckpt", "--sidecar", sidecar.name)
        assert result.exit_code == 3
        [line] = result.stderr.splitlines()
        assert f"start one there with: ckpt serve ADDRESS --listen {sidecar.name}" in line


def test_what_only_an_executor_notices_is_in_the_first_line(
    spark: SparkSession, stream_of: Any, python: Python
) -> None:
    stream = stream_of("in", "word string")
    stream.feed([{"word": "be"}])
    spark.conf.set(PYTHON, python("echo 'ckpt: the shop is closed'; exit 3"))
    try:
        writer = stream.stream().groupBy("word").count().writeStream.outputMode("update").format("noop")
        query = writer.option("checkpointLocation", stream.checkpoint).trigger(availableNow=True).start()
        with pytest.raises(Exception, match="STREAM_FAILED") as caught:
            query.awaitTermination()
    finally:
        spark.conf.unset(PYTHON)
    first = str(caught.value).splitlines()[0]
    assert "ended with code 3 and said: ckpt: the shop is closed" in first


@pytest.mark.parametrize(
    "end", ["read address; echo READY {0}/gone; exit", "kill -9 $$"], ids=["ended", "killed"]
)
def test_a_sidecar_that_ends_before_it_is_held_is_replaced(
    spark: SparkSession, stream_of: Any, python: Python, tmp_path: Path, end: str
) -> None:
    stream = stream_of("in", "word string")
    stream.feed([{"word": "be"}, {"word": "be"}])
    once = f"if mkdir {tmp_path}/once; then {end.format(tmp_path)}; fi"
    spark.conf.set(PYTHON, python(f'{once}\nexec "$PYTHON" "$@"'))
    try:
        stream.run(stream.stream().groupBy("word").count(), "update")
    finally:
        spark.conf.unset(PYTHON)
    assert (tmp_path / "once").exists()
    assert stream.batches == [[("be", 2)]]


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["spark", "check", *args], prog_name="ckpt")


def test_the_command_says_what_is_there(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")
    result = run(f"log://{tmp_path}/log")
    assert result.exit_code == 0, result.output
    spark, provider, sidecar = result.stdout.splitlines()
    assert spark.startswith("Spark 4.")
    assert provider.endswith(".jar")
    assert sidecar == f"a sidecar of {sys.executable} serves log://{tmp_path}/log"


def test_a_server_that_does_not_answer_is_one_line_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")
    monkeypatch.setenv("SHOP_ADDRESS", NOBODY)
    result = run("env:SHOP_ADDRESS")
    assert result.exit_code == 3
    [line] = result.stderr.splitlines()
    assert "cannot be reached" in line
    assert "hunter2" not in result.output
