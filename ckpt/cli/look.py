"""Commands that look and change nothing: `ls`, `cat`, `versions` and `stats`."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

import click

from ckpt.backend import Backend
from ckpt.cli.show import jsonable, key_parameter, print_json, print_table, shown, shown_name
from ckpt.cli.stores import address_parameter, open_to_read, require_namespace
from ckpt.envelope import FORMAT, HEADER, OVERHEAD_BYTES, ValueCodec
from ckpt.errors import ConfigError, shown_key
from ckpt.keyring import Keyring

version_option = click.option("--version", type=click.IntRange(0), help="As of this version.")
commit_option = click.option("--commit", "commit_id", help="On the chain that ends in this commit.")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document per line.")


@click.command()
@click.argument("address", callback=address_parameter)
@click.argument("namespace", required=False)
@click.option("--prefix", callback=key_parameter, default="", help="Only keys that start with this.")
@click.option("--limit", type=click.IntRange(0), help="Stop after this many.")
@version_option
@commit_option
@json_option
def ls(
    address: str,
    namespace: str | None,
    prefix: bytes,
    limit: int | None,
    version: int | None,
    commit_id: str | None,
    as_json: bool,
) -> None:
    """List the namespaces of a store, or the keys of a namespace."""
    if namespace is None and (prefix or version is not None or commit_id):
        raise click.UsageError("--prefix, --version and --commit need a NAMESPACE")
    with open_to_read(address) as backend:
        if namespace is None:
            for name in islice(backend.namespaces(), limit):
                if as_json:
                    print_json({"namespace": name, "versioned": bool(backend.versions(name))})
                else:
                    click.echo(shown_name(name))
            return
        require_namespace(backend, namespace)
        found = backend.scan(namespace, prefix=prefix, version=version, commit_id=commit_id)
        for key, value in islice(found, limit):
            if as_json:
                print_json({"key": shown(key), "bytes": len(value)})
            else:
                click.echo(shown(key))


@click.command()
@click.argument("address", callback=address_parameter)
@click.argument("namespace")
@click.argument("key", callback=key_parameter)
@click.option("--raw", is_flag=True, help="The stored bytes, whatever they are.")
@click.option(
    "--keyring", type=click.Path(exists=True, dir_okay=False), help="File with the keys of encrypted states."
)
@version_option
@commit_option
@json_option
def cat(
    address: str,
    namespace: str,
    key: bytes,
    raw: bool,
    keyring: str | None,
    version: int | None,
    commit_id: str | None,
    as_json: bool,
) -> None:
    """Print the state of one key as JSON; a value without an envelope is printed as it is."""
    with open_to_read(address) as backend:
        require_namespace(backend, namespace)
        value = backend.get_many(namespace, [key], version=version, commit_id=commit_id).get(key)
        if value is None:
            raise ConfigError(_no_such_key(backend, namespace, key))
    ring = Keyring.from_file(keyring) if keyring else None
    if raw or not _has_envelope(value):
        if as_json:
            print_json({"key": shown(key), "raw": shown(value)})
        else:
            sys.stdout.buffer.write(value)
            sys.stdout.buffer.flush()
        return
    state = _decoded(value, namespace, key, ring)
    print_json({"key": shown(key), "state": jsonable(state)} if as_json else jsonable(state))


@click.command()
@click.argument("address", callback=address_parameter)
@click.argument("namespace")
@json_option
def versions(address: str, namespace: str, as_json: bool) -> None:
    """List the commits of a versioned namespace, oldest version first."""
    with open_to_read(address) as backend:
        commits = backend.versions(require_namespace(backend, namespace))
        if not commits:
            raise ConfigError(f"namespace {namespace!r} of {backend.address} is plain: it has no versions")
    if as_json:
        for commit in commits:
            print_json({"version": commit.version, "commit": commit.id, "base": commit.base})
    else:
        print_table(["version", "commit", "base"], [(c.version, c.id, c.base) for c in commits])


@click.command()
@click.argument("address", callback=address_parameter)
@json_option
def stats(address: str, as_json: bool) -> None:
    """Show the size of a store and of each namespace."""
    with open_to_read(address) as backend:
        found = backend.stats()
    if as_json:
        rows = [
            {
                "namespace": row.name,
                "keys": row.keys,
                "versioned": row.versioned,
                "tip": row.tip,
                "commits": row.commits,
            }
            for row in found.namespaces
        ]
        document: dict[str, Any] = {"address": found.address, "stored_bytes": found.stored_bytes}
        print_json({**document, "namespaces": rows, "details": dict(found.details)})
        return
    print_table(
        ["namespace", "keys", "tip", "commits"],
        [
            (shown_name(row.name), row.keys, row.tip if row.versioned else "plain", row.commits)
            for row in found.namespaces
        ],
    )
    click.echo(f"stored bytes: {found.stored_bytes:,}")
    for name, detail in found.details.items():
        click.echo(
            f"{name.replace('_', ' ')}: {detail:,}" if isinstance(detail, int) else f"{name}: {detail}"
        )


def _has_envelope(value: bytes) -> bool:
    """Whether it claims to be one. What claims so and is damaged is an error, not a raw value."""
    if len(value) < OVERHEAD_BYTES:
        return False
    form, flags, serializer_id, reserved, version = HEADER.unpack_from(value)
    return bool(form == FORMAT and flags <= 3 and 1 <= serializer_id <= 3 and reserved == 0 and version > 0)


def _decoded(value: bytes, namespace: str, key: bytes, keyring: Keyring | None) -> Any:
    # Migrators belong to the application; the command shows the state in the version it was written.
    schema_version = HEADER.unpack_from(value)[4]
    return ValueCodec(schema_version=schema_version, keyring=keyring).decode(
        value, namespace=namespace, key=key
    )


def _no_such_key(backend: Backend, namespace: str, key: bytes) -> str:
    return (
        f"no key {shown_key(key)} in namespace {namespace!r} of {backend.address}; "
        f"`ckpt ls ADDRESS NAMESPACE` lists the keys"
    )
