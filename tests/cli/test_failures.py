"""Whatever is typed: one line that says what to do, the right exit code, and never a traceback."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import ckpt
from ckpt.cli import main
from ckpt.dev import processes

Run = Callable[..., Result]

ON_A_STORE = [
    ["ls"],
    ["cat", "words", "be"],
    ["versions", "words"],
    ["stats"],
    ["verify"],
    ["repair"],
    ["gc"],
]
ON_A_STORE += [["drop", "words", "--yes"], ["diff", "memory://"], ["copy", "memory://"]]


def failing(run: Run, *args: str, code: int = 2) -> str:
    stderr = run(*args, code=code).stderr
    assert len(stderr.splitlines()) == 1
    assert stderr.startswith("ckpt: ")
    return stderr


@pytest.mark.parametrize("command", ON_A_STORE, ids=lambda command: command[0])
class TestAddresses:
    def test_no_scheme(self, run: Run, command: list[str]) -> None:
        assert "write scheme://location" in failing(run, command[0], "/var/ckpt", *command[1:])

    def test_a_misspelt_scheme(self, run: Run, command: list[str]) -> None:
        assert "did you mean 'memory'" in failing(run, command[0], "memry://", *command[1:])

    def test_an_unknown_option(self, run: Run, command: list[str]) -> None:
        assert "has no option 'sync'" in failing(run, command[0], "memory://?sync=1", *command[1:])

    def test_a_missing_store_stays_missing(self, run: Run, command: list[str], address: str) -> None:
        assert "no store at" in failing(run, command[0], address, *command[1:])
        assert not os.path.exists(address.partition("://")[2])

    def test_an_empty_folder_stays_empty(self, run: Run, command: list[str], address: str) -> None:
        folder = address.partition("://")[2]
        os.mkdir(folder)
        assert "no store at" in failing(run, command[0], address, *command[1:])
        assert os.listdir(folder) == []

    def test_a_folder_of_something_else_is_left_alone(
        self, run: Run, command: list[str], address: str
    ) -> None:
        folder = address.partition("://")[2]
        os.mkdir(folder)
        Path(folder, "diary.txt").write_text("dear diary")
        failing(run, command[0], address, *command[1:])
        assert os.listdir(folder) == ["diary.txt"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["cat", "STORE", "wrods", "be"], "did you mean 'words'"),
        (["ls", "STORE", "wrods"], "did you mean 'words'"),
        (["ls", "STORE", ""], "a namespace must be a non-empty string"),
        (["cat", "STORE", "words", "bee"], "no key b'bee' in namespace 'words'"),
        (["cat", "STORE", "words", "hex:f"], "a key is text, hex:"),
        (["cat", "STORE", "words", "base64:!"], "a key is text, hex:"),
        (["cat", "STORE"], "Missing argument 'NAMESPACE'"),
        (["cat", "STORE", "words", "be", "--version", "1"], "is plain"),
        (["cat", "STORE", "store", "k", "--version", "9"], "version 9 does not exist; the newest is 2"),
        (["cat", "STORE", "store", "k", "--commit", "third"], "commit 'third' does not exist"),
        (["ls", "STORE", "--limit", "-1"], "--limit"),
        (["ls", "STORE", "--prefix", "b"], "need a NAMESPACE"),
        (["ls", "STORE", "words", "--josn"], "--json"),
        (["lss", "STORE"], "Did you mean 'ls'"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_wrong_use(run: Run, store: str, args: list[str], says: str) -> None:
    assert says in failing(run, *[store if arg == "STORE" else arg for arg in args])


def test_a_store_in_use_is_unavailable(run: Run, tmp_path: Path) -> None:
    address = f"log://{tmp_path}/store"
    with ckpt.open_backend(address) as writer:
        writer.put_many("words", {b"be": b"2"})
        failing(run, "gc", address, code=3)
        assert run("ls", address).stdout == "words\n"


def test_every_command_explains_itself(run: Run) -> None:
    for name in main.commands:
        assert run(name, "--help").stdout.startswith(f"Usage: ckpt {name}")


def test_nothing_asked_is_answered_with_help(run: Run) -> None:
    help_text = run("--help").stdout
    assert run(code=2).stderr == help_text
    assert len(help_text.splitlines()) > 10


@pytest.mark.parametrize("scheme", ["log", "fsspec+file"])
@pytest.mark.parametrize("below", ["", "/below"])
def test_a_file_in_the_way_is_a_wrong_address(
    run: Run, store: str, tmp_path: Path, scheme: str, below: str
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "a file is in the way" in failing(run, "copy", store, f"{scheme}://{tmp_path}/notes.txt{below}")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_version(run: Run) -> None:
    assert run("--version").stdout == f"ckpt, version {ckpt.__version__}\n"


def test_backends(run: Run, run_json: Callable[..., list[dict[str, object]]]) -> None:
    assert run("backends").stdout.splitlines()[0].split() == ["scheme", "about"]
    rows = {row["scheme"]: row["available"] for row in run_json("backends")}
    assert rows["memory"] is True
    assert rows["log"] is True


class TestProcesses:
    """What only a real process shows."""

    @pytest.fixture
    def big(self, tmp_path: Path) -> str:
        address = f"log://{tmp_path}/store"
        with ckpt.open_backend(address) as backend:
            backend.put_many("words", {b"key-%06d" % n: b"" for n in range(50_000)})
        return address

    def test_python_dash_m(self) -> None:
        done = subprocess.run([sys.executable, "-m", "ckpt", "ls", "nowhere"], capture_output=True, text=True)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1

    def test_a_closed_pipe_is_quiet(self, big: str) -> None:
        listing = subprocess.Popen(
            [sys.executable, "-m", "ckpt", "ls", big, "words"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert listing.stdout is not None
        assert listing.stderr is not None
        assert listing.stdout.readline() == b"key-000000\n"
        listing.stdout.close()
        assert listing.stderr.read() == b""
        listing.stderr.close()
        assert listing.wait() == 141

    def test_ctrl_c_ends_cleanly(self, big: str) -> None:
        listing = subprocess.Popen(
            [sys.executable, "-m", "ckpt", "ls", big, "words"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A shell that started these tests in the background has them ignore Ctrl-C.
            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        assert listing.stdout is not None
        listing.stdout.readline()  # it runs, and is now waiting for its pipe to be read
        listing.send_signal(signal.SIGINT)
        _, stderr = listing.communicate()
        assert listing.returncode == 130
        assert b"Traceback" not in stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    "command",
    [
        ["demo", "--without-spark", "--events", "5000000"],
        ["demo"],
        ["bench", "spark", "batches", "--quick"],
    ],
    ids=" ".join,
)
def test_told_to_end_it_leaves_nothing_behind(
    tmp_path: Path, command: list[str], number: signal.Signals
) -> None:
    if "--without-spark" not in command:
        pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")
    running = subprocess.Popen(
        [sys.executable, "-m", "ckpt", *command],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=functools.partial(signal.signal, number, signal.SIG_DFL),
    )
    while running.poll() is None and not processes.descendants(running.pid):
        time.sleep(0.05)  # until it has started what it is to end
    started = processes.descendants(running.pid)
    running.send_signal(number)
    running.send_signal(number)  # as `timeout` does
    _, stderr = running.communicate()
    assert (running.returncode, stderr) == (128 + number, "")
    assert not any(process.alive for process in started)
    assert os.listdir(tmp_path) == []


def test_a_command_does_not_wait_for_the_imports_of_others() -> None:
    """A query waits for `ckpt serve`; what only other commands need would be part of that."""
    script = (
        "import sys; from ckpt.cli import main; assert main.get_command(None, 'serve') is not None; "
        "print([name for name in ('rich', 'ckpt.spark', 'ckpt.demo', 'ckpt.dev') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
