"""Keepers from files: the shipped ones open, and every mistake is named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from urllib.parse import urlencode

import pytest

import ckpt
from ckpt.contract.addresses import parse_address
from ckpt.errors import ConfigError
from ckpt.testing.servers import server_address

SERVERS = ("cassandra", "hbase", "redis", "s3")
CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))


@pytest.mark.parametrize("shipped", CONFIGS, ids=lambda path: path.name)
def test_shipped_files_open_and_keep_states(shipped: Path, tmp_path: Path) -> None:
    path = tmp_path / shipped.name
    text = shipped.read_text().replace("/var/ckpt", str(tmp_path))
    address = tomllib.loads(text)["address"]
    here = on_this_machine(shipped.stem, address)
    path.write_text(text.replace(address, here))
    with ckpt.open_backend(here) as backend:
        backend.drop("words")
    for expected in (None, {"count": 2}):
        with ckpt.open_keeper(path) as keeper:
            words = keeper.namespace("words")
            assert words.options.every_s
            assert words.load("be") == expected
            words.save("be", {"count": 2}).result(timeout=30)


def on_this_machine(name: str, address: str) -> str:
    """The address of a shipped file with the hosts and names of a server that runs here, if it is of one."""
    if name not in SERVERS:
        return address
    given, real = parse_address(address), parse_address(server_address(name))
    elsewhere = {option for option in given.options if option.startswith(("tls", "password", "user"))}
    options = {k: v for k, v in given.options.items() if k not in elsewhere} | dict(real.options)
    return f"{real.scheme}://{real.location}?{urlencode(options)}"


def test_there_are_files_to_start_from() -> None:
    names = {path.stem for path in CONFIGS}
    assert names == {"file", "log", "object-store", *SERVERS}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("address = ", "is not TOML"),
        ("[keeper]\n", "names no address"),
        ("address = 1\n", "names no address"),
        ('adress = "memory://"\n', "unknown entry 'adress'; did you mean 'address'"),
        ('address = "memory://"\n[keeper]\noverflo = "block"\n', "did you mean 'overflow'"),
        ('address = "memory://"\n[keeper]\noverflow = "explode"\n', "is one of block"),
        ('address = "memory://"\n[codec]\ncompresion = "zstd"\n', "did you mean 'compression'"),
        ('address = "memory://"\n[codec]\nkeyring = "k"\n', "is set in Python"),
        ('address = "memory://"\n[namespaces.words]\nevery = 5\n', "namespace has no option 'every'"),
        ('address = "memory://"\nnamespaces = "words"\n', "are tables"),
        ('address = "memory://"\n[namespaces]\nwords = 5\n', "are tables"),
        ('address = "lgo:///x"\n', "did you mean 'log'"),
    ],
)
def test_mistakes_are_named_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "keeper.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        ckpt.open_keeper(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing.toml cannot be read"):
        ckpt.open_keeper(tmp_path / "nothing.toml")
