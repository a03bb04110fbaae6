"""Commands between stores: `copy`, `diff`, and `drop`, which asks first. `ckpt.moving` has the logic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from ckpt.cli.failures import BAD_DATA
from ckpt.cli.look import json_option
from ckpt.cli.show import print_json, print_table, shown, shown_name
from ckpt.cli.stores import address_parameter, require_namespace, require_two_stores
from ckpt.contract.backend import Backend
from ckpt.contract.opening import open_to_read, open_to_write
from ckpt.moving import copying as transfer
from ckpt.spark.catalogue import StoreName
from ckpt.spark.selection import within

namespace_option = click.option(
    "--namespace", "namespaces", multiple=True, help="Only this namespace; may be repeated."
)
claim_option = click.option(
    "--claim",
    is_flag=True,
    help="Take plain namespaces over from an owner that is gone; a live one is fenced.",
)


@click.command()
@click.argument("source", callback=address_parameter)
@click.argument("target", callback=address_parameter)
@namespace_option
@claim_option
@click.option(
    "--overwrite", is_flag=True, help="Make a namespace that holds other data equal to the source's."
)
@json_option
def copy(
    source: str, target: str, namespaces: tuple[str, ...], claim: bool, overwrite: bool, as_json: bool
) -> None:
    """Copy a store, reading everything back; run it again to continue after an interruption."""
    require_two_stores(source, target)
    with open_to_read(source) as from_backend:
        chosen = [require_namespace(from_backend, name) for name in namespaces]
        with open_to_write(target, create=True) as to_backend, _progress_bar() as show:
            for name in chosen or from_backend.namespaces():
                if claim and not from_backend.versions(name):
                    to_backend.claim(name)
            done = transfer.copy(
                from_backend, to_backend, namespaces=chosen or None, overwrite=overwrite, on_progress=show
            )
    if as_json:
        for one in done:
            print_json(
                {
                    "namespace": one.namespace,
                    "copied_keys": one.copied_keys,
                    "present_keys": one.present_keys,
                    "removed_keys": one.removed_keys,
                    "copied_commits": one.copied_commits,
                    "present_commits": one.present_commits,
                    "copied_bytes": one.copied_bytes,
                }
            )
        return
    print_table(
        ["namespace", "copied keys", "commits", "bytes", "already there"],
        [
            (
                shown_name(one.namespace),
                one.copied_keys,
                one.copied_commits,
                one.copied_bytes,
                one.present_keys + one.present_commits,
            )
            for one in done
        ],
    )


@click.command()
@click.argument("source", callback=address_parameter)
@click.argument("target", callback=address_parameter)
@namespace_option
@json_option
@click.pass_context
def diff(ctx: click.Context, source: str, target: str, namespaces: tuple[str, ...], as_json: bool) -> None:
    """Name everything in which two stores differ; exit code 1 if they do."""
    differs = False
    with open_to_read(source) as one, open_to_read(target) as other:
        for difference in transfer.diff(one, other, namespaces=namespaces or None):
            differs = True
            if as_json:
                print_json(
                    {
                        "namespace": difference.namespace,
                        "what": difference.what,
                        "key": shown(difference.key) if difference.key is not None else None,
                        "commit": difference.commit_id,
                        "found": difference.found.value,
                    }
                )
            else:
                click.echo(str(difference))
    if differs:
        ctx.exit(BAD_DATA)


@click.command()
@click.argument("address", callback=address_parameter)
@click.argument("namespace")
@claim_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def drop(ctx: click.Context, address: str, namespace: str, claim: bool, yes: bool) -> None:
    """Remove a namespace with everything in it, for good.

    NAMESPACE may also be what the namespaces of Spark stores begin with, up to a slash: spark/QUERY.
    """
    with open_to_write(address) as backend:
        names = _to_drop(backend, namespace)
        which = f"namespace {namespace!r}"
        if names != [namespace]:
            which = f"{len(names):,} namespaces that begin with {namespace!r}"
        question = f"Remove {which} and all checkpoints in it from {backend.address}?"
        if not yes and not click.confirm(question, err=True):
            click.echo("nothing was dropped", err=True)
            ctx.exit(BAD_DATA)
        for name in names:
            if claim and not backend.versions(name):
                backend.claim(name)
            backend.drop(name)
            click.echo(f"dropped {shown_name(name)}")


def _to_drop(backend: Backend, namespace: str) -> list[str]:
    """Of a Spark query all stores are dropped at once; of others only what is named whole."""
    names = within(backend, namespace)
    return names if all(StoreName.parse(name) for name in names) else [require_namespace(backend, namespace)]


@contextmanager
def _progress_bar() -> Iterator[Callable[[transfer.Progress], None]]:
    """Shows progress where a person watches; in a pipe or a log it stays silent."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        if not bar.console.is_terminal:
            bar.disable = True
        task = bar.add_task("", total=None)

        def show(now: transfer.Progress) -> None:
            commits = f", {now.copied_commits:,} commits" if now.copied_commits else ""
            text = (
                f"{shown_name(now.namespace)}: {now.copied_keys:,} keys{commits}, {now.copied_bytes:,} bytes"
            )
            bar.update(task, description=text)

        yield show
