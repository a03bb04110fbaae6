"""The whole contract over the server interface, held by a server in this process."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from ckpt.contract.backend import Backend
from ckpt.testing import BackendConformance, backend_machine
from tests.effort import effort


class TestCells(BackendConformance):
    scheme = "cells"
    every_cell: ClassVar[bool] = True
    grace_s: ClassVar[float] = 60

    @pytest.fixture(autouse=True)
    def _server(self, shelves) -> None:
        self.shelves = shelves

    def open_backend(self) -> Backend:
        return self.shelves.open(every_cell=self.every_cell, grace_s=self.grace_s)


class TestCellsWithoutGrace(TestCells):
    grace_s = 0


class TestNewestCellsOnly(TestCells):
    every_cell = False
    grace_s = 0


@pytest.fixture(scope="module", autouse=True)
def _servers_of_machines(request) -> None:
    conftest = next(p for p in request.config.pluginmanager.get_plugins() if hasattr(p, "NewestOnlyServer"))
    SERVERS.factory = conftest.Shelves


class _Servers:
    """One server per directory of a machine."""

    factory: type

    def __init__(self) -> None:
        self.by_directory = {}

    def open(self, directory: Path, **options: object) -> Backend:
        if directory not in self.by_directory:
            self.by_directory[directory] = self.factory()
        return self.by_directory[directory].open(**options)


SERVERS = _Servers()


class TestCellsMachine(
    backend_machine(
        lambda directory: SERVERS.open(directory, grace_s=0),
        max_examples=effort(15, 300),
    )
):
    pass


class TestNewestCellsOnlyMachine(
    backend_machine(
        lambda directory: SERVERS.open(directory, every_cell=False, grace_s=0), max_examples=effort(15, 300)
    )
):
    pass
