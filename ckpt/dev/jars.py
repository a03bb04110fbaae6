"""The jars of a server, or of anything else that has a pom: fetched once per pom, and whole or not at all."""

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
    return jars_of_pom(kind, _pom(kind), report=report)


def jars_of_pom(name: str, pom: str, *, report: cache.Report = cache.silent) -> str:
    """The folder with what a pom depends on, all of it; fetches it if it is not there."""
    folder = _folder(name, pom)
    if os.path.isdir(folder):
        return folder
    with cache.locked(f"jars-{name}", report=report):
        if not os.path.isdir(folder):
            maven = tools.maven()
            report("fetching its jars with Maven, once")
            with cache.appearing(folder) as filling:
                _fetch(maven, name, pom, filling)
    return folder


def _pom(kind: str) -> str:
    return (importlib.resources.files("ckpt.dev") / "poms" / f"{kind}.xml").read_text(encoding="utf-8")


def _folder(name: str, pom: str) -> str:
    digest = hashlib.sha256(pom.encode()).hexdigest()[:12]
    return cache.folder("jars", f"{name}-{digest}")


def _fetch(maven: str, name: str, pom: str, folder: str) -> None:
    path = os.path.join(folder, "pom.xml")
    cache.write_file(path, pom)
    command = [
        maven,
        "-B",
        "-q",
        "-f",
        path,
        _PLUGIN,
        "-DincludeScope=runtime",
        f"-DoutputDirectory={folder}",
    ]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        errors = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
        reason = (errors or [done.stderr.strip() or f"exit code {done.returncode}"])[0]
        raise tools.MissingToolError(
            f"Maven could not fetch the jars of {name}: {reason.removeprefix('[ERROR] ')}; "
            f"check the network and Maven's settings.xml, then try again",
            package=None,
        )
