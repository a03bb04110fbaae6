"""`spark`: what a Spark session needs to keep its state in a backend. The provider is `ckpt.spark`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import click

from ckpt.cli.failures import OneLineErrors
from ckpt.cli.spark_move import export, import_
from ckpt.contract.addresses import parse_address
from ckpt.contract.registry import load_factory
from ckpt.dev import tools
from ckpt.spark import Reach, RunningSidecar, provider_jar, session_settings
from ckpt.spark.check import check_address
from ckpt.spark.existing_settings import existing_settings, extended
from ckpt.spark.jar import LEAST_JAVA, spark_home
from ckpt.spark.settings import address_of, is_of_one_machine, require_known


def _sidecar_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--sidecar-ca", metavar="FILE", help="What vouches for it; none: no TLS."),
        click.option("--sidecar-token", metavar="env:NAME", help="Its token; default: env:CKPT_TOKEN."),
        click.option(
            "--sidecar", metavar="HOST:PORT", help="A sidecar that serves ADDRESS already, over TCP."
        ),
    ):
        command = option(command)
    return command


def _running(sidecar: str | None, token: str | None, ca: str | None) -> RunningSidecar | None:
    if sidecar is None:
        if token or ca:
            raise click.UsageError("--sidecar-token and --sidecar-ca belong to --sidecar")
        return None
    return RunningSidecar(sidecar, ca=ca, **({} if token is None else {"token": token}))


@click.group(cls=OneLineErrors)
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
    help="everywhere: a path is shared storage on every host; host: all executors run on one host.",
)
@_sidecar_options
def conf(
    address: str,
    master: str | None,
    python: str | None,
    reach: str,
    sidecar: str | None,
    sidecar_token: str | None,
    sidecar_ca: str | None,
) -> None:
    """Print the settings as lines for spark-defaults.conf; jars and extensions that it names stay in them.

    An ADDRESS with a secret does not belong into settings: write env:NAME for an environment variable that
    holds it on every executor.
    """
    running = _running(sidecar, sidecar_token, sidecar_ca)
    existing = existing_settings()
    require_known(existing)
    master = master or existing.get("spark.master")
    settings = session_settings(address, master=master, python=python, reach=reach, sidecar=running)
    settings = extended(settings, existing)
    if master is None and running is None and reach == Reach.AUTO and is_of_one_machine(address):
        click.echo(
            f"ckpt: these settings are for Spark on this machine, as {parse_address(address)} is; "
            "if executors run elsewhere, name their --master",
            err=True,
        )
    width = max(map(len, settings))
    for name, value in settings.items():
        click.echo(f"{name:<{width}}  {value}")


@spark.command()
@click.argument("address")
@click.option("--python", default=sys.executable, help="The Python that has ckpt; default: this one.")
@_sidecar_options
def check(
    address: str, python: str, sidecar: str | None, sidecar_token: str | None, sidecar_ca: str | None
) -> None:
    """Try everything on this machine that a query with its state at ADDRESS needs, and say what is missing.

    Run it on the driver's host and on an executor's, with the environment that Spark has there.
    """
    running = _running(sidecar, sidecar_token, sidecar_ca)
    home = spark_home()
    tools.require_java_of_the_environment("Spark", LEAST_JAVA)
    click.echo(f"Spark {home.version} in {os.path.dirname(home.jars)}")
    click.echo(f"provider {provider_jar(report=lambda line: click.echo(line, err=True))}")
    if running is not None:
        running.check()
        click.echo(f"the sidecar at {running.name} lets us in")
        return
    store = address_of(address)
    load_factory(parse_address(store).scheme)
    check_address(store, python)
    click.echo(f"a sidecar of {python} serves {parse_address(store)}")


spark.add_command(import_)
spark.add_command(export)
