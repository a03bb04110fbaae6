"""Damage to a commit that no index file knows yet is told of the keys it hits, and of no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt.errors import CorruptRecordError
from ckpt_backends.engine.frame import HEADER_BYTES
from ckpt_backends.engine.runs import SEGMENT_SHIFT
from ckpt_backends.log import LogBackend

KEYS = [b"key-%d" % n for n in range(9)]
HIT = 3


def flip(log: LogBackend, where: str) -> None:
    """Change one bit of the newest commit on disk, while the log is open."""
    engine = log._engine
    frames = [f for parts in engine.index.active.layered.values() for f in parts]
    frame = engine.records.frame(frames[-1].location)
    at = frame.offset + {"header": 44, "end of a key": HEADER_BYTES + 4 * HIT + 3, "key": 0}[where]
    if where == "key":
        at = frame.values_at - frame.keys_bytes + 5 * HIT + 4
    engine.records.forget(frames[-1].location >> SEGMENT_SHIFT)
    [path] = Path(log._storage.path, "segments").glob("0*.seg")
    with path.open("r+b") as file:
        file.seek(at)
        [before] = file.read(1)
        file.seek(at)
        file.write(bytes([before ^ 0x10]))


def told(log: LogBackend) -> dict[bytes, bytes | None]:
    """The value of each key by a get of it alone; None where that raises."""
    found: dict[bytes, bytes | None] = {}
    for key in KEYS:
        try:
            found.update(log.get_many("store", [key]))
        except CorruptRecordError:
            found[key] = None
    return found


def unchanged(log: LogBackend) -> LogBackend:
    """As it was written."""
    return log


def replayed(log: LogBackend) -> LogBackend:
    """By somebody who has read the commits from the log; what has written them is left as after a crash."""
    log._storage.close()
    return LogBackend(log._storage.path)


@pytest.mark.parametrize("known", [unchanged, replayed])
@pytest.mark.parametrize(
    ("where", "hit"), [("key", [HIT]), ("end of a key", [HIT, HIT + 1]), ("header", range(9))]
)
def test_it_hits_its_keys(
    tmp_path: Path, known: Callable[[LogBackend], LogBackend], where: str, hit: list[int]
) -> None:
    log = LogBackend(str(tmp_path / "log"))
    log.commit("store", 1, {b"older": b"1", KEYS[HIT]: b"out of date"})
    log.commit("store", 2, {key: key * 2 for key in KEYS})
    log = known(log)
    flip(log, where)
    expected = {key: None if n in hit else key * 2 for n, key in enumerate(KEYS)}
    assert told(log) == expected
    assert log.get_many("store", [b"older"]) == {b"older": b"1"}
    with pytest.raises(CorruptRecordError):
        list(log.scan("store"))
    with pytest.raises(CorruptRecordError):
        list(log.scan_blocks("store"))
    log.close()
    with LogBackend(str(tmp_path / "log")) as log:  # from now on index files know of it
        assert told(log) == expected
        assert log.get_many("store", [b"older"]) == {b"older": b"1"}
        assert len(list(log.verify())) == 1


@pytest.mark.parametrize("where", ["key", "end of a key", "header"])
def test_repair_leaves_nothing_that_is_out_of_date(tmp_path: Path, where: str) -> None:
    with LogBackend(str(tmp_path / "log")) as log:
        log.commit("store", 1, dict.fromkeys(KEYS, b"out of date") | {b"older": b"1"})
        log.commit("store", 2, {key: key * 2 for key in KEYS})
        flip(log, where)
        log.repair()
        assert dict(log.scan("store")) == {b"older": b"1"}
        assert not list(log.verify())
    with LogBackend(str(tmp_path / "log")) as log:
        assert dict(log.scan("store")) == {b"older": b"1"}
