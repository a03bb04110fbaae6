"""`ls`, `cat`, `versions`, `stats`: what is there is shown, exactly, and nothing is changed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

import ckpt
from ckpt.cli.show import jsonable, parsed_key, shown
from ckpt.values.envelope import ValueCodec
from ckpt.values.keyring import Keyring

Run = Callable[..., Result]


class TestLs:
    def test_namespaces(self, run: Run, store: str) -> None:
        assert run("ls", store).stdout == "odd\nstore\nwords\n"

    def test_namespaces_as_json(self, run_json: Callable[..., list[Any]], store: str) -> None:
        assert run_json("ls", store) == [
            {"namespace": "odd", "versioned": False},
            {"namespace": "store", "versioned": True},
            {"namespace": "words", "versioned": False},
        ]

    def test_keys_can_be_typed_in_again(self, run: Run, store: str) -> None:
        listed = run("ls", store, "odd").stdout.splitlines()
        assert sorted(listed) == ["hex:20", "hex:6865783a3030", "hex:ff00", "naïve"]
        assert [run("cat", store, "odd", key).stdout_bytes for key in sorted(listed)] == [
            b"3",
            b"1",
            b"raw \xfe",
            b"2",
        ]

    @pytest.mark.parametrize("prefix", ["b", "hex:62", "base64:Yg=="])
    def test_prefix(self, run: Run, store: str, prefix: str) -> None:
        assert run("ls", store, "words", "--prefix", prefix).stdout == "be\n"

    def test_limit(self, run: Run, store: str) -> None:
        assert len(run("ls", store, "odd", "--limit", "2").stdout.splitlines()) == 2
        assert run("ls", store, "--limit", "1").stdout == "odd\n"

    def test_as_of_a_version_or_a_commit(self, run: Run, store: str) -> None:
        assert run("ls", store, "store").stdout == "k\n"
        assert sorted(run("ls", store, "store", "--version", "1").stdout.split()) == ["gone", "k"]
        assert sorted(run("ls", store, "store", "--commit", "branch").stdout.split()) == ["gone", "k"]

    def test_keys_as_json(self, run_json: Callable[..., list[Any]], store: str) -> None:
        rows = run_json("ls", store, "odd", "--prefix", "hex:ff")
        assert rows == [{"key": "hex:ff00", "bytes": 5}]

    @given(st.binary(max_size=12) | st.text(max_size=8).map(str.encode))
    def test_every_key_has_one_form_that_leads_back(self, key: bytes) -> None:
        text = shown(key)
        assert parsed_key(text) == key
        assert len(text.splitlines()) == 1


class TestCat:
    def test_a_state_is_decoded(self, run: Run, store: str) -> None:
        assert run("cat", store, "words", "be").stdout == '{"count": 2}\n'

    def test_raw_is_the_stored_bytes(self, run: Run, store: str) -> None:
        with ckpt.open_backend(store) as backend:
            stored = backend.get_many("words", [b"be"])[b"be"]
        assert run("cat", store, "words", "be", "--raw").stdout_bytes == stored

    def test_bytes_without_an_envelope_pass_through(self, run: Run, store: str) -> None:
        assert run("cat", store, "odd", "base64:/wA=").stdout_bytes == b"raw \xfe"

    def test_as_of_a_version_or_a_commit(self, run: Run, store: str) -> None:
        assert run("cat", store, "store", "k").stdout == "new"
        assert run("cat", store, "store", "k", "--version", "1").stdout == "old"
        assert run("cat", store, "store", "k", "--commit", "branch").stdout == "other"

    def test_json(self, run_json: Callable[..., list[Any]], store: str) -> None:
        assert run_json("cat", store, "words", "be") == [{"key": "be", "state": {"count": 2}}]
        assert run_json("cat", store, "odd", "hex:ff00") == [{"key": "hex:ff00", "raw": "hex:72617720fe"}]

    def test_a_later_schema_is_shown_as_it_was_written(self, run: Run, store: str) -> None:
        codec = ValueCodec(schema_version=7)
        with ckpt.open_backend(store) as backend:
            backend.put_many("words", {b"be": codec.encode([1], namespace="words", key=b"be")})
        assert run("cat", store, "words", "be").stdout == "[1]\n"

    def test_a_damaged_envelope_is_reported_and_still_readable_raw(self, run: Run, store: str) -> None:
        envelope = bytearray(ValueCodec().encode({"pin": 1234}, namespace="words", key=b"be"))
        envelope[10] ^= 1
        with ckpt.open_backend(store) as backend:
            backend.put_many("words", {b"be": bytes(envelope)})
        failed = run("cat", store, "words", "be", code=1)
        assert "key b'be' of namespace 'words' cannot be read" in failed.stderr
        assert run("cat", store, "words", "be", "--raw").stdout_bytes == bytes(envelope)

    def test_an_encrypted_state_needs_its_keyring(self, run: Run, store: str, tmp_path: Path) -> None:
        line = "2026 = " + "A" * 43 + "="
        ring = tmp_path / "ring"
        ring.write_text(line + "\n")
        ring.chmod(0o600)
        codec = ValueCodec(keyring=Keyring.parse(line))
        with ckpt.open_backend(store) as backend:
            backend.put_many("words", {b"be": codec.encode("secret", namespace="words", key=b"be")})
        assert "encrypted" in run("cat", store, "words", "be", code=1).stderr
        assert run("cat", store, "words", "be", "--keyring", str(ring)).stdout == '"secret"\n'

    @pytest.mark.parametrize(
        ("value", "shown"),
        [(ValueCodec().encode("forged", namespace="words", key=b"be"), '"forged"\n'), (b"forged", "forged")],
        ids=["envelope", "bytes"],
    )
    def test_with_a_keyring_a_value_in_the_clear_is_refused(
        self, run: Run, store: str, tmp_path: Path, value: bytes, shown: str
    ) -> None:
        ring = tmp_path / "ring"
        ring.write_text("2026 = " + "A" * 43 + "=\n")
        ring.chmod(0o600)
        with ckpt.open_backend(store) as backend:
            backend.put_many("words", {b"be": value})
        refused = run("cat", store, "words", "be", "--keyring", str(ring), code=1)
        assert "not encrypted" in refused.stderr
        assert refused.stdout == ""
        allowed = run("cat", store, "words", "be", "--keyring", str(ring), "--allow-plain")
        assert allowed.stdout == shown
        assert "--keyring" in run("cat", store, "words", "be", "--allow-plain", code=2).stderr

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
            lambda inner: (
                st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.integers(), inner)
            ),
            max_leaves=8,
        )
    )
    def test_any_state_can_be_shown(self, state: Any) -> None:
        json.loads(json.dumps(jsonable(state), allow_nan=False))


class TestVersions:
    def test_commits(self, run: Run, run_json: Callable[..., list[Any]], store: str) -> None:
        assert run("versions", store, "store").stdout.splitlines()[0].split() == ["version", "commit", "base"]
        assert run_json("versions", store, "store") == [
            {"version": 1, "commit": "first", "base": None},
            {"version": 2, "commit": "second", "base": "first"},
            {"version": 2, "commit": "branch", "base": "first"},
        ]

    def test_a_plain_namespace_has_none(self, run: Run, store: str) -> None:
        assert "is plain" in run("versions", store, "words", code=2).stderr


class TestStats:
    def test_table(self, run: Run, store: str) -> None:
        lines = [line.split() for line in run("stats", store).stdout.splitlines()]
        assert lines[:2] == [["namespace", "keys", "tip", "commits"], ["odd", "4", "plain", "0"]]
        assert lines[2][2:] == ["2", "3"]
        assert lines[3] == ["words", "2", "plain", "0"]

    def test_json(self, run_json: Callable[..., list[Any]], store: str) -> None:
        [document] = run_json("stats", store)
        assert document["stored_bytes"] > 0
        rows = {row.pop("namespace"): row for row in document["namespaces"]}
        assert rows["words"] == {"keys": 2, "versioned": False, "tip": None, "commits": 0}
        assert (rows["store"]["versioned"], rows["store"]["tip"], rows["store"]["commits"]) == (True, 2, 3)


@pytest.mark.parametrize(
    "command", [["ls"], ["ls", "words"], ["cat", "words", "be"], ["stats"], ["verify"], ["versions", "store"]]
)
def test_looking_disturbs_nothing(run: Run, store: str, command: list[str]) -> None:
    """Beside a writer that is open and goes on writing, and without leaving a trace in the store."""
    folder = store.partition("://")[2]
    with ckpt.open_backend(store) as writer:
        writer.put_many("words", {b"be": b"3"})
        before = _contents(folder)
        run(command[0], store, *command[1:])
        assert _contents(folder) == before
        writer.put_many("words", {b"be": b"4"})
        assert writer.get_many("words", [b"be"]) == {b"be": b"4"}


def _contents(folder: str) -> dict[str, bytes]:
    paths = [os.path.join(base, name) for base, _, names in os.walk(folder) for name in names]
    return {path: Path(path).read_bytes() for path in paths}
