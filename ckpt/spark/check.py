"""Whether executors on this machine can keep state at an address: found out before a query starts.

It does what an executor does: starts a sidecar, or finds the one that runs, and is let in. So whatever stands
in the way is said here in one line: a Python without ckpt or without the driver of the backend, a server that
does not answer or refuses the password, a log that another process writes. Where executors use a sidecar that
runs already, whether that one lets them in.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import subprocess
import threading

from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt.sidecar.client import SidecarClient

_READY = "READY "
_WITHIN_S = 120.0
_SIDECAR_WITHIN_S = 10.0
_EXIT_UNAVAILABLE = 3
"""What `ckpt serve` ends with if its store does not answer; everything else is wrong use."""


def check_address(address: str, python: str) -> None:
    """Return if a sidecar of `python` serves the store at `address` on this machine.

    ConfigError if that can never work, BackendUnavailableError if it does not now.
    """
    try:
        sidecar = subprocess.Popen(
            [python, "-m", "ckpt", "serve", "--on-demand", "--grace", "0.2", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
        )
    except OSError as error:
        raise ConfigError(
            f"cannot start {python}: {error.strerror}; name the Python that has ckpt on every executor"
        ) from error
    too_late = threading.Timer(_WITHIN_S, sidecar.kill)
    too_late.start()
    try:
        _ask(sidecar, address, python)
    finally:
        too_late.cancel()
        assert sidecar.stdin is not None
        assert sidecar.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            sidecar.stdin.close()
        sidecar.stdout.close()
        # It ends now, unless an executor has found it meanwhile; then it is that one's, and waited for here.
        threading.Thread(target=sidecar.wait, name="ckpt-check-sidecar", daemon=True).start()


def check_sidecar(name: str, token: str, ca: str | os.PathLike[str] | None) -> None:
    """Return if the sidecar at HOST:PORT accepts this token; errors as of `check_address`."""
    try:
        tls = None if ca is None else ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot read the certificates in {ca}: {error}; name a PEM file") from error
    try:
        with SidecarClient(name, token=token, tls=tls, timeout_s=_SIDECAR_WITHIN_S) as client:
            client.ping()
    except BackendUnavailableError as error:
        raise BackendUnavailableError(
            f"no sidecar lets us in at {name}: {error}; start one there with: ckpt serve ADDRESS "
            f"--listen {name}, {'with' if ca else 'without'} TLS, or correct the name"
        ) from error


def _ask(sidecar: subprocess.Popen[str], address: str, python: str) -> None:
    assert sidecar.stdin is not None
    assert sidecar.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # then its output says why
        # An address may hold a secret, and everybody on the host can read a command line.
        sidecar.stdin.write(f"{address}\n")
        sidecar.stdin.flush()
    said = "nothing"
    for line in sidecar.stdout:
        if line.startswith(_READY):
            with SidecarClient(line.removeprefix(_READY).strip(), timeout_s=_WITHIN_S) as client:
                client.ping()
            return
        said = line.strip() or said
    code = sidecar.wait()
    if "No module named" in said:
        raise ConfigError(
            f"{python} cannot run ckpt ({said}); install it there, or name the Python that has it"
        )
    kind = BackendUnavailableError if code == _EXIT_UNAVAILABLE else ConfigError
    raise kind(f"{said.removeprefix('ckpt: ')} (asked by {python})")
