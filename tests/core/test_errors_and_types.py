"""Errors form one tree and show no more of a key than helps; names and ids are checked before use."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt import errors
from ckpt.contract.backend import (
    BadRecord,
    check_changes,
    check_commit,
    check_items,
    check_keys,
    check_prefix,
    check_ttl,
)
from ckpt.errors import CkptError, ConfigError, shown_key
from ckpt.types import MAX_NAMESPACE_BYTES, Changes, check_commit_id, check_namespace


def test_every_error_is_a_ckpt_error_with_a_sentence() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    assert len(kinds) > 8
    for kind in kinds:
        assert issubclass(kind, CkptError)
        assert kind.__name__.endswith("Error")
        assert inspect.getdoc(kind)
        assert kind.__name__ in (errors.__doc__ or "")


@given(st.binary(max_size=300))
def test_a_shown_key_is_short_and_on_one_line(key: bytes) -> None:
    shown = shown_key(key)
    assert len(shown) < 260
    assert shown.isprintable()
    if len(key) <= 48:
        assert shown == repr(key)


def test_a_text_key_may_hold_lone_surrogates() -> None:
    assert shown_key("be") == "b'be'"
    assert shown_key("\udcff") == r"b'\xff'"


@given(st.text(min_size=1, max_size=300))
def test_any_text_of_utf8_is_a_namespace(name: str) -> None:
    try:
        fits = len(name.encode()) <= MAX_NAMESPACE_BYTES
    except UnicodeEncodeError:
        fits = False
    if fits:
        assert check_namespace(name) == name
    else:
        with pytest.raises(ConfigError):
            check_namespace(name)


@pytest.mark.parametrize("wrong", ["", "n" * 1025, "é" * 513, "\ud800", b"bytes", None, 3])
def test_wrong_namespaces(wrong: object) -> None:
    with pytest.raises(ConfigError, match="1024 UTF-8 bytes") as raised:
        check_namespace(wrong)
    assert len(str(raised.value)) < 250


@pytest.mark.parametrize("right", ["a", "A-b/c:1~", "i" * 128])
def test_commit_ids(right: str) -> None:
    assert check_commit_id(right) == right


@pytest.mark.parametrize("wrong", ["", "a b", "é", "a\n", "\0", "i" * 129, None, 7, b"a"])
def test_wrong_commit_ids(wrong: object) -> None:
    with pytest.raises(ConfigError, match="a commit id is"):
        check_commit_id(wrong)


def test_checks_name_what_is_wrong() -> None:
    check_items({b"a": b"1", b"b": bytearray(b"2"), b"c": memoryview(b"3")})
    with pytest.raises(TypeError, match="keys must be bytes, got str"):
        check_items({b"a": b"1", "b": b"2"})
    with pytest.raises(TypeError, match="values must be bytes, got int, str"):
        check_items({b"a": "secret", b"b": 3})
    with pytest.raises(TypeError, match="one key; wrap it in a list"):
        check_keys(b"be")
    with pytest.raises(TypeError, match="prefix must be bytes, got str"):
        check_prefix("be")
    assert check_keys(iter([b"a", b"b"])) == [b"a", b"b"]
    assert check_commit({b"a": b"1"}, [b"b", b"b"]) == [b"b"]
    with pytest.raises(ConfigError, match="both put and deleted"):
        check_commit({b"a": b"1"}, [b"a"])
    with pytest.raises(ConfigError, match="positive number of seconds"):
        check_changes("words", Changes({b"a": b"1"}, ttl_s=0))


@pytest.mark.parametrize("ttl_s", [None, 1, 0.5, 1e12])
def test_right_times_to_live(ttl_s: float | None) -> None:
    assert check_ttl(ttl_s) == ttl_s


@pytest.mark.parametrize(
    "ttl_s",
    [0, -1.0, float("inf"), float("-inf"), float("nan"), 1e13, pytest.param(10**400, id="huge"), True, "1"],
)
def test_wrong_times_to_live(ttl_s: Any) -> None:
    with pytest.raises(ConfigError, match="leave it out"):
        check_ttl(ttl_s)


def test_a_bad_record_reads_as_one_line() -> None:
    assert str(BadRecord("seg-1@7", "checksum", "words", b"be")) == "seg-1@7: key b'be' of 'words': checksum"
    assert str(BadRecord("seg-1", "cut off")) == "seg-1: record: cut off"
