"""The jars of a server, by pinned Maven coordinates: fetched once per pom, and whole or not at all."""

from __future__ import annotations

import hashlib
import importlib.resources
import os
import subprocess

from ckpt.dev import cache, tools

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_TIMEOUT_S = 1800.0


def jars(kind: str, *, report: cache.Report = cache.silent) -> str:
    """The folder with the jars of a kind of server; fetches them if they are not there."""
    folder = _folder(kind)
    if os.path.isdir(folder):
        return folder
    with cache.locked(f"jars-{kind}", report=report):
        if not os.path.isdir(folder):
            maven = tools.maven()
            report("fetching its jars with Maven, once")
            with cache.appearing(folder) as filling:
                _fetch(maven, kind, filling)
    return folder


def _pom(kind: str) -> str:
    return (importlib.resources.files("ckpt.dev") / "poms" / f"{kind}.xml").read_text(encoding="utf-8")


def _folder(kind: str) -> str:
    digest = hashlib.sha256(_pom(kind).encode()).hexdigest()[:12]
    return cache.folder("jars", f"{kind}-{digest}")


def _fetch(maven: str, kind: str, folder: str) -> None:
    pom = os.path.join(folder, "pom.xml")
    cache.write_file(pom, _pom(kind))
    command = [maven, "-B", "-q", "-f", pom, _PLUGIN, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        errors = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
        reason = (errors or [done.stderr.strip() or f"exit code {done.returncode}"])[0]
        raise tools.MissingToolError(
            f"Maven could not fetch the jars of {kind}: {reason.removeprefix('[ERROR] ')}; "
            f"check the network and Maven's settings.xml, then try again",
            package=None,
        )
