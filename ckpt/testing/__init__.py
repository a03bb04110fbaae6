"""The instruments that ckpt tests its own backends with, for authors of other backends.

- `BackendConformance`: the contract of a backend, sentence by sentence, as a pytest class to subclass.
- `backend_machine`: a Hypothesis state machine that compares a backend with a plain dict model.
- `RecordingDisk` and `crash_states`: what a directory may look like after a power failure at any instant.
- `FaultyDisk` and `each_fault`: every system call fails once.
- `survives_crashes` and `survives_faults`: both of these for a whole scenario, in one call.
- `NetworkConformance`: a store behind a network that misbehaves, as a pytest class to subclass.
- `KillConformance`: a server that is killed and frozen under load, as a pytest class to subclass.
- `TcpProxy`: delays, cuts, half-closes and freezes connections between a client and a real server.
- `server_address` and `own_server`: real servers, shared or for one test alone.
- `FaultyBackend`, `SlowBackend`, `RecordingBackend`, `SilentBackend`: backends that misbehave on request.

The classes and the machine need pytest and Hypothesis, which are imported when they are asked for.

Examples
--------
A third-party backend is tested by a module of this size:

>>> import ckpt
>>> from ckpt.testing import BackendConformance, backend_machine
>>> class TestMine(BackendConformance):
...     scheme = "memory"
...
...     def open_backend(self):
...         return ckpt.open_backend(f"memory://{self.directory}")
>>> class TestMyMachine(backend_machine(lambda directory: ckpt.open_backend(f"memory://{directory}"))):
...     pass
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from ckpt.errors import ConfigError

if TYPE_CHECKING:
    from ckpt.testing.backends import FaultyBackend, RecordingBackend, SilentBackend, SlowBackend
    from ckpt.testing.clock import ManualClock
    from ckpt.testing.conformance import BackendConformance
    from ckpt.testing.crashes import CrashState, crash_states
    from ckpt.testing.disk import Operation, RecordingDisk
    from ckpt.testing.faults import Fault, FaultyDisk, each_fault
    from ckpt.testing.kills import KillConformance
    from ckpt.testing.network import NetworkConformance
    from ckpt.testing.proxy import TcpProxy
    from ckpt.testing.servers import own_server, server_address
    from ckpt.testing.stateful import backend_machine
    from ckpt.testing.survival import observe, survives_crashes, survives_faults

__all__ = [
    "BackendConformance",
    "CrashState",
    "Fault",
    "FaultyBackend",
    "FaultyDisk",
    "KillConformance",
    "ManualClock",
    "NetworkConformance",
    "Operation",
    "RecordingBackend",
    "RecordingDisk",
    "SilentBackend",
    "SlowBackend",
    "TcpProxy",
    "backend_machine",
    "crash_states",
    "each_fault",
    "observe",
    "own_server",
    "server_address",
    "survives_crashes",
    "survives_faults",
]

_HOME = {
    "BackendConformance": "conformance",
    "CrashState": "crashes",
    "Fault": "faults",
    "FaultyBackend": "backends",
    "FaultyDisk": "faults",
    "KillConformance": "kills",
    "ManualClock": "clock",
    "NetworkConformance": "network",
    "Operation": "disk",
    "RecordingBackend": "backends",
    "RecordingDisk": "disk",
    "SilentBackend": "backends",
    "SlowBackend": "backends",
    "TcpProxy": "proxy",
    "backend_machine": "stateful",
    "crash_states": "crashes",
    "each_fault": "faults",
    "observe": "survival",
    "own_server": "servers",
    "server_address": "servers",
    "survives_crashes": "survival",
    "survives_faults": "survival",
}
_NEED_PYTEST = ("BackendConformance", "KillConformance", "NetworkConformance", "backend_machine")
_WITH_ASSERTS = (
    *("harness", "plain", "versions", "owners", "life", "stateful", "model"),
    *("network", "kills", "load", "outcomes"),
)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name in _NEED_PYTEST:
            _explain_failing_asserts()
        module = importlib.import_module(f"{__name__}.{_HOME[name]}")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"ckpt.testing.{name} needs {error.name}; install it with: pip install pytest hypothesis"
        ) from error
    return getattr(module, name)


def _explain_failing_asserts() -> None:
    """Let pytest show the values in a failing assert of these modules, as it does in test files."""
    pytest = importlib.import_module("pytest")
    names = (f"{__name__}.{module}" for module in _WITH_ASSERTS)
    pytest.register_assert_rewrite(*(name for name in names if name not in sys.modules))
