"""Finds what servers and tests need from the system; what is missing is one line with what to install."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ckpt.dev import cache
from ckpt.errors import ConfigError

SYSTEM_JAVAS = "/usr/lib/jvm/*/bin/java"
_JAVA_PACKAGE = "openjdk-17-jre-headless"
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_PRINTED_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class MissingToolError(ConfigError):
    """A program that is needed is not there, or does not fit; the message says what to install."""

    def __init__(self, message: str, package: str | None) -> None:
        super().__init__(message)
        self.package = package
        """The Debian package that would help, if one would."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program, and what its environment needs beside ours."""

    path: str
    environment: Mapping[str, str] = field(default_factory=dict)


def redis_server() -> Tool:
    """The `redis-server` of the system, or the one that `ckpt dev install` unpacked."""
    found = shutil.which("redis-server")
    if found is not None:
        return Tool(found)
    unpacked = unpacked_redis(cache.folder("tools", "redis"))
    if unpacked is not None:
        return unpacked
    raise MissingToolError(
        "redis-server is missing; install it: sudo apt-get install redis-server (or: ckpt dev install redis)",
        "redis-server",
    )


def chromium() -> Tool:
    """A Chromium that shows pages without a screen: the system's, or the one `ckpt dev install` unpacked."""
    for name in ("chromium", "chromium-headless-shell", "google-chrome"):
        found = shutil.which(name)
        # a snap sees neither our temporary files nor our pipes
        if found is not None and os.path.basename(os.path.realpath(found)) != "snap":
            return Tool(found)
    unpacked = unpacked_chromium(cache.folder("tools", "chromium"))
    if unpacked is not None:
        return unpacked
    raise MissingToolError(
        "chromium is missing, in which tests look at pages; install it: sudo apt-get install "
        "chromium-headless-shell (or: ckpt dev install chromium)",
        "chromium-headless-shell",
    )


def unpacked_redis(root: str) -> Tool | None:
    """The `redis-server` below a folder into which Debian packages were unpacked."""
    return _unpacked(root, "usr", "bin", "redis-server")


def unpacked_chromium(root: str) -> Tool | None:
    """The Chromium below such a folder; the command in `usr/bin` would start the system's."""
    return _unpacked(root, "usr", "lib", "chromium", "chromium-headless-shell")


def _unpacked(root: str, *parts: str) -> Tool | None:
    path = os.path.join(root, *parts)
    if not os.path.exists(path):
        return None
    libraries = sorted({os.path.dirname(lib) for lib in glob.glob(f"{root}/**/lib*.so*", recursive=True)})
    inherited = os.environ.get("LD_LIBRARY_PATH", "")
    return Tool(path, {"LD_LIBRARY_PATH": ":".join([*libraries, *([inherited] if inherited else [])])})


def java(needed_by: str, least: int, most: int | None = None) -> str:
    """The first Java of JAVA_HOME, the PATH and the system's folder of Javas that has a fitting version."""
    rejected = []
    for path in _javas():
        version = _java_version(path)
        if version is not None and least <= version and (most is None or version <= most):
            return path
        rejected.append(f"{path} is Java {version or 'of an unknown version'}")
    wanted = f"{least} to {most}" if most is not None else f"{least} or later"
    raise MissingToolError(
        f"{needed_by} needs Java {wanted}{', but ' if rejected else ''}{', '.join(rejected)}; "
        f"install it: sudo apt-get install {_JAVA_PACKAGE} (or set JAVA_HOME)",
        _JAVA_PACKAGE,
    )


def require_java_of_the_environment(needed_by: str, least: int) -> None:
    """The Java that a program finds which looks at JAVA_HOME and the PATH only is recent enough."""
    home = os.environ.get("JAVA_HOME")
    path = os.path.join(home, "bin", "java") if home else shutil.which("java")
    version = _java_version(path) if path and os.access(path, os.X_OK) else None
    if version is not None and version >= least:
        return
    found = "there is none" if path is None else f"{path} is {f'Java {version}' if version else 'no Java'}"
    # Either the system has one that would do, or this says how to get it.
    fitting = os.path.dirname(os.path.dirname(os.path.realpath(java(needed_by, least))))
    raise MissingToolError(
        f"{needed_by} starts the Java of JAVA_HOME or the PATH and needs {least} or later, but {found}; "
        f"set JAVA_HOME={fitting}",
        None,
    )


def maven() -> str:
    """Maven, which fetches jars."""
    found = shutil.which("mvn")
    if found is None:
        raise MissingToolError(
            "mvn is missing, which fetches the jars; install it: sudo apt-get install maven", "maven"
        )
    return found


def _javas() -> Iterator[str]:
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [os.path.join(home, "bin", "java")] if home else []
    candidates += [on_path] if on_path else []
    candidates += sorted(glob.glob(SYSTEM_JAVAS))
    seen = set()
    for path in candidates:
        real = os.path.realpath(path)
        if real not in seen and os.access(real, os.X_OK):
            seen.add(real)
            yield path


def _java_version(path: str) -> int | None:
    # The file is there in every Java since 9, and reading it is a hundred times faster than asking.
    home = os.path.dirname(os.path.dirname(os.path.realpath(path)))
    try:
        with open(os.path.join(home, "release"), encoding="utf-8") as file:
            found = _RELEASE.search(file.read())
    except OSError:
        found = _PRINTED_VERSION.search(_said_version(path))
    return int(found[1]) if found else None


def _said_version(path: str) -> str:
    try:
        asked = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stderr + asked.stdout
