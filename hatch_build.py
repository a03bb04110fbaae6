"""Compiles the log's native half into a wheel or an editable install, where there is a C compiler.

Without one, without Python's headers, or with CKPT_PURE=1 in the environment, the package is built without it
and does the same, only slower.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sysconfig
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "backends/ckpt_backends/engine"
MODULE = "_native.abi3.so"
FLAGS = ["-O3", "-g0", "-fPIC", "-shared", "-fvisibility=hidden"]


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds the compiled module to what is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are gathered."""
        if self.target_name != "wheel" or os.environ.get("CKPT_PURE", "0") not in ("", "0"):
            return
        folder = os.path.join(self.root, FOLDER)
        if version == "editable":
            self._compile(folder, os.path.join(folder, MODULE))
            return
        self._aside = tempfile.TemporaryDirectory()
        module = os.path.join(self._aside.name, MODULE)
        if self._compile(folder, module):
            build_data["force_include"][module] = f"ckpt_backends/engine/{MODULE}"
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{_platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled aside."""
        del version, build_data, artifact_path
        if hasattr(self, "_aside"):
            self._aside.cleanup()

    def _compile(self, folder: str, module: str) -> bool:
        compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
        command = [*shlex.split(compiler), *FLAGS, f"-I{sysconfig.get_path('include')}"]
        command += [os.path.join(folder, "native.c"), "-o", module]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", "").splitlines()
            why = next((line for line in said if "error" in line), f"{command[0]} is missing or fails")
            self.app.display_warning(f"ckpt is built without its compiled half, so reads are slower: {why}")
            return False
        return True


def _platform() -> str:
    """The tag of what runs what was compiled here: machines with this C library or a newer one."""
    machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    library, version = platform.libc_ver()
    if library == "glibc" and machine.startswith("linux_"):
        return f"many{machine}".replace("linux_", f"linux_{version.replace('.', '_')}_", 1)
    return machine
