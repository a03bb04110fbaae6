"""The life of a sidecar: one per address, there while it is needed, gone after, and nothing is lost."""

from __future__ import annotations

import errno
import importlib
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import ckpt
from ckpt.cli import main
from ckpt.contract.disk import Disk
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt.sidecar import Sidecar, SidecarClient, UnixListener
from ckpt.sidecar.life import Place, PlaceLock, answers, runtime_folder, take_or_find

Start, Connect, Serve = Callable[..., Sidecar], Callable[..., SidecarClient], Callable[..., Any]


class TestOnDemand:
    """`ckpt serve --on-demand`, as an executor starts it."""

    def test_a_second_call_finds_the_first(self, serve: Serve, connect: Connect, tmp_path: Path) -> None:
        address = f"log://{tmp_path}/log"
        first = serve(address, "--on-demand")
        name = first.ready()
        second = serve(address, "--on-demand")
        assert second.ready() == name
        assert second.end() == (0, "")
        assert first.popen.poll() is None
        other = serve(f"log://{tmp_path}/other", "--on-demand")
        assert other.ready() != name
        connect(name).ping()

    @pytest.mark.parametrize("replaced", [False, True])
    def test_a_sidecar_whose_log_was_removed_is_not_found(
        self, serve: Serve, connect: Connect, tmp_path: Path, replaced: bool
    ) -> None:
        """A query is begun anew: its sidecar stays for the grace, with files that nobody will ever see."""
        address = f"log://{tmp_path}/log"
        name = serve(address, "--on-demand").ready()
        connect(name).commit("store", 1, {b"be": b"2"})
        shutil.rmtree(tmp_path / "log")
        if replaced:
            with ckpt.open_backend(address) as log:
                log.commit("other", 1, {b"or": b"1"})
        second = serve(address, "--on-demand")
        client = connect(second.ready())
        assert list(client.scan("store")) == []
        client.commit("store", 1, {b"not": b"1"})
        second.kill()
        with ckpt.open_backend(address) as log:
            assert log.namespaces() == (["other", "store"] if replaced else ["store"])
            assert dict(log.scan("store")) == {b"not": b"1"}

    def test_many_at_once_agree_on_one(self, serve: Serve, tmp_path: Path) -> None:
        processes = [serve(f"log://{tmp_path}/log", "--on-demand") for _ in range(4)]
        assert len({process.ready() for process in processes}) == 1
        deadline_s = 30.0
        while sum(p.popen.poll() is not None for p in processes) < 3 and deadline_s > 0:
            threading.Event().wait(0.05)
            deadline_s -= 0.05
        assert sorted(p.popen.poll() is None for p in processes) == [False, False, False, True]

    def test_it_ends_with_its_starter_and_leaves_no_socket(self, serve: Serve, tmp_path: Path) -> None:
        process = serve(f"log://{tmp_path}/log", "--on-demand", "--grace", "0")
        name = process.ready()
        for path in (name, f"{name}.lock"):
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(os.path.dirname(name)).st_mode) == 0o700
        process.stdin.close()
        assert process.popen.wait(30) == 0
        assert os.listdir(os.path.dirname(name)) == []

    def test_it_stays_while_somebody_holds_a_lifeline(
        self, serve: Serve, connect: Connect, tmp_path: Path
    ) -> None:
        process = serve(f"log://{tmp_path}/log", "--on-demand", "--grace", "0.2")
        client = connect(process.ready())
        with client.lifeline():
            process.stdin.close()
            client.commit("store", 1, {b"k": b"v"})
            with pytest.raises(subprocess.TimeoutExpired):
                process.popen.wait(1.0)
            client.ping()
        assert process.popen.wait(30) == 0

    def test_it_stays_while_its_starter_lives_even_if_nobody_is_connected(
        self, serve: Serve, connect: Connect, tmp_path: Path
    ) -> None:
        process = serve(f"log://{tmp_path}/log", "--on-demand", "--grace", "0")
        name = process.ready()
        with connect(name).lifeline():
            pass
        with pytest.raises(subprocess.TimeoutExpired):
            process.popen.wait(0.5)
        connect(name).ping()

    def test_the_lifeline_of_a_killed_process_is_cut(self, serve: Serve, tmp_path: Path) -> None:
        process = serve(f"log://{tmp_path}/log", "--on-demand", "--grace", "0")
        name = process.ready()
        holder = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import sys; from ckpt.sidecar import SidecarClient\n"
                f"with SidecarClient({name!r}).lifeline(): print('held', flush=True); sys.stdin.read()",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        process.stdin.close()
        holder.kill()
        holder.communicate()
        assert process.popen.wait(30) == 0

    def test_a_killed_one_is_replaced(self, serve: Serve, connect: Connect, tmp_path: Path) -> None:
        address = f"log://{tmp_path}/log"
        first = serve(address, "--on-demand")
        name = first.ready()
        client = connect(name)
        client.commit("store", 1, {b"k": b"v"}, commit_id="one")
        first.kill()
        assert os.path.exists(name)
        with pytest.raises(BackendUnavailableError):
            client.ping()
        assert serve(address, "--on-demand").ready() == name
        assert client.commit("store", 1, {b"k": b"v"}, commit_id="one") == "one"
        assert dict(client.scan("store")) == {b"k": b"v"}

    def test_ctrl_c_in_the_starters_terminal_is_not_for_it(self, serve: Serve, tmp_path: Path) -> None:
        process = serve(f"log://{tmp_path}/log", "--on-demand")
        process.ready()
        assert os.getsid(process.popen.pid) == process.popen.pid

    def test_an_address_is_read_from_the_environment_or_standard_input(
        self, serve: Serve, tmp_path: Path
    ) -> None:
        address = f"log://{tmp_path}/log"
        name = serve("--on-demand", env={"CKPT_ADDRESS": address}).ready()
        process = serve("-", "--on-demand", stdin_line=address)
        assert process.ready() == name
        command_line = Path(f"/proc/{process.popen.pid}/cmdline").read_bytes()
        assert str(tmp_path).encode() not in command_line

    def test_what_cannot_be_opened_is_told(self, serve: Serve, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("no folder")
        code, errors = serve(f"log://{tmp_path}/file", "--on-demand").end()
        assert code in (2, 3)
        assert errors.startswith("ckpt: ")
        assert errors.count("\n") == 1


class TestService:
    """`ckpt serve` without --on-demand."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_it_in_order(
        self, serve: Serve, connect: Connect, folder: Path, number: int
    ) -> None:
        process = serve(f"log://{folder}/log", "--socket", f"{folder}/mine.sock")
        assert process.ready() == f"{folder}/mine.sock"
        client = connect(f"{folder}/mine.sock")
        client.commit("store", 1, {b"k": b"v"})
        process.popen.send_signal(number)
        assert process.end() == (0, "")
        assert not os.path.exists(f"{folder}/mine.sock")
        with ckpt.open_backend(f"log://{folder}/log") as backend:
            assert dict(backend.scan("store")) == {b"k": b"v"}

    def test_it_does_not_mind_its_standard_input(
        self, serve: Serve, connect: Connect, tmp_path: Path
    ) -> None:
        process = serve(f"log://{tmp_path}/log")
        name = process.ready()
        process.stdin.close()
        with pytest.raises(subprocess.TimeoutExpired):
            process.popen.wait(0.5)
        connect(name).ping()

    def test_a_second_one_is_refused(self, serve: Serve, tmp_path: Path) -> None:
        first = serve(f"log://{tmp_path}/log")
        name = first.ready()
        code, errors = serve(f"log://{tmp_path}/log").end()
        assert code == 3
        assert f"serves at {name} already" in errors

    def test_a_log_that_another_process_writes_is_refused(self, serve: Serve, tmp_path: Path) -> None:
        with ckpt.open_backend(f"log://{tmp_path}/log"):
            code, errors = serve(f"log://{tmp_path}/log").end()
        assert code == 3
        assert errors.startswith("ckpt: ")


class _SyncsFail(Disk):
    """A disk whose segments cannot be synced any more, if told so."""

    failing = False

    def sync(self, fd: int) -> None:
        if self.failing:
            raise OSError(errno.EIO, "failing")
        super().sync(fd)


class TestBroken:
    """A backend that must be opened again: the sidecar ends, and the next one goes on."""

    def test_the_next_sidecar_goes_on(self, folder: Path, connect: Connect) -> None:
        name, disk, broken = f"{folder}/s.sock", _SyncsFail(), threading.Event()
        backend = ckpt.open_backend(f"log://{folder}/log", disk=disk)
        with Sidecar(backend, UnixListener(name), on_broken=broken.set):
            client = connect(name)
            client.commit("store", 1, {b"k": b"1"}, commit_id="one")
            with pytest.raises(ConfigError):
                client.commit("store", 0, {})
            assert not broken.is_set()
            disk.failing = True
            with pytest.raises(BackendUnavailableError):
                client.commit("store", 2, {b"k": b"2"}, commit_id="two")
            assert broken.wait(20)
            with pytest.raises(BackendUnavailableError):  # also as a repeat: nobody knows if it is durable
                client.commit("store", 2, {b"k": b"2"}, commit_id="two")
        with Sidecar(ckpt.open_backend(f"log://{folder}/log"), UnixListener(name)):
            assert client.commit("store", 2, {b"k": b"2"}, commit_id="two") == "two"
            assert dict(client.scan("store")) == {b"k": b"2"}

    def test_the_command_ends_so_that_it_can_be_started_again(
        self, folder: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name, disk = f"{folder}/s.sock", _SyncsFail()
        module = importlib.import_module("ckpt.cli.serve")  # by its name alone one gets the command
        monkeypatch.setattr(module, "open_backend", lambda a: ckpt.open_backend(a, disk=disk))

        def commit() -> None:
            while not answers(Place(name)):
                pass
            client = connect(name)
            client.commit("store", 1, {b"k": b"1"})
            disk.failing = True
            with pytest.raises(BackendUnavailableError):
                client.commit("store", 2, {b"k": b"2"})

        with ThreadPoolExecutor(1) as pool:
            committed = pool.submit(commit)
            result = CliRunner().invoke(main, ["serve", f"log://{folder}/log", "--socket", name])
            committed.result(20)
        assert result.exit_code == 3
        assert "takes no more writes" in result.output


class TestShutdown:
    """`Sidecar.close`."""

    def test_what_is_under_way_is_finished(self, start: Start, connect: Connect) -> None:
        backend = ckpt.open_backend("memory://")
        sidecar = start(backend)
        client = connect(sidecar)
        inside, go_on, commit = threading.Event(), threading.Event(), backend.commit

        def slow_commit(*args: Any, **kwargs: Any) -> Any:
            inside.set()
            assert go_on.wait(20)
            return commit(*args, **kwargs)

        backend.commit = slow_commit
        with ThreadPoolExecutor(2) as pool:
            answer = pool.submit(client.commit, "store", 1, {b"k": b"v"}, commit_id="one")
            assert inside.wait(20)
            closing = pool.submit(sidecar.close)
            while os.path.exists(sidecar.name):
                pass
            with pytest.raises(BackendUnavailableError):
                connect(sidecar).ping()
            assert not closing.done()
            go_on.set()
            assert answer.result(20) == "one"
            closing.result(20)
        with pytest.raises(BackendUnavailableError, match="closed"):
            backend.namespaces()

    def test_what_takes_too_long_is_cut(self, start: Start, connect: Connect) -> None:
        backend = ckpt.open_backend("memory://")
        sidecar = start(backend, shutdown_s=0.1)
        inside, never = threading.Event(), threading.Event()

        def stuck(*_: Any, **__: Any) -> Any:
            inside.set()
            never.wait(20)
            raise BackendUnavailableError("at last")

        backend.commit = stuck
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(connect(sidecar).commit, "store", 1, {})
            assert inside.wait(20)
            sidecar.close()
            with pytest.raises(BackendUnavailableError, match="does not answer"):
                answer.result(20)
            never.set()

    def test_idle_connections_and_lifelines_do_not_hold_it_up(self, start: Start, connect: Connect) -> None:
        sidecar = start(shutdown_s=60)
        client = connect(sidecar)
        client.ping()
        with client.lifeline():
            sidecar.close()
            sidecar.close()
        with pytest.raises(BackendUnavailableError):
            client.ping()

    def test_nobody_is_let_in_once_it_has_decided_to_end(self, start: Start, connect: Connect) -> None:
        sidecar = start()
        assert sidecar.end_when_alone(0)
        with pytest.raises(BackendUnavailableError, match=r"about to end|does not answer"):
            connect(sidecar).ping()

    def test_whoever_waits_for_loneliness_hears_of_the_end(self, start: Start, connect: Connect) -> None:
        sidecar = start()
        with connect(sidecar).lifeline(), ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(sidecar.end_when_alone, 0)
            sidecar.close()
            assert waiting.result(20) is False


class TestPlace:
    """Where a sidecar is found."""

    def test_the_folder_is_the_users_alone(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        (folder / "ckpt").mkdir(mode=0o755)
        assert runtime_folder() == f"{folder}/ckpt"
        assert stat.S_IMODE(os.stat(folder / "ckpt").st_mode) == 0o700

    def test_a_folder_that_somebody_planted_is_refused(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        (folder / "elsewhere").mkdir()
        (folder / "ckpt").symlink_to(folder / "elsewhere")
        with pytest.raises(ConfigError, match="XDG_RUNTIME_DIR"):
            runtime_folder()

    def test_without_a_runtime_folder_it_is_in_tmp(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        assert runtime_folder() == f"/tmp/ckpt-{os.geteuid()}"

    def test_a_runtime_folder_that_leaves_no_room_for_a_socket_is_not_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        deep = tmp_path / ("x" * 100)
        deep.mkdir()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
        assert runtime_folder() == f"/tmp/ckpt-{os.geteuid()}"

    @pytest.mark.parametrize(
        "written", ["{0}/log/", "{0}//log", "{0}/x/../log", "{0}/%6Cog", "{0}/link", "{0}/log?b=2&a=1"]
    )
    def test_one_store_has_one_place_however_its_address_is_written(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
    ) -> None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        (tmp_path / "link").symlink_to(tmp_path / "log")
        options = "?a=1&b=2" if "?" in written else ""
        known = Place.of(f"log://{tmp_path}/log{options}")
        assert Place.of(f"log://{written.format(tmp_path)}") == known
        assert Place.of(f"log://{tmp_path}/log2{options}") != known

    def test_a_place_tells_addresses_apart_and_shows_none(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        one, other = Place.of("redis://:secret@host/0"), Place.of("redis://:secret@host/1")
        assert one == Place.of("redis://:secret@host/0")
        assert one != other
        assert "secret" not in one.socket

    def test_a_lock_is_held_by_one_and_given_back(self, folder: Path) -> None:
        place = Place(f"{folder}/s.sock")
        lock = PlaceLock.take(place)
        assert lock is not None
        assert PlaceLock.take(place) is None
        with pytest.raises(BackendUnavailableError, match="does not answer"):
            take_or_find(place, timeout_s=0)
        lock.close()
        again = PlaceLock.take(place)
        assert again is not None
        again.close()
        assert os.listdir(folder) == []

    def test_a_lock_that_is_given_back_while_another_takes_it_is_held_by_one(self, folder: Path) -> None:
        place, held, most = Place(f"{folder}/s.sock"), [0], [0]
        guard = threading.Lock()

        def take_and_give_back() -> int:
            taken = 0
            while taken < 30:
                if (lock := PlaceLock.take(place)) is None:
                    continue
                with guard:
                    held[0] += 1
                    most[0] = max(most[0], held[0])
                with guard:
                    held[0] -= 1
                lock.close()
                taken += 1
            return taken

        with ThreadPoolExecutor(4) as pool:
            assert [f.result(60) for f in [pool.submit(take_and_give_back) for _ in range(4)]] == [30] * 4
        assert most == [1]

    def test_the_log_is_private_and_in_nobodys_place(self, folder: Path) -> None:
        private_log = importlib.import_module("ckpt.cli.serve")._PrivateLog
        (folder / "target").write_text("")
        (folder / "link").symlink_to(folder / "target")
        with pytest.raises(OSError, match="symbolic link"):
            private_log(str(folder / "link"))
        private_log(str(folder / "log")).close()
        assert stat.S_IMODE(os.stat(folder / "log").st_mode) == 0o600


@pytest.mark.parametrize("seed", range(3))
def test_kill_9_loses_no_acknowledged_commit(
    serve: Serve, connect: Connect, tmp_path: Path, folder: Path, seed: int
) -> None:
    """Four stores commit until the sidecar is killed, then go on with the next one, repeating what hung."""
    rng = random.Random(seed)
    address = f"log://{tmp_path}/log?segment_bytes=256KiB&recent_records=500"
    name = f"{folder}/s.sock"
    acknowledged = dict.fromkeys(range(4), 0)
    client = connect(name)

    def commit_until_killed(store: int) -> None:
        while True:
            version = acknowledged[store] + 1
            rows = {b"%d" % (version % 7): b"%d" % version, b"v%d" % version: b"x" * 200}
            base = f"{store}-{version - 1}" if version > 1 else None
            try:
                client.commit(f"store-{store}", version, rows, base=base, commit_id=f"{store}-{version}")
            except BackendUnavailableError:
                return
            acknowledged[store] = version

    for _ in range(4):
        process = serve(address, "--socket", name)
        process.ready()
        for store, version in acknowledged.items():
            commits, tip = client.history(f"store-{store}")
            assert len(commits) - version in (0, 1)
            expected = {b"%d" % (v % 7): b"%d" % v for v in range(1, version + 1)}
            expected |= {b"v%d" % v: b"x" * 200 for v in range(1, version + 1)}
            at = f"{store}-{version}" if version else None
            assert dict(client.scan(f"store-{store}", version=version, commit_id=at)) == expected
            assert tip is None or tip == commits[-1].id
        threads = [threading.Thread(target=commit_until_killed, args=(store,)) for store in acknowledged]
        for thread in threads:
            thread.start()
        enough = sum(acknowledged.values()) + rng.randrange(20, 120)
        while sum(acknowledged.values()) < enough:
            threading.Event().wait(0.001)
        process.kill()
        for thread in threads:
            thread.join(30)
    with ckpt.open_backend(address) as backend:
        assert list(backend.verify()) == []
