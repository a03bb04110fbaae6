"""A headless Chromium in which tests look at pages as a reader would."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ckpt.dev import tools
from ckpt.testing.servers import skipped_if_missing

_HEIGHT = 900
_FLAGS = (
    "--headless",
    "--no-sandbox",  # it sees pages of our own only, and root could not start it otherwise
    "--disable-gpu",
    "--disable-dev-shm-usage",  # in a container that is often too small
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_ON_3_AND_4 = """if True:
    import fcntl, os, sys
    commands, answers = (fcntl.fcntl(int(pipe), fcntl.F_DUPFD, 10) for pipe in sys.argv[1:3])
    os.dup2(commands, 3)
    os.dup2(answers, 4)
    os.closerange(5, 256)
    os.execv(sys.argv[3], sys.argv[3:])
"""
"""Becomes the browser, which takes commands from descriptor 3 and answers on 4."""


@dataclass
class Look:
    """One page at one width, in light or dark."""

    evaluate: Callable[[str], Any]
    """The value of an expression of JavaScript, awaited if it is a promise."""
    screenshot: Callable[[Path], None]
    """The whole page, as a PNG."""
    logged: Sequence[str] = field(default_factory=list)
    """What the page or the browser logged."""
    fetched: Sequence[str] = field(default_factory=list)
    """The addresses of everything that was asked for beside the page."""


class Chromium:
    """One browser, spoken to over its DevTools pipe: no port, and it ends when the pipe does."""

    def __init__(self, tool: tools.Tool, folder: Path) -> None:
        commands_read, commands_write = os.pipe()
        answers_read, answers_write = os.pipe()
        self._log = (folder / "chromium.log").open("w")
        profile = folder / "profile"
        pipes = (str(commands_read), str(answers_write))
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _ON_3_AND_4,
                *pipes,
                tool.path,
                *_FLAGS,
                f"--user-data-dir={profile}",
            ],
            env={**os.environ, **tool.environment},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(commands_read, answers_write),
        )
        os.close(commands_read)
        os.close(answers_write)
        self._commands = os.fdopen(commands_write, "wb", buffering=0)
        self._answers = os.fdopen(answers_read, "rb")
        self._number = 0
        self._events: list[dict[str, Any]] = []
        self._pending = b""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._commands.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
        self._log.close()

    def call(self, method: str, session: str | None = None, /, **parameters: Any) -> Any:
        """Ask for something and wait for the answer; events that come before it are kept."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            asked["sessionId"] = session
        self._commands.write(json.dumps(asked).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._number:
                assert "error" not in message, f"{method}: {message.get('error')}"
                return message["result"]
            self._events.append(message)

    def wait_for(self, event: str, session: str) -> None:
        """Until this event has come."""
        while not any(e.get("method") == event and e.get("sessionId") == session for e in self._events):
            self._events.append(self._next())

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            some = self._answers.read1(1 << 16)
            assert some, f"Chromium ended; see {self._log.name}"
            self._pending += some
        message, _, self._pending = self._pending.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    @contextlib.contextmanager
    def look(self, page: Path, width: int, *, dark: bool = False) -> Iterator[Look]:
        """The page, loaded and laid out at this width."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        size = {"width": width, "height": _HEIGHT, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", session, **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", session, features=[scheme])
        self._events.clear()
        self.call("Page.navigate", session, url=page.as_uri())
        self.wait_for("Page.loadEventFired", session)

        def evaluate(script: str) -> Any:
            asked = {"expression": script, "returnByValue": True, "awaitPromise": True}
            answer = self.call("Runtime.evaluate", session, **asked)
            assert "exceptionDetails" not in answer, answer["exceptionDetails"]
            return answer["result"].get("value")

        def screenshot(path: Path) -> None:
            shot = self.call("Page.captureScreenshot", session, captureBeyondViewport=True)
            path.write_bytes(base64.b64decode(shot["data"]))

        # two frames later everything is laid out, and what the load has logged is there
        evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        yield Look(evaluate, screenshot, list(self._logged(session)), list(self._fetched(session, page)))
        self.call("Target.closeTarget", targetId=target)

    def _logged(self, session: str) -> Iterator[str]:
        for event in self._events:
            if event.get("sessionId") != session:
                continue
            said = event["params"]
            match event["method"]:
                case "Log.entryAdded":
                    yield f"{said['entry']['level']}: {said['entry']['text']}"
                case "Runtime.exceptionThrown":
                    yield f"exception: {said['exceptionDetails']['text']}"
                case "Runtime.consoleAPICalled":
                    yield f"{said['type']}: {[each.get('value') for each in said['args']]}"

    def _fetched(self, session: str, page: Path) -> Iterator[str]:
        for event in self._events:
            if event.get("sessionId") == session and event["method"] == "Network.requestWillBeSent":
                address = event["params"]["request"]["url"]
                if address != page.as_uri():
                    yield address


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """Debian's Chromium; a machine without it skips the test, CI does not."""
    with skipped_if_missing():
        tool = tools.chromium()
    browser = Chromium(tool, tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()
