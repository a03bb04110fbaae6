"""Listings that are no snapshots: a reader misses nothing that was acknowledged before it looked."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("hidden_from_end", [2, 3])
def test_a_listing_that_shows_a_segment_and_not_the_one_before_it(
    objects: Any, monkeypatch: pytest.MonkeyPatch, hidden_from_end: int
) -> None:
    """While somebody writes, some services show what was made last and not what was made before."""
    writer, reader = objects.open(), objects.open()
    writer.commit("store", 1, {b"a": b"1"})
    assert dict(reader.scan("store")) == {b"a": b"1"}
    for version in range(2, 6):
        writer.commit("store", version, {b"%d" % version: b"%d" % version})
    listing = objects.ls
    hidden = []

    def ls_that_misses_one(path: str, detail: bool) -> list[dict[str, Any]]:
        rows = sorted(listing(path, detail), key=lambda row: row["name"])
        if path.endswith("segments") and not hidden:
            hidden.append(rows.pop(-hidden_from_end))
        return rows

    monkeypatch.setattr(objects, "ls", ls_that_misses_one)
    expected = {b"a": b"1"} | {b"%d" % version: b"%d" % version for version in range(2, 6)}
    assert dict(reader.scan("store")) == expected
    assert hidden, "the reader has looked"
    reader.close()
    writer.close()
