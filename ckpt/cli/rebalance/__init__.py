"""`rebalance`: which keys would move where; nothing here changes a store or a query."""

from __future__ import annotations

import click

from ckpt.cli.lazily import ImportsWhenAsked

_COMMANDS = {"plan": "ckpt.cli.rebalance.plan"}


@click.group(cls=ImportsWhenAsked, modules=_COMMANDS)
def rebalance() -> None:
    """Spread the keys of a stream over its instances by load."""
