"""Puts on this machine what the servers need, as far as that is allowed; costs nothing where all is there.

Redis comes from the system's packages without being installed: they are unpacked into the cache, which needs
no rights and starts no service. Java and Maven are installed with apt, if that needs no password.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

from ckpt.dev import cache, tools
from ckpt.dev.kinds import server
from ckpt.dev.tools import MissingToolError

_REDIS_PACKAGES = ("redis-server", "redis-tools")
_TIMEOUT_S = 900.0
_AS_OURSELVES = ("-o", "APT::Sandbox::User=root")
"""As root, apt fetches as another user, who could not write into a folder of ours."""


class _FailedError(Exception):
    """A command of the system failed; the message is its own last word."""


def install(name: str, *, report: cache.Report = cache.silent) -> None:
    """Make sure that a server could start now; MissingToolError says what could not be had."""
    wanted, tried = server(name, cache.folder("servers", name)), set[str]()
    while True:
        try:
            wanted.prepare(report)
        except MissingToolError as missing:
            if missing.package is None or missing.package in tried or shutil.which("apt-get") is None:
                raise
            tried.add(missing.package)
            report(f"installing {missing.package}")
            with cache.locked("apt", report=report):
                try:
                    _unpack_redis() if missing.package == "redis-server" else _install(missing.package)
                except _FailedError as error:
                    raise MissingToolError(f"{missing} (tried in vain: {error})", None) from error
        else:
            return


def _unpack_redis() -> None:
    target = cache.folder("tools", "redis")
    if tools.unpacked_redis(target) is not None:
        return  # another process was faster
    with cache.appearing(target) as filling, tempfile.TemporaryDirectory() as scratch:
        try:
            _download(scratch, [])
        except _FailedError:
            # The lists of packages are missing, as in a fresh container, or name packages that are gone.
            _download(scratch, _fresh_lists(scratch))
        packages = [os.path.join(scratch, name) for name in os.listdir(scratch) if name.endswith(".deb")]
        for package in packages:
            _run(["dpkg-deb", "-x", package, filling])
        unpacked = tools.unpacked_redis(filling)
        if unpacked is None:
            raise _FailedError("the packages hold no redis-server")
        _run([unpacked.path, "--version"], environment=unpacked.environment)


def _download(folder: str, options: Sequence[str]) -> None:
    """Fetch the packages of Redis, and those that they need and that this machine does not have."""
    asked = ["apt-get", *options, "-o", "Debug::NoLocking=1", "-qq", "install", "--print-uris"]
    needed = _run([*asked, "--no-install-recommends", *_REDIS_PACKAGES])
    # 'http://…/redis-tools_7.0.15-1_amd64.deb' redis-tools_5%3a7.0.15-1_amd64.deb 991988 SHA256:…
    named = {line.split("' ", 1)[1].partition("_")[0] for line in needed.splitlines() if "' " in line}
    packages = sorted(named.union(_REDIS_PACKAGES))
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
