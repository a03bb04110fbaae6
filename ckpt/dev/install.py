"""Puts on this machine what servers and tests need, as far as that is allowed; costs nothing if all is there.

Redis and Chromium come from the system's packages without being installed: they are unpacked into the cache,
which needs no rights and starts no service. Java and Maven are installed with apt, if that needs no password.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ckpt.dev import cache, tools
from ckpt.dev.kinds import NAMES, server
from ckpt.dev.tools import MissingToolError, Tool

INSTALLABLE = (*NAMES, "chromium")
"""What can be asked for: what each server needs, and the browser in which tests look at pages."""

_TIMEOUT_S = 900.0
_AS_OURSELVES = ("-o", "APT::Sandbox::User=root")
"""As root, apt fetches as another user, which could not write into a folder of ours."""


@dataclass(frozen=True, slots=True)
class _Unpacking:
    """Debian packages that are used without being installed."""

    folder: str
    packages: Sequence[str]
    found: Callable[[str], Tool | None]


_UNPACKED: Mapping[str, _Unpacking] = MappingProxyType(
    {
        "redis-server": _Unpacking("redis", ("redis-server", "redis-tools"), tools.unpacked_redis),
        "chromium-headless-shell": _Unpacking(
            "chromium", ("chromium-headless-shell",), tools.unpacked_chromium
        ),
    }
)
"""By the package that is missing."""


class _FailedError(Exception):
    """A command of the system failed; the message is its own last word."""


def install(name: str, *, report: cache.Report = cache.silent) -> None:
    """Make sure that a server, or Chromium, could start now; MissingToolError says what could not be had."""
    tried = set[str]()
    while True:
        try:
            _prepare(name, report)
        except MissingToolError as missing:
            if missing.package is None or missing.package in tried or shutil.which("apt-get") is None:
                raise
            tried.add(missing.package)
            report(f"installing {missing.package}")
            with cache.locked("apt", report=report):
                try:
                    _obtain(missing.package)
                except _FailedError as error:
                    raise MissingToolError(f"{missing} (tried in vain: {error})", None) from error
        else:
            return


def _prepare(name: str, report: cache.Report) -> None:
    if name == "chromium":
        tools.chromium()
    else:
        server(name, cache.folder("servers", name)).prepare(report)


def _obtain(package: str) -> None:
    if package in _UNPACKED:
        _unpack(_UNPACKED[package])
    else:
        _install(package)


def _unpack(wanted: _Unpacking) -> None:
    target = cache.folder("tools", wanted.folder)
    if wanted.found(target) is not None:
        return  # another process was faster
    with cache.appearing(target) as filling, tempfile.TemporaryDirectory() as scratch:
        try:
            _download(wanted.packages, scratch, [])
        except _FailedError:
            # The lists of packages are missing, as in a fresh container, or name packages that are gone.
            _download(wanted.packages, scratch, _fresh_lists(scratch))
        packages = [os.path.join(scratch, name) for name in os.listdir(scratch) if name.endswith(".deb")]
        for package in packages:
            _run(["dpkg-deb", "-x", package, filling])
        unpacked = wanted.found(filling)
        if unpacked is None:
            raise _FailedError(f"the packages hold no {wanted.packages[0]}")
        _run([unpacked.path, "--version"], environment=unpacked.environment)


def _download(wanted: Sequence[str], folder: str, options: Sequence[str]) -> None:
    """Fetch packages, and those that they need and that this machine does not have."""
    asked = ["apt-get", *options, "-o", "Debug::NoLocking=1", "-qq", "install", "--print-uris"]
    needed = _run([*asked, "--no-install-recommends", *wanted])
    # 'http://…/redis-tools_7.0.15-1_amd64.deb' redis-tools_5%3a7.0.15-1_amd64.deb 991988 SHA256:…
    named = {line.split("' ", 1)[1].partition("_")[0] for line in needed.splitlines() if "' " in line}
    packages = sorted(named.union(wanted))
    _run(["apt-get", *options, *_AS_OURSELVES, "-qq", "download", *packages], folder=folder)


def _fresh_lists(scratch: str) -> list[str]:
    """Options with which apt knows what there is now, without a right to change the system."""
    lists, archives = os.path.join(scratch, "lists"), os.path.join(scratch, "archives")
    for path in (lists, archives):
        os.makedirs(os.path.join(path, "partial"))
    options = ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={archives}"]
    _run(["apt-get", *options, *_AS_OURSELVES, "-qq", "update"])
    return options


def _install(package: str) -> None:
    become_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    _run([*become_root, "true"])
    # sudo passes no environment on, so the front end is named in the command itself.
    apt = [*become_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    command = [*apt, "-y", "--no-install-recommends", "install", package]
    try:
        _run(command)
    except _FailedError:
        _run([*apt, "update"])
        _run(command)


def _run(
    command: Sequence[str], *, folder: str | None = None, environment: Mapping[str, str] | None = None
) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C", **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _FailedError(str(error)) from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise _FailedError(f"{command[0]}: {said}")
    return done.stdout
