"""The `ckpt` command: looks at, checks, mends, copies and compares stores behind any address.

Looking never disturbs a running writer and never creates anything. What each exit code means is in
`ckpt.cli.failures`.
"""

from __future__ import annotations

import click

import ckpt
from ckpt.cli.lazily import ImportsWhenAsked

__all__ = ["main"]

_COMMANDS = {
    "backends": "ckpt.cli.backends",
    "bench": "ckpt.cli.bench",
    "cat": "ckpt.cli.look",
    "copy": "ckpt.cli.move",
    "demo": "ckpt.cli.demonstrate",
    "dev": "ckpt.cli.dev",
    "diff": "ckpt.cli.move",
    "drop": "ckpt.cli.move",
    "gc": "ckpt.cli.health",
    "ls": "ckpt.cli.look",
    "rebalance": "ckpt.cli.rebalance",
    "repair": "ckpt.cli.health",
    "serve": "ckpt.cli.serve",
    "spark": "ckpt.cli.spark",
    "stats": "ckpt.cli.look",
    "verify": "ckpt.cli.health",
    "versions": "ckpt.cli.look",
}
"""Name → the module that has the command."""


@click.group(
    cls=ImportsWhenAsked, modules=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(ckpt.__version__, prog_name="ckpt")
def main() -> None:
    """Checkpoint storage for stream state.

    An ADDRESS names a store: log:///var/ckpt, file:///var/ckpt, fsspec+s3://bucket/path. `ckpt backends`
    lists the schemes. A KEY is text, or hex:… or base64:… for bytes.

    Exit codes: 0 done; 1 bad records, differences, or not confirmed; 2 wrong use; 3 store unavailable.
    """
