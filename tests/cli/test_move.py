"""`copy`, `diff`, `drop`: what ends equal is equal, and nothing is removed unasked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import ckpt
from ckpt.cli.stores import require_two_stores
from ckpt.errors import ConfigError

Run = Callable[..., Result]


@pytest.fixture(params=["file", "log"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}://{tmp_path}/target"


class TestCopyAndDiff:
    def test_a_whole_store(
        self, run: Run, run_json: Callable[..., list[Any]], store: str, target: str
    ) -> None:
        rows = {row["namespace"]: row for row in run_json("copy", store, target)}
        assert rows["words"]["copied_keys"] == 2
        assert rows["store"]["copied_commits"] == 3
        assert run("diff", store, target).stdout == ""
        assert run("cat", target, "store", "k", "--commit", "branch").stdout == "other"

    def test_a_second_copy_finds_everything_there(
        self, run: Run, run_json: Callable[..., list[Any]], store: str, target: str
    ) -> None:
        run("copy", store, target)
        for row in run_json("copy", store, target):
            assert (row["copied_keys"], row["copied_commits"]) == (0, 0)

    def test_one_namespace(self, run: Run, store: str, target: str) -> None:
        run("copy", store, target, "--namespace", "words")
        assert run("ls", target).stdout == "words\n"
        assert run("diff", store, target, "--namespace", "words").stdout == ""
        assert "namespace 'odd': only in source" in run("diff", store, target, code=1).stdout

    def test_other_data_is_kept_unless_told(self, run: Run, store: str, target: str) -> None:
        with ckpt.open_backend(target) as backend:
            backend.put_many("words", {b"mine": b"1"})
        refused = run("copy", store, target, code=2).stderr
        assert "--overwrite" in refused
        assert len(refused.splitlines()) == 1
        assert run("ls", target, "words").stdout == "mine\n"
        run("copy", store, target, "--overwrite")
        run("diff", store, target)

    def test_differences_as_json(
        self, run: Run, run_json: Callable[..., list[Any]], store: str, target: str
    ) -> None:
        run("copy", store, target)
        with ckpt.open_backend(target) as backend:
            backend.put_many("odd", {b"\xff\x00": b"changed"})
        assert run_json("diff", store, target, code=1) == [
            {"namespace": "odd", "what": "key", "key": "hex:ff00", "commit": None, "found": "differs"}
        ]

    def test_a_store_is_not_copied_onto_itself(self, run: Run, store: str) -> None:
        result = run("copy", store, store, code=2)
        assert "one store" in result.stderr

    def test_a_missing_source_is_not_made(self, run: Run, address: str, target: str) -> None:
        assert "no store at" in run("copy", address, target, code=2).stderr
        assert not os.path.exists(address.partition("://")[2])
        assert not os.path.exists(target.partition("://")[2])

    def test_an_unknown_namespace_makes_no_target(self, run: Run, store: str, target: str) -> None:
        failed = run("copy", store, target, "--namespace", "wrods", code=2).stderr
        assert "did you mean 'words'" in failed
        assert not os.path.exists(target.partition("://")[2])


class TestClaims:
    """A process that was killed leaves its claim behind; somebody has to be able to go on."""

    @pytest.fixture
    def claimed(self, tmp_path: Path) -> Iterator[tuple[str, ckpt.Backend]]:
        address = f"file://{tmp_path}/claimed"
        with ckpt.open_backend(address) as owner:
            owner.claim("words")
            owner.put_many("words", {b"mine": b"1"})
            yield address, owner

    def test_drop(self, run: Run, claimed: tuple[str, ckpt.Backend]) -> None:
        address, owner = claimed
        assert "--claim" in run("drop", address, "words", "--yes", code=3).stderr
        run("drop", address, "words", "--yes", "--claim")
        with pytest.raises(ckpt.FencedError):
            owner.put_many("words", {b"mine": b"2"})

    def test_copy(self, run: Run, store: str, claimed: tuple[str, ckpt.Backend]) -> None:
        address, owner = claimed
        assert "--claim" in run("copy", store, address, "--overwrite", code=3).stderr
        run("copy", store, address, "--overwrite", "--claim")
        run("diff", store, address)
        with pytest.raises(ckpt.FencedError):
            owner.put_many("words", {b"mine": b"2"})


class TestDrop:
    @pytest.mark.parametrize("answer", ["n\n", ""])
    def test_nothing_happens_without_a_yes(self, run: Run, store: str, answer: str) -> None:
        run("drop", store, "words", answer=answer, code=1)
        assert "words" in run("ls", store).stdout

    def test_yes_at_the_question(self, run: Run, store: str) -> None:
        assert "Remove namespace 'words'" in run("drop", store, "words", answer="y\n").stderr
        assert "words" not in run("ls", store).stdout

    def test_yes_beforehand(self, run: Run, store: str) -> None:
        assert run("drop", store, "store", "--yes").stdout == "dropped store\n"
        assert run("ls", store).stdout == "odd\nwords\n"

    def test_an_unknown_namespace(self, run: Run, store: str) -> None:
        assert "did you mean 'words'" in run("drop", store, "word", "--yes", code=2).stderr


def test_two_prefixes_of_one_server_are_two_stores() -> None:
    require_two_stores("redis://here/0?prefix=a", "redis://here/0?prefix=b")
    for target in ("redis://here/0?prefix=a", "redis://here/0?prefix=a&timeout_s=1"):
        with pytest.raises(ConfigError, match="one store"):
            require_two_stores("redis://here/0?prefix=a", target)
