"""Commands that look and change nothing: `ls`, `cat`, `versions` and `stats`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import click

from ckpt.cli.show import jsonable, key_parameter, print_json, print_table, shown, shown_name
from ckpt.cli.spark_stores import Listed, listing, rows, state_keys
from ckpt.cli.stores import address_parameter, require_namespace
from ckpt.contract.backend import Backend
from ckpt.contract.opening import open_to_read
from ckpt.errors import ConfigError, SerializationError, shown_key
from ckpt.spark.catalogue import StoreName, StoreVersion
from ckpt.spark.selection import newest_of_all, within
from ckpt.values.envelope import FLAG_AES_GCM, FORMAT, HEADER, OVERHEAD_BYTES, ValueCodec
from ckpt.values.keyring import Keyring

version_option = click.option("--version", type=click.IntRange(0), help="As of this version.")
commit_option = click.option("--commit", "commit_id", help="On the chain that ends in this commit.")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document per line.")
raw_option = click.option("--raw", is_flag=True, help="The stored bytes, whatever they are.")
family_option = click.option("--family", help="Only this column family of a Spark store.")


@click.command()
@click.argument("address", callback=address_parameter)
@click.argument("namespace", required=False)
@click.option("--prefix", callback=key_parameter, default="", help="Only stored keys that start with this.")
@click.option("--limit", type=click.IntRange(0), help="Stop after this many.")
@click.option("--long", is_flag=True, help="Every partition of a Spark store on its own line.")
@family_option
@raw_option
@version_option
@commit_option
@json_option
def ls(
    address: str,
    namespace: str | None,
    prefix: bytes,
    limit: int | None,
    long: bool,
    family: str | None,
    raw: bool,
    version: int | None,
    commit_id: str | None,
    as_json: bool,
) -> None:
    """List the namespaces of a store, or the keys of a namespace.

    NAMESPACE may also be what namespaces begin with, up to a slash: then these are listed.
    """
    with open_to_read(address) as backend:
        names = backend.namespaces() if namespace is None else within(backend, namespace)
        if namespace is None or names != [namespace]:
            if prefix or version is not None or commit_id or family or raw:
                raise click.UsageError("--prefix, --family, --raw, --version and --commit need a NAMESPACE")
            _print_names(islice(listing(backend, names, long=long or namespace is not None), limit), as_json)
            return
        if StoreName.parse(namespace) is not None and not (raw or prefix):
            place = StoreVersion(namespace, version, commit_id)
            for row in islice(rows(backend, [place], family=family, key=None), limit):
                of_family = {} if row.only_family else {"family": row.family}
                print_json({**of_family, "key": row.key} if as_json or of_family else row.key)
            return
        found = backend.scan(namespace, prefix=prefix, version=version, commit_id=commit_id)
        for key, value in islice(found, limit):
            if as_json:
                print_json({"key": shown(key), "bytes": len(value)})
            else:
                click.echo(shown(key))


@click.command()
@click.argument("address", callback=address_parameter)
@click.argument("namespace")
@click.argument("key", callback=key_parameter, required=False)
@raw_option
@click.option(
    "--keyring", type=click.Path(exists=True, dir_okay=False), help="File with the keys of encrypted states."
)
@click.option("--allow-plain", is_flag=True, help="With --keyring: show also what is not encrypted.")
@click.option("--limit", type=click.IntRange(0), help="Stop after this many.")
@family_option
@version_option
@commit_option
@json_option
def cat(
    address: str,
    namespace: str,
    key: bytes | None,
    raw: bool,
    keyring: str | None,
    allow_plain: bool,
    limit: int | None,
    family: str | None,
    version: int | None,
    commit_id: str | None,
    as_json: bool,
) -> None:
    """Print the state of one key, or of all, as JSON; a value without an envelope is printed as it is.

    Rows of Spark stores are decoded with their schema. There a KEY is text, or a JSON object of columns, and
    NAMESPACE may be what the namespaces of several partitions begin with.
    """
    if allow_plain and not keyring:
        raise click.UsageError("--allow-plain belongs to --keyring")
    ring = Keyring.from_file(keyring) if keyring else None
    show = partial(_print_state, namespace, keyring=ring, allow_plain=allow_plain, raw=raw)
    with open_to_read(address) as backend:
        names = within(backend, namespace)
        is_stored = (
            key is not None and names == [namespace] and _holds(backend, namespace, key, version, commit_id)
        )
        if not raw and not is_stored and all(StoreName.parse(name) for name in names):
            _print_rows(backend, names, key, family, version, commit_id, limit, as_json)
            return
        require_namespace(backend, namespace)
        if key is None:
            found = backend.scan(namespace, version=version, commit_id=commit_id)
            for one, value in islice(found, limit):
                show(one, value, as_json=True)
            return
        stored = backend.get_many(namespace, [key], version=version, commit_id=commit_id).get(key)
        if stored is None:
            raise ConfigError(_no_such_key(backend, namespace, key))
    show(key, stored, as_json=as_json)


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
    """Show the size of a store and of each namespace.

    The keys of a Spark store are those that Spark counts, as `ckpt ls` shows them.
    """
    with open_to_read(address) as backend:
        found = backend.stats()
        in_spark = {
            row.name: keys
            for row in found.namespaces
            if StoreName.parse(row.name) is not None and (keys := state_keys(backend, [row.name])) is not None
        }
    if as_json:
        rows = [
            {
                "namespace": row.name,
                "keys": in_spark.get(row.name, row.keys),
                "versioned": row.versioned,
                "tip": row.tip,
                "commits": row.commits,
            }
            | ({"stored_rows": row.keys} if row.name in in_spark else {})
            for row in found.namespaces
        ]
        document: dict[str, Any] = {"address": found.address, "stored_bytes": found.stored_bytes}
        print_json({**document, "namespaces": rows, "details": dict(found.details)})
        return
    print_table(
        ["namespace", "keys", "tip", "commits"],
        [
            (
                shown_name(row.name),
                in_spark.get(row.name, row.keys),
                row.tip if row.versioned else "plain",
                row.commits,
            )
            for row in found.namespaces
        ],
    )
    if in_spark:
        stored = sum(row.keys for row in found.namespaces if row.name in in_spark)
        click.echo(f"stored rows of Spark stores: {stored:,} (keys, and what is kept about them)")
    click.echo(f"stored bytes: {found.stored_bytes:,}")
    for name, detail in found.details.items():
        click.echo(
            f"{name.replace('_', ' ')}: {detail:,}" if isinstance(detail, int) else f"{name}: {detail}"
        )


def _print_names(listed: Iterator[Listed], as_json: bool) -> None:
    for line in listed:
        if as_json:
            print_json(line.document())
        else:
            click.echo("  ".join([shown_name(line.name), *line.details()]))


def _print_rows(
    backend: Backend,
    names: list[str],
    key: bytes | None,
    family: str | None,
    version: int | None,
    commit_id: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Rows of Spark stores, of all their partitions as of one version."""
    if version is None and commit_id is None:
        version = newest_of_all(backend, names)
    places = [StoreVersion(name, version, commit_id) for name in names]
    text = None if key is None else key.decode("utf-8", "replace")
    printed = 0
    for row in islice(rows(backend, places, family=family, key=text), limit):
        printed += 1
        where = {"namespace": row.namespace} if as_json else {}
        of_family = {} if row.only_family and not as_json else {"family": row.family}
        print_json({**where, **of_family, "key": row.key, "value": row.value})
    if key is not None and not printed and limit != 0:
        raise ConfigError(_no_such_key(backend, names[0] if len(names) == 1 else f"{names[0]}, …", key))


def _print_state(
    namespace: str,
    key: bytes,
    value: bytes,
    *,
    keyring: Keyring | None,
    allow_plain: bool,
    raw: bool,
    as_json: bool,
) -> None:
    if keyring and not (allow_plain or raw or _is_encrypted(value)):
        raise SerializationError(
            f"key {shown_key(key)} of namespace {namespace!r} is not encrypted, so it may be forged; "
            f"--allow-plain shows it as it is"
        )
    if raw or not _has_envelope(value):
        if as_json:
            print_json({"key": shown(key), "raw": shown(value)})
        else:
            sys.stdout.buffer.write(value)
            sys.stdout.buffer.flush()
        return
    # Migrators belong to the application; the command shows the state in the version it was written.
    schema_version = HEADER.unpack_from(value)[4]
    codec = ValueCodec(schema_version=schema_version, keyring=keyring, allow_plain=allow_plain)
    state = codec.decode(value, namespace=namespace, key=key)
    print_json({"key": shown(key), "state": jsonable(state)} if as_json else jsonable(state))


def _holds(backend: Backend, namespace: str, key: bytes, version: int | None, commit_id: str | None) -> bool:
    return key in backend.get_many(namespace, [key], version=version, commit_id=commit_id)


def _has_envelope(value: bytes) -> bool:
    """Whether it claims to be one. What claims so and is damaged is an error, not a raw value."""
    if len(value) < OVERHEAD_BYTES:
        return False
    form, flags, serializer_id, reserved, version = HEADER.unpack_from(value)
    return bool(form == FORMAT and flags <= 3 and 1 <= serializer_id <= 3 and reserved == 0 and version > 0)


def _is_encrypted(value: bytes) -> bool:
    return _has_envelope(value) and bool(value[1] & FLAG_AES_GCM)


def _no_such_key(backend: Backend, namespace: str, key: bytes) -> str:
    return (
        f"no key {shown_key(key)} in namespace {namespace!r} of {backend.address}; "
        f"`ckpt ls ADDRESS NAMESPACE` lists the keys"
    )
