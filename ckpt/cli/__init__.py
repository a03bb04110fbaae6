"""The `ckpt` command: looks at, checks, mends, copies and compares stores behind any address.

Looking never disturbs a running writer and never creates anything. What each exit code means is in
`ckpt.cli.failures`.
"""

from __future__ import annotations

import click

import ckpt
from ckpt.cli.about import backends
from ckpt.cli.demonstrate import demo
from ckpt.cli.dev import dev
from ckpt.cli.failures import FailsInOneLine
from ckpt.cli.health import gc, repair, verify
from ckpt.cli.look import cat, ls, stats, versions
from ckpt.cli.move import copy, diff, drop
from ckpt.cli.serve import serve
from ckpt.cli.spark import spark

__all__ = ["main"]


@click.group(cls=FailsInOneLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(ckpt.__version__, prog_name="ckpt")
def main() -> None:
    """Checkpoint storage for stream state.

    An ADDRESS names a store: log:///var/ckpt, file:///var/ckpt, fsspec+s3://bucket/path. `ckpt backends`
    lists the schemes. A KEY is text, or hex:… or base64:… for bytes.

    Exit codes: 0 done; 1 bad records, differences, or not confirmed; 2 wrong use; 3 store unavailable.
    """


for _command in (
    ls,
    cat,
    versions,
    stats,
    verify,
    repair,
    gc,
    copy,
    diff,
    drop,
    backends,
    demo,
    serve,
    spark,
    dev,
):
    main.add_command(_command)
