"""What docs/backends.md says about each backend is what the code says."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ckpt
from ckpt.contract.addresses import build_options
from ckpt.contract.registry import load_factory
from ckpt_backends.cassandra import CassandraOptions
from ckpt_backends.file.backend import FileOptions
from ckpt_backends.hbase import HBaseOptions
from ckpt_backends.log import LogOptions
from ckpt_backends.memory import MemoryOptions
from ckpt_backends.objects.backend import FsspecOptions
from ckpt_backends.redis import RedisOptions

PAGE = (Path(__file__).parents[2] / "docs" / "backends.md").read_text(encoding="utf-8")
ADDRESSES = {
    "memory": "memory://",
    "file": "file://{}/file",
    "log": "log://{}/log",
    "fsspec": "fsspec+file://{}/objects",
}
OPTIONS = {
    "memory": MemoryOptions,
    "file": FileOptions,
    "log": LogOptions,
    "fsspec": FsspecOptions,
    "cassandra": CassandraOptions,
    "hbase": HBaseOptions,
    "redis": RedisOptions,
}
SERVERS = {"cassandra", "hbase", "redis"}
"""Those whose capabilities are the same on every server, so that none is needed to ask."""


def section(title: str) -> str:
    """The part of the page below a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"docs/backends.md has no section {title!r}"
    return found[1]


def table(title: str) -> Iterator[dict[str, str]]:
    """The rows of the first table below a heading, by column; code quotes are left out."""
    rows = re.findall(r"^\| (.*) \|$", section(title), re.MULTILINE)
    head, _, *body = [[cell.strip().replace("`", "") for cell in row.split(" | ")] for row in rows]
    for cells in body:
        yield dict(zip(head, cells, strict=True))


@pytest.mark.parametrize("scheme", OPTIONS)
def test_capabilities_are_those_of_the_backend(scheme: str, tmp_path: Path) -> None:
    if scheme in SERVERS:
        declared = dataclasses.asdict(load_factory(scheme).capabilities)
    else:
        with ckpt.open_backend(ADDRESSES[scheme].format(tmp_path)) as backend:
            declared = dataclasses.asdict(backend.capabilities)
    written = {row["capability"]: {"yes": True, "no": False}[row[scheme]] for row in table("Capabilities")}
    assert written == declared


@pytest.mark.parametrize("scheme", OPTIONS)
def test_every_option_is_listed_with_its_default(scheme: str) -> None:
    kind = OPTIONS[scheme]
    known = [field.name for field in dataclasses.fields(kind)]
    rows = list(table(scheme)) if known else []
    assert [row["option"] for row in rows] == known
    defaults = {row["option"]: row["default"] for row in rows}
    assert build_options(kind, defaults, of=scheme) == kind()


def test_every_backend_is_on_the_page() -> None:
    assert sorted(ADDRESSES.keys() | SERVERS) == sorted(OPTIONS) == ckpt.contract.registry.schemes()
