"""Tables of settings name every setting, with the default that it has."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import ckpt.rebalance as rb

DOCS = Path(__file__).parents[2] / "docs"
_UNSET = {None: "none", False: "off", frozenset(): "none", (): "none"}


def test_every_setting_of_the_controller_is_there_with_its_default() -> None:
    text = (DOCS / "rebalancing.md").read_text(encoding="utf-8")
    shown = dict(
        re.findall(
            r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", text.partition("## The controller")[2], re.MULTILINE
        )
    )
    defaults = {}
    for field in dataclasses.fields(rb.ControllerOptions):
        value = field.default
        unset = isinstance(value, (bool, frozenset, tuple, type(None)))
        defaults[field.name] = _UNSET[value] if unset else f"{value:g}"
    assert shown == defaults
