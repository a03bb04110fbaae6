"""`bench`: comparisons with others. They are in a package of their own, which nothing here imports."""

from __future__ import annotations

import click

from ckpt.cli.lazily import ImportsWhenAsked

_BENCHES = {
    "compare": "ckpt_bench.compare.command",
    "growth": "ckpt_bench.growth.command",
    "load": "ckpt_bench.ycsb.command",
    "plan": "ckpt_bench.rebalance.command",
    "reproduce": "ckpt_bench.reproduce.command",
    "run": "ckpt_bench.ycsb.command",
    "spark": "ckpt_bench.spark.command",
}


@click.group(cls=ImportsWhenAsked, modules=_BENCHES)
def bench() -> None:
    """Compare ckpt with others: in turn, in one run, at equal durability."""
