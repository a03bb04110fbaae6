"""What is installed: `backends`."""

from __future__ import annotations

import click

from ckpt.cli.look import json_option
from ckpt.cli.show import print_json, print_table
from ckpt.contract.registry import load_factory, schemes
from ckpt.errors import ConfigError


@click.command()
@json_option
def backends(as_json: bool) -> None:
    """List the schemes that an ADDRESS may start with, and what is missing to use one."""
    rows = []
    for scheme in schemes():
        try:
            factory = load_factory(scheme)
        except ConfigError as error:
            rows.append((scheme, False, str(error)))
        else:
            rows.append((scheme, True, (factory.__doc__ or "").strip().partition("\n")[0]))
    if as_json:
        for scheme, ready, about in rows:
            print_json({"scheme": scheme, "available": ready, "about": about})
    else:
        print_table(["scheme", "about"], [(scheme, about) for scheme, _, about in rows])
