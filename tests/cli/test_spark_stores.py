"""`ls`, `cat` and `stats` on the stores of a Spark query: by query and operator, decoded by schema."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

import ckpt

pytest.importorskip("pyarrow", reason="PyArrow is not installed: pip install 'ckpt[spark]'")

Run = Callable[..., Result]

QUERY = "1c7f0a52-63a6-4cc2-9d5d-0d3a0f9e6a3b"
STORE = f"spark/{QUERY}/0"
CHECKPOINT = "file:/data/checkpoints/orders"


def text_row(text: str) -> bytes:
    """A row of one string, as Spark encodes it."""
    raw = text.encode()
    return b"\0" + struct.pack("<qq", 0, 16 << 32 | len(raw)) + raw + bytes(-len(raw) % 8)


def number_row(number: int | None) -> bytes:
    """A row of one long."""
    return b"\0" + struct.pack("<qq", number is None, number or 0)


def schema(name: str, kind: str) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}}]}


def described(family: int, name: str, **more: Any) -> tuple[bytes, bytes]:
    """A family's row in the catalogue."""
    document = {
        "format": 1,
        "id": family,
        "internal": False,
        "multiple": False,
        "encoding": "unsaferow",
        "keySchema": schema("word", "string"),
        "valueSchema": schema("count", "long"),
        "keyEncoder": {"type": "noPrefix"},
        **more,
    }
    return b"\xff\xff" + name.encode(), json.dumps(document).encode()


def about(live: dict[int, int]) -> dict[bytes, bytes]:
    """What a store says about itself."""
    origin = {"format": 1, "spark": "4.3.0", "checkpoint": CHECKPOINT, "query": QUERY}
    counts = b"".join(struct.pack(">HQ", *pair) for pair in live.items())
    return {
        b"\xff\xff\x00": json.dumps(origin).encode(),
        b"\xff\xff\x01": struct.pack(">H", len(live)) + counts,
        **dict([described(0, "default")]),
    }


def counts(**words: int | None) -> dict[bytes, bytes]:
    return {b"\0\0" + text_row(word): number_row(number) for word, number in words.items()}


@pytest.fixture
def query(address: str) -> str:
    """The address of a store with two partitions of an operator, one with families, and a plain namespace."""
    with ckpt.open_backend(address) as backend:
        backend.put_many("words", {b"be": b"2"})
        backend.commit(f"{STORE}/0/default", 1, {**counts(be=1), **about({0: 1})}, commit_id="a")
        backend.commit(f"{STORE}/0/default", 2, {**counts(be=2, to=None), **about({0: 2})}, commit_id="b")
        backend.commit(f"{STORE}/1/default", 1, {**counts(that=7), **about({0: 1})})
        backend.commit(f"{STORE}/1/default", 2, about({0: 1}))
        chunk = [struct.pack("<i", 17) + number_row(n) for n in (5, 6, 7)]
        lists = {
            b"\0\1" + text_row("l") + struct.pack(">I", 0): chunk[0] + chunk[1],
            b"\0\1" + text_row("l") + struct.pack(">I", 9): chunk[2],
            b"\0\2" + text_row("i"): number_row(0),
        }
        families = dict([described(1, "lists", multiple=True), described(2, "$timers", internal=True)])
        several = {**counts(d=4), **lists, **about({0: 1, 1: 1, 2: 1}), **families}
        backend.commit(f"spark/{QUERY}/1/0/default", 2, several)
    return address


class TestLs:
    def test_partitions_are_one_line(self, run: Run, query: str) -> None:
        assert run("ls", query).stdout.splitlines() == [
            f"{STORE}  default  2 partitions  version 2  3 keys  {CHECKPOINT}",
            f"spark/{QUERY}/1  default  1 partition  version 2  2 keys  {CHECKPOINT}",
            "words",
        ]

    def test_long(self, run: Run, query: str) -> None:
        assert run("ls", query, "--long").stdout.splitlines() == [
            f"{STORE}/0/default  version 2  2 keys  {CHECKPOINT}",
            f"{STORE}/1/default  version 2  1 key  {CHECKPOINT}",
            f"spark/{QUERY}/1/0/default  version 2  2 keys  {CHECKPOINT}",
            "words",
        ]

    def test_what_names_begin_with(self, run: Run, query: str) -> None:
        listed = run("ls", query, f"{STORE}/").stdout.splitlines()
        assert [line.split()[0] for line in listed] == [f"{STORE}/0/default", f"{STORE}/1/default"]
        assert len(run("ls", query, "spark", "--limit", "2").stdout.splitlines()) == 2

    def test_json(self, run_json: Callable[..., list[Any]], query: str) -> None:
        known = {"versioned": True, "version": 2, "checkpoint": CHECKPOINT}
        assert run_json("ls", query) == [
            {"namespace": STORE, "store": "default", "partitions": 2, "keys": 3, **known},
            {"namespace": f"spark/{QUERY}/1", "store": "default", "partitions": 1, "keys": 2, **known},
            {"namespace": "words", "versioned": False},
        ]
        assert run_json("ls", query, STORE)[1] == {"namespace": f"{STORE}/1/default", "keys": 1, **known}

    def test_keys_are_decoded(self, run: Run, query: str) -> None:
        listed = run("ls", query, f"{STORE}/0/default").stdout.splitlines()
        assert sorted(listed) == ['{"word": "be"}', '{"word": "to"}']
        assert run("ls", query, f"{STORE}/0/default", "--version", "1").stdout == '{"word": "be"}\n'

    def test_stored_keys(self, run: Run, query: str) -> None:
        listed = run("ls", query, f"{STORE}/0/default", "--raw").stdout.splitlines()
        assert len(listed) == 5
        assert run("ls", query, f"{STORE}/0/default", "--prefix", "hex:0000").stdout.count("hex:") == 2

    def test_what_needs_a_namespace(self, run: Run, query: str) -> None:
        assert "need a NAMESPACE" in run("ls", query, STORE, "--version", "1", code=2).stderr


class TestCat:
    def test_all_rows_of_a_store(self, run: Run, query: str) -> None:
        rows = run("cat", query, f"{STORE}/0/default").stdout.splitlines()
        assert sorted(rows) == [
            '{"key": {"word": "be"}, "value": {"count": 2}}',
            '{"key": {"word": "to"}, "value": {"count": null}}',
        ]

    @pytest.mark.parametrize("key", ["that", '{"word": "that"}'])
    @pytest.mark.parametrize("name", [STORE, f"{STORE}/1/default"])
    def test_one_key(self, run: Run, query: str, name: str, key: str) -> None:
        """Nobody has to know in which partition it is."""
        assert run("cat", query, name, key).stdout == '{"key": {"word": "that"}, "value": {"count": 7}}\n'

    @pytest.mark.parametrize("word", ["42", "1e3", "true", "null", "[1]"])
    def test_text_that_looks_like_json_is_text(self, run: Run, query: str, word: str) -> None:
        with ckpt.open_backend(query) as backend:
            backend.commit(f"{STORE}/0/default", 3, {**counts(**{word: 5}), **about({0: 3})})
        expected = json.dumps({"key": {"word": word}, "value": {"count": 5}}) + "\n"
        for key in (word, json.dumps(word), json.dumps({"word": word})):
            assert run("cat", query, f"{STORE}/0/default", key).stdout == expected

    def test_an_earlier_version(self, run: Run, query: str) -> None:
        expected = '{"key": {"word": "be"}, "value": {"count": 1}}\n'
        assert run("cat", query, STORE, "be", "--version", "1").stdout == expected
        assert run("cat", query, f"{STORE}/0/default", "be", "--commit", "a").stdout == expected

    def test_partitions_are_shown_at_one_version(self, run: Run, query: str) -> None:
        """A query that runs has committed one partition and not yet the other."""
        with ckpt.open_backend(query) as backend:
            backend.commit(f"{STORE}/0/default", 3, counts(be=99))
        assert '"count": 2' in run("cat", query, STORE, "be").stdout
        assert '"count": 99' in run("cat", query, f"{STORE}/0/default", "be").stdout

    def test_families(self, run: Run, run_json: Callable[..., list[Any]], query: str) -> None:
        name = f"spark/{QUERY}/1/0/default"
        rows = [json.loads(line) for line in run("cat", query, name).stdout.splitlines()]
        assert sorted((row["family"], row["key"]["word"]) for row in rows) == [
            ("$timers", "i"),
            ("default", "d"),
            ("lists", "l"),
        ]
        assert run_json("cat", query, name, "--family", "lists") == [
            {
                "namespace": name,
                "family": "lists",
                "key": {"word": "l"},
                "value": [{"count": 5}, {"count": 6}, {"count": 7}],
            }
        ]
        assert "has no family 'list'" in run("cat", query, name, "--family", "list", code=2).stderr

    def test_stored_bytes(self, run: Run, run_json: Callable[..., list[Any]], query: str) -> None:
        stored = run_json("cat", query, f"{STORE}/1/default", "--raw")
        keys = [row["key"] for row in stored if row["key"].startswith("hex:0000")]
        assert run("cat", query, f"{STORE}/1/default", *keys).stdout_bytes == number_row(7)

    def test_a_column_that_is_not_there(self, run: Run, query: str) -> None:
        assert "did you mean 'word'" in run("cat", query, STORE, '{"wrod": "be"}', code=2).stderr

    def test_a_key_that_is_not_there(self, run: Run, query: str) -> None:
        assert "no key b'nowhere'" in run("cat", query, STORE, "nowhere", code=2).stderr

    def test_a_store_that_says_nothing_about_itself(self, run: Run, query: str) -> None:
        with ckpt.open_backend(query) as backend:
            backend.commit("spark/old/0/0/default", 1, counts(be=1))
        assert "use --raw" in run("cat", query, "spark/old/0/0/default", code=2).stderr
        assert "spark/old/0  default  1 partition  version 1\n" in run("ls", query).stdout

    def test_all_states_of_a_plain_namespace(self, run_json: Callable[..., list[Any]], store: str) -> None:
        rows = sorted(run_json("cat", store, "words"), key=str)
        assert rows == [{"key": "be", "state": {"count": 2}}, {"key": "or", "state": {"count": 1}}]


class TestStats:
    def test_keys_are_those_of_ls(self, run: Run, run_json: Callable[..., list[Any]], query: str) -> None:
        listed = {line["namespace"]: line.get("keys") for line in run_json("ls", query, "--long")}
        [found] = run_json("stats", query)
        keys = {row["namespace"]: row["keys"] for row in found["namespaces"]}
        assert keys == {**listed, "words": 1}
        shown = [line.split()[:2] for line in run("stats", query).stdout.splitlines()]
        assert [[name, str(count)] for name, count in keys.items()] == shown[1:5]

    def test_what_else_is_stored_is_told_beside(
        self, run: Run, run_json: Callable[..., list[Any]], query: str
    ) -> None:
        stored = {
            row["namespace"]: row.get("stored_rows") for row in run_json("stats", query)[0]["namespaces"]
        }
        several = f"spark/{QUERY}/1/0/default"
        assert stored == {f"{STORE}/0/default": 5, f"{STORE}/1/default": 4, several: 9, "words": None}
        assert "stored rows of Spark stores: 18 (" in run("stats", query).stdout

    def test_a_store_that_says_nothing_about_itself(
        self, run_json: Callable[..., list[Any]], address: str
    ) -> None:
        with ckpt.open_backend(address) as backend:
            backend.commit("spark/old/0/0/default", 1, counts(be=1, to=2))
        [row] = run_json("stats", address)[0]["namespaces"]
        assert (row["keys"], row.get("stored_rows")) == (2, None)


class TestDrop:
    def test_all_stores_of_a_query(self, run: Run, query: str) -> None:
        run("drop", query, f"spark/{QUERY}", answer="n\n", code=1)
        asked = run("drop", query, f"spark/{QUERY}", answer="y\n")
        assert f"3 namespaces that begin with 'spark/{QUERY}'" in asked.stderr
        assert run("ls", query).stdout == "words\n"

    def test_plain_namespaces_are_named_whole(self, run: Run, query: str) -> None:
        with ckpt.open_backend(query) as backend:
            backend.put_many("a/b", {b"k": b"v"})
        assert "no namespace 'a'" in run("drop", query, "a", "--yes", code=2).stderr
