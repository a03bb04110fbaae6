"""`rebalance`: which keys would move where, and where the keys of a Spark query are."""

from __future__ import annotations

import click

from ckpt.cli.lazily import ImportsWhenAsked

_PLACING = "ckpt.cli.rebalance.placing"
_COMMANDS = {
    "home": _PLACING,
    "plan": "ckpt.cli.rebalance.plan",
    "scale": _PLACING,
    "simulate": "ckpt.cli.rebalance.simulate",
    "status": "ckpt.cli.rebalance.status",
    "verify": _PLACING,
}


@click.group(cls=ImportsWhenAsked, modules=_COMMANDS)
def rebalance() -> None:
    """Spread the keys of a stream over its instances by load."""
