"""From `fsspec+PROTOCOL://` options to a filesystem, and to an address that shows no secret.

`fs.NAME=value` goes to the filesystem as its argument NAME. `true`, `false`, `{…}` and `[…]` are read as
JSON, all else is text. Whatever may be a secret, by its name, is left out of the address that a store shows
and is opened again with: credentials belong in the environment, where every driver looks for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import fsspec
from fsspec.registry import known_implementations

from ckpt.contract.addresses import suggestion
from ckpt.errors import ConfigError
from ckpt_backends.objects.drivers import S3

FS_OPTION = "fs."
_EXTRAS = dict.fromkeys(S3, "ckpt[s3]")
_SECRET = re.compile(
    r"(^|_)(key|secret|token|password|passphrase|passwd|credentials?|connection_string|sas|username)(_|$)"
)
_USER_INFO = re.compile(r"(?<=://)[^/@\s\"]*@")


def filesystem_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for the filesystem among all options.

    Examples
    --------
    >>> filesystem_arguments({"fs.anon": "true", "fs.endpoint_url": "http://host", "retry_s": "1"})
    {'anon': True, 'endpoint_url': 'http://host'}
    """
    return {n.removeprefix(FS_OPTION): _parsed(v) for n, v in options.items() if n.startswith(FS_OPTION)}


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options for the filesystem as an address may show them: without secrets, also inside of JSON.

    Examples
    --------
    >>> shown_options({"fs.key": "AKIA", "fs.secret": "hush", "fs.endpoint_url": "http://me:hush@host"})
    {'fs.endpoint_url': 'http://host'}
    >>> shown_options({"fs.client_kwargs": '{"region_name":"eu-west-1","aws_secret_access_key":"hush"}'})
    {'fs.client_kwargs': '{"region_name":"eu-west-1"}'}
    """
    shown = {}
    for name, value in options.items():
        if name.startswith(FS_OPTION) and not _SECRET.search(name.removeprefix(FS_OPTION).lower()):
            parsed = _parsed(value)
            if isinstance(parsed, (dict, list)):
                value = json.dumps(_without_secrets(parsed), separators=(",", ":"))
            shown[name] = _USER_INFO.sub("", value)
    return shown


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {n: _without_secrets(v) for n, v in value.items() if not _SECRET.search(str(n).lower())}
    return [_without_secrets(each) for each in value] if isinstance(value, list) else value


def check_s3_place(place: str) -> None:
    """Raise ConfigError unless the place is a bucket, or a bucket and a path."""
    bucket, *parts = place.strip("/").split("/")
    if "@" in bucket:
        raise ConfigError("no bucket has an @ in its name; credentials belong in the environment")
    if "" in parts:
        # S3 takes it for another place than the path without it, and some compatible stores do not.
        raise ConfigError(f"s3://{place} has an empty part in its path; leave out the second slash")


def open_filesystem(protocol: str, arguments: Mapping[str, Any], *, address: str, timeout_s: float) -> Any:
    """A filesystem of its own for one handle: nothing of it is shared or cached between handles."""
    if protocol not in fsspec.available_protocols():
        raise ConfigError(
            f"fsspec knows no protocol {protocol!r}; {suggestion(protocol, fsspec.available_protocols())}"
        )
    try:
        fsspec.get_filesystem_class(protocol)
        if protocol in S3:
            from ckpt_backends.objects.s3 import s3_arguments

            arguments = s3_arguments(arguments, timeout_s)
        # Caches of listings and instances are for datasets that do not change under their reader.
        return fsspec.filesystem(protocol, use_listings_cache=False, skip_instance_cache=True, **arguments)
    except ImportError as error:
        package = _EXTRAS.get(protocol) or known_implementations[protocol]["class"].partition(".")[0]
        raise ConfigError(
            f"fsspec+{protocol} needs a package that is not installed; "
            f"install it with: pip install '{package}'"
        ) from error
    except ConfigError:
        raise
    except (TypeError, ValueError, KeyError) as error:
        raise ConfigError(f"the filesystem of {address} takes no such options: {error}") from error


def _parsed(value: Any) -> Any:
    if isinstance(value, str) and (
        value in ("true", "false") or re.fullmatch(r"[{\[].*[}\]]", value, re.DOTALL)
    ):
        try:
            return json.loads(value)
        except ValueError as error:
            raise ConfigError(f"an option fs.… that starts with {{ or [ is JSON: {error}") from error
    return value
