"""A slip between `log://` and `fsspec+file://` is refused with the right address, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ckpt
from ckpt.errors import ConfigError
from ckpt.testing.harness import numbered

SCHEMES = {"log": "fsspec+file", "fsspec+file": "log"}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}


def make(scheme: str, folder: Path) -> None:
    with ckpt.SafeKeeper(f"{scheme}://{folder}") as keeper:
        words = keeper.namespace("words")
        for number in range(100):
            words.save(f"key-{number}", number)


def refused(scheme: str, folder: Path) -> None:
    """Opened in either mode with the other scheme, it says which one is right and touches nothing."""
    before = contents(folder)
    for mode in ("", "?mode=read"):
        with pytest.raises(
            ConfigError, match=f"open it as {SCHEMES[scheme]}://{folder}$".replace("+", r"\+")
        ):
            ckpt.open_backend(f"{scheme}://{folder}{mode}")
    assert contents(folder) == before


@pytest.mark.parametrize("made_by", SCHEMES)
def test_the_wrong_scheme_is_refused_and_destroys_nothing(made_by: str, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    make(made_by, folder)
    refused(SCHEMES[made_by], folder)
    with ckpt.SafeKeeper(f"{made_by}://{folder}") as keeper:
        assert [keeper.namespace("words").load(f"key-{n}") for n in range(100)] == list(range(100))


@pytest.mark.parametrize("made_by", SCHEMES)
def test_also_while_its_writer_runs_and_has_saved_no_index(made_by: str, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with ckpt.open_backend(f"{made_by}://{folder}") as backend:
        backend.put_many("words", numbered(3))
        assert not (folder / "manifests").exists()
        assert not (folder / "MANIFEST").exists()
        refused(SCHEMES[made_by], folder)
        assert dict(backend.scan("words")) == numbered(3)


@pytest.mark.parametrize("kept", ["names", "headers"])
@pytest.mark.parametrize("made_by", SCHEMES)
def test_either_sign_is_enough(made_by: str, kept: str, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    make(made_by, folder)
    if kept == "names":
        for path in (folder / "segments").iterdir():
            path.write_bytes(b"\0" * 64 + path.read_bytes()[64:])
    else:
        for path in [*folder.glob("LOCK"), *folder.glob("MANIFEST"), *folder.glob("manifests/*")]:
            path.unlink()
    refused(SCHEMES[made_by], folder)


def test_a_stray_name_does_not_lock_a_store_out(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    make("fsspec+file", folder)
    (folder / "LOCK").touch()
    refused("log", folder)
    with ckpt.SafeKeeper(f"fsspec+file://{folder}") as keeper:
        assert keeper.namespace("words").load("key-7") == 7


@pytest.mark.parametrize("copied", ["everything", "segments"])
@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_log_that_was_copied_to_an_object_store(
    objects: Any, mode: str, copied: str, tmp_path: Path
) -> None:
    make("log", tmp_path)
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        name = str(path.relative_to(tmp_path))
        if copied == "everything" or name.startswith(copied):
            objects.objects[f"bucket/place/{name}"] = path.read_bytes()
    before = dict(objects.objects)
    with pytest.raises(ConfigError, match=r"holds a local log .* open it as log://"):
        objects.open(mode=mode)
    assert objects.objects == before


@pytest.mark.parametrize("below", ["", "/below"])
def test_a_file_in_the_way_is_a_wrong_address(tmp_path: Path, below: str) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="a file is in the way; choose another path"):
        ckpt.open_backend(f"log://{tmp_path}/notes.txt{below}")
    assert (tmp_path / "notes.txt").read_text() == "mine"
