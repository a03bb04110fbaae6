"""A group of commands that imports the module of one when it is asked for, and of no other.

A sidecar is started with `ckpt serve` while a query waits for it: a third of what the imports of all commands
take is not needed for that.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import click

from ckpt.cli.failures import OneLineErrors


class _Commands(MutableMapping[str, click.Command]):
    """Commands by name; a name is there at once, its command when it is first looked up."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._found: dict[str, click.Command | None] = dict.fromkeys(modules)
        self._modules = modules

    def __getitem__(self, name: str) -> click.Command:
        command = self._found[name]
        if command is None:
            command = self._found[name] = getattr(importlib.import_module(self._modules[name]), name)
        return command

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._found[name] = command

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class ImportsWhenAsked(OneLineErrors):
    """Its commands are named by `modules`: name → the module that has a command of that name."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands = _Commands(modules)
