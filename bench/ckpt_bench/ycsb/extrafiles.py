"""Files beside the results: what the disk refuses costs the file, never the run or its results."""

from __future__ import annotations

import contextlib

from ckpt_bench.outputs import reason_of


class ExtraFile:
    """A text file that is written while the run goes on, until the disk refuses; `refusal` then says why."""

    def __init__(self, path: str, mode: str) -> None:
        self.path, self.refusal = path, ""
        try:
            self._file = open(path, mode, encoding="utf-8")  # noqa: SIM115 - open as long as the run
        except OSError as error:
            self.refusal = reason_of(error)

    def write(self, text: str) -> None:
        """Add the text, unless the file was given up; what is missing in the middle would mislead."""
        if self.refusal:
            return
        try:
            self._file.write(text)
        except OSError as error:
            self.refusal = reason_of(error)
            with contextlib.suppress(OSError):  # it tries once more to write what it has kept
                self._file.close()

    def close(self) -> None:
        """Write what is still kept in memory."""
        if self.refusal:
            return
        try:
            self._file.close()
        except OSError as error:
            self.refusal = reason_of(error)


class ExtraFiles:
    """All of them, and one line for each way in which some were refused."""

    def __init__(self) -> None:
        self._files: list[ExtraFile] = []

    def open(self, path: str, mode: str = "w") -> ExtraFile:
        """A file that is closed together with the others."""
        file = ExtraFile(path, mode)
        self._files.append(file)
        return file

    def close(self) -> None:
        """Write what is still kept in memory."""
        for file in self._files:
            file.close()

    def refusals(self) -> list[str]:
        """Which files are not whole, why, and what to do."""
        paths: dict[str, dict[str, None]] = {}
        for file in self._files:
            if file.refusal:
                paths.setdefault(file.refusal, {})[file.path] = None
        return [
            f"cannot write {', '.join(files)}: {reason}; the results are whole: "
            "for the files make room or name another place, and run again"
            for reason, files in paths.items()
        ]
