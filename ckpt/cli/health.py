"""Commands for a store's health: `verify` looks, `repair` mends, `gc` reclaims."""

from __future__ import annotations

import click

from ckpt.cli.failures import BAD_DATA
from ckpt.cli.look import json_option
from ckpt.cli.show import print_json, shown
from ckpt.cli.stores import address_parameter
from ckpt.contract.backend import BadRecord, Compacts, Repairs
from ckpt.contract.opening import open_to_read, open_to_write
from ckpt.errors import UnsupportedError


@click.command()
@click.argument("address", callback=address_parameter)
@json_option
@click.pass_context
def verify(ctx: click.Context, address: str, as_json: bool) -> None:
    """Read everything and name each bad record; exit code 1 if there is one."""
    bad = 0
    with open_to_read(address) as backend:
        for record in backend.verify():
            bad += 1
            if as_json:
                print_json(_as_json(record))
            else:
                click.echo(str(record))
        shown_address = backend.address
        following = "ckpt repair" if isinstance(backend, Repairs) else "put back what a copy of the store has"
    if as_json:
        print_json({"address": shown_address, "bad_records": bad})
    else:
        click.echo(f"{bad} bad record{'s' * (bad != 1)}; next: {following}" if bad else "no bad records")
    if bad:
        ctx.exit(BAD_DATA)


@click.command()
@click.argument("address", callback=address_parameter)
@json_option
def repair(address: str, as_json: bool) -> None:
    """Rebuild what can be rebuilt and set bad records aside; nothing is destroyed."""
    with open_to_write(address) as backend:
        if not isinstance(backend, Repairs):
            raise UnsupportedError(f"{backend.address} cannot repair itself; copy what is readable elsewhere")
        report = backend.repair()
    if as_json:
        print_json(
            {
                "kept_records": report.kept_records,
                "quarantined": [_as_json(record) for record in report.quarantined],
                "quarantine": report.quarantine,
            }
        )
        return
    for record in report.quarantined:
        click.echo(f"quarantined {record}")
    click.echo(f"kept records: {report.kept_records:,}")
    if report.quarantine:
        click.echo(f"what was set aside lies in {report.quarantine}")


@click.command()
@click.argument("address", callback=address_parameter)
@json_option
def gc(address: str, as_json: bool) -> None:
    """Reclaim the space of garbage now."""
    with open_to_write(address) as backend:
        if not isinstance(backend, Compacts):
            if as_json:
                print_json({"address": backend.address, "bytes_before": None, "bytes_after": None})
            else:
                click.echo(f"{backend.address} keeps no garbage: nothing to do")
            return
        report = backend.compact()
        shown_address = backend.address
    if as_json:
        print_json(
            {
                "address": shown_address,
                "bytes_before": report.bytes_before,
                "bytes_after": report.bytes_after,
                "bytes_written": report.bytes_written,
                "seconds": report.seconds,
            }
        )
    else:
        click.echo(
            f"{report.bytes_before:,} bytes before, {report.bytes_after:,} after "
            f"({report.bytes_written:,} written in {report.seconds:.1f} s)"
        )


def _as_json(record: BadRecord) -> dict[str, str | None]:
    return {
        "place": record.place,
        "namespace": record.namespace,
        "key": shown(record.key) if record.key is not None else None,
        "reason": record.reason,
    }
