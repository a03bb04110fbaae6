"""Files of results, as the command line writes them, and folders of charts."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ckpt.cli.outputs import only_one, reason_of, refused, require_writable, write_text
from ckpt.errors import ConfigError
from ckpt.plot import Section

__all__ = [
    "only_one",
    "reason_of",
    "refused",
    "require_folder",
    "require_writable",
    "write_charts",
    "write_text",
]


def require_folder(path: str) -> None:
    """Return if files can be written into this folder, which is made; otherwise say what to do."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the folder {path}: {reason_of(error)}; name one that you may write"
        ) from error
    require_writable(os.path.join(path, "chart.svg"))


def write_charts(folder: str, sections: Mapping[str, Section]) -> None:
    """Write the chart of each section to a file of its name, with `.svg` behind it, in the folder."""
    os.makedirs(folder, exist_ok=True)
    for name, section in sections.items():
        write_text(os.path.join(folder, f"{name}.svg"), f"{section.chart}\n")
