"""Addresses and options: what is right is typed, what is wrong is one clear sentence."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.contract.addresses import Address, Durability, build_options, parse_address, parse_bytes, suggestion
from ckpt.errors import ConfigError


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Options:
    segment_bytes: int = 64
    attempts: int = 3
    interval_s: float = 1.0
    compress: bool = False
    colour: Colour = Colour.RED
    name: str = ""
    limit_bytes: int | None = None


def options(**given: object) -> Options:
    return build_options(Options, given, of="thing")


def test_parts_of_an_address() -> None:
    parsed = parse_address("REDIS://user:pw@host:6379/0?prefix=a%20b&wait=1&empty=")
    assert parsed.scheme == "redis"
    assert parsed.location == "user:pw@host:6379/0"
    assert parsed.options == {"prefix": "a b", "wait": "1", "empty": ""}


def test_the_path_has_its_escapes_resolved() -> None:
    assert parse_address("log:///var/my%20ckpt%3F").path == "/var/my ckpt?"


@pytest.mark.parametrize(
    "wrong", ["", "/var/ckpt", "log:/var", "://x", "1log://x", "a b://x", None, 3, b"log://x"]
)
def test_what_is_no_address_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="write scheme://location"):
        parse_address(wrong)


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="'a' is given twice"):
        parse_address("log:///x?a=1&a=2")


def test_an_address_shows_no_secrets() -> None:
    address = parse_address("redis://user:hunter2@host/0?password=hunter2&auth_token=hunter2&prefix=x")
    shown = str(address)
    assert "hunter2" not in shown + repr(address)
    assert "prefix=x" in shown
    assert shown.startswith("redis://user:***@host/0?")


@pytest.mark.parametrize(
    "location", [":hush@host", "ada:hush@host", "ada:h/hush@host", "ada:h:hush@a@host/0"]
)
def test_a_password_that_was_not_escaped_is_not_shown_either(location: str) -> None:
    address = parse_address(f"redis://{location}")
    assert "hush" not in str(address) + repr(address)
    with pytest.raises(ConfigError, match="is not an address") as caught:
        parse_address(f"redis:/{location}")
    assert "hush" not in str(caught.value)


def test_a_path_is_shown_whatever_it_looks_like() -> None:
    assert str(parse_address("log:///var/a:b@c")) == "log:///var/a:b@c"


def test_where_a_password_is_may_be_shown() -> None:
    shown = "redis://ada@host/0?password_file=/run/secrets/redis&password_env=OTHER"
    assert str(parse_address(shown)) == shown


safe = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@given(
    st.from_regex(r"/[a-z0-9/._~-]{0,20}", fullmatch=True),
    st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), safe, max_size=4),
)
def test_an_address_is_read_back_as_it_is_written(location: str, given_options: dict[str, str]) -> None:
    secret = ("password", "secret", "token", "key_file", "credential")
    given_options = {k: v for k, v in given_options.items() if not any(s in k for s in secret)}
    address = Address("log", location, given_options)
    assert parse_address(str(address)) == address


def test_options_are_typed() -> None:
    assert options() == Options()
    assert options(
        segment_bytes="1MiB", attempts="5", interval_s="0.5", compress="yes", colour="blue", name="n"
    ) == (Options(1 << 20, 5, 0.5, True, Colour.BLUE, "n"))
    assert (
        options(segment_bytes=7, attempts=2, interval_s=3, compress=True, colour=Colour.BLUE).segment_bytes
        == 7
    )
    assert options(limit_bytes="none") == options(limit_bytes=None) == Options()
    assert options(limit_bytes="2kB").limit_bytes == 2000


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("segment_byte", "1", "thing has no option 'segment_byte'; did you mean 'segment_bytes'?"),
        ("zzz", "1", "choose from attempts"),
        ("segment_bytes", "many", "number of bytes such as 64MiB"),
        ("segment_bytes", "-1", "number of bytes"),
        ("attempts", "3.5", "a whole number, got '3.5'"),
        ("attempts", "1MiB", "a whole number"),
        ("attempts", True, "a whole number"),
        ("interval_s", "soon", "a number, got 'soon'"),
        ("compress", "perhaps", "true or false"),
        ("compress", 1, "true or false"),
        ("colour", "green", "one of red, blue, got 'green'"),
        ("name", 3, "text, got 3"),
    ],
)
def test_wrong_options_are_one_clear_sentence(name: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        options(**{name: value})
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", 1 << 20),
        ("64MiB", 64 << 20),
        ("1.5GiB", 3 << 29),
        ("10kB", 10_000),
        ("1k", 1000),
        ("2 KiB", 2048),
        ("1tib", 1 << 40),
        ("3b", 3),
        (" 7 ", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "1XB", "-5", "1 2", "1e3", "0x10"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_bytes(text)


@given(st.integers(0, 2**50))
def test_a_plain_number_is_that_many_bytes(number: int) -> None:
    assert parse_bytes(str(number)) == number


def test_suggestions() -> None:
    assert suggestion("lgo", ["log", "file"]) == "did you mean 'log'?"
    assert suggestion("zzzz", ["log", "file"]) == "choose from file, log"
    assert suggestion("x", []) == "there are none to choose from"


def test_durability_levels_are_the_words_of_an_address() -> None:
    assert [str(level) for level in Durability] == ["fsync", "os", "queued"]


def test_secrets_inside_json_options_are_not_shown() -> None:
    address = parse_address(
        'fsspec+s3://bucket?fs.client_kwargs={"aws_secret_access_key": "hush"}&fs.anon=false'
    )
    assert "hush" not in str(address)
    assert "fs.anon=false" in str(address)
