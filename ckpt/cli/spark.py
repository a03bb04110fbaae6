"""`spark`: what a Spark session needs to keep its state in a backend. The provider is `ckpt.spark`."""

from __future__ import annotations

import click

from ckpt.cli.failures import FailsInOneLine
from ckpt.spark import Reach, provider_jar, session_settings


@click.group(cls=FailsInOneLine)
def spark() -> None:
    """Set Spark up to keep the state of streaming queries in a store."""


@spark.command()
def jar() -> None:
    """Print the path of the provider's jar for the installed Spark; build it first if need be."""
    click.echo(provider_jar(report=lambda line: click.echo(line, err=True)))


@spark.command()
@click.argument("address")
@click.option("--master", help="The master of the session, to check that its executors reach ADDRESS.")
@click.option("--python", help="The Python that has ckpt on every executor.")
@click.option(
    "--reach",
    type=click.Choice([r.value for r in Reach]),
    default=Reach.AUTO.value,
    show_default=True,
    help="everywhere: a path is shared storage on every host.",
)
def conf(address: str, master: str | None, python: str | None, reach: str) -> None:
    """Print the settings as lines for spark-defaults.conf.

    An ADDRESS with a secret does not belong into settings: write env:NAME for an environment variable that
    holds it on every executor.
    """
    settings = session_settings(address, master=master, python=python, reach=reach)
    width = max(map(len, settings))
    for name, value in settings.items():
        click.echo(f"{name:<{width}}  {value}")
