"""Every byte of a cleanly closed log changed once: a read is right or raises, never wrong, never missing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt.contract.backend import Backend
from ckpt.errors import CkptError
from ckpt.testing import observe
from ckpt.testing.survival import Observation
from ckpt_backends.engine.frame import HEADER_BYTES, BadFrameError, Frame, FrameKind
from ckpt_backends.engine.segment import HEADER_BYTES as SEGMENT_HEADER_BYTES
from ckpt_backends.engine.segment import SegmentHeader, segment_seed
from ckpt_backends.log import LogBackend, LogOptions
from tests.effort import nth

PATTERNS = (0x01, 0x80, 0xFF)
READ = LogOptions(segment_bytes=16 << 10, mode="read")
WRITE = LogOptions(segment_bytes=16 << 10, recent_records=100_000)

Cell = tuple[str, str | None, bytes]
"""Namespace, commit id (None: the tip, or plain), key."""


def answer(question: Callable[[], object]) -> object:
    try:
        return question()
    except CkptError as error:
        return error


def broken_cells(backend: Backend, seen: Observation) -> set[Cell]:
    """Read everything in every way; what raised. Fails if an answer is wrong."""
    broken: set[Cell] = set()
    plain: dict[str, dict[bytes, bytes]] = {}
    for (name, key), value in seen.plain.items():
        plain.setdefault(name, {})[key] = value
    versioned = seen.versioned
    names = answer(backend.namespaces)
    assert isinstance(names, CkptError) or names == sorted([*plain, *versioned])
    for name, state in plain.items():
        broken |= _broken(backend, name, None, state)
    for name, (commits, states, tip) in versioned.items():
        found = answer(lambda name=name: backend.versions(name))
        assert isinstance(found, CkptError) or found == commits
        for commit_id, state in [(None, tip), *states.items()]:
            broken |= _broken(backend, name, commit_id, state)
    return broken


def _broken(backend: Backend, name: str, commit_id: str | None, state: dict[bytes, bytes]) -> set[Cell]:
    broken = set()
    for key in [*state, b"key-2", b"b", b"never written"]:
        found = answer(lambda key=key: backend.get_many(name, [key], commit_id=commit_id))
        if isinstance(found, CkptError):
            broken.add((name, commit_id, key))
        else:
            assert found == ({key: state[key]} if key in state else {}), (name, commit_id, key)
    scanned = answer(lambda: dict(backend.scan(name, commit_id=commit_id)))
    assert isinstance(scanned, CkptError) or scanned == state, (name, commit_id)
    return broken


def frames(data: bytes) -> Iterator[Frame]:
    """The frames of a segment."""
    header = SegmentHeader.decode(data)
    seed = segment_seed(header.log_id, header.number)
    offset = header.data_start
    with contextlib.suppress(BadFrameError):  # behind the last one
        while True:
            frame = Frame(memoryview(data), offset, seed)
            yield frame
            offset = frame.end


def used_places(name: str, data: bytes) -> dict[int, set[bytes] | None]:
    """Each byte that means something, and the keys of which records a change of it may break; None: none."""
    if not name.endswith(".seg"):
        return dict.fromkeys(range(len(data)), None)
    places: dict[int, set[bytes] | None] = dict.fromkeys(range(SEGMENT_HEADER_BYTES), None)
    for frame in frames(data):
        keys = frame.keys()
        places.update((at, set(keys)) for at in range(frame.offset, frame.values_at))
        ends = frame.value_ends()
        for start, end, key in zip([0, *ends[:-1]], ends, keys, strict=False):
            step = 1 if end - start < 1000 else 37
            where = range(frame.values_at + start, frame.values_at + end, step)
            places.update((at, {key}) for at in where)
    return places


def flipped(data: bytes, place: int, pattern: int) -> bytes:
    return data[:place] + bytes([data[place] ^ pattern]) + data[place + 1 :]


@pytest.fixture
def flip(closed_log, tmp_path: Path):
    """Opens the log with one byte changed."""
    folder = tmp_path / "log"

    def open_flipped(name: str, place: int, pattern: int, options: LogOptions) -> LogBackend:
        closed_log.write_to(folder)
        (folder / name).write_bytes(flipped(closed_log.files[name], place, pattern))
        return LogBackend(str(folder), options)

    return open_flipped


def files(kind: str, closed_log) -> list[str]:
    return sorted(name for name in closed_log.files if kind in name)


@pytest.mark.parametrize("kind", [".seg", "MANIFEST", ".idx", "LOCK"])
def test_every_read_is_right_or_raises_and_only_what_was_hit_raises(
    kind: str, closed_log, flip, record_property
) -> None:
    assert files(kind, closed_log)
    tried = 0
    for name in files(kind, closed_log):
        for place, keys in list(used_places(name, closed_log.files[name]).items())[nth(11)]:
            tried += 1
            with flip(name, place, PATTERNS[place % 3], READ) as backend:
                broken = {key for _, _, key in broken_cells(backend, closed_log.seen)}
                assert broken <= (keys or set()), f"{name} byte {place} breaks {broken}"
    record_property("bytes", tried)


@pytest.mark.parametrize("kind", [".seg", "MANIFEST", ".idx"])
def test_verify_names_it_and_repair_makes_the_rest_whole(
    kind: str, closed_log, flip, record_property
) -> None:
    tried = 0
    for name in files(kind, closed_log):
        for place, keys in list(used_places(name, closed_log.files[name]).items())[nth(61)]:
            tried += 1
            story = f"{name} byte {place}"
            with flip(name, place, PATTERNS[place % 3], WRITE) as backend:
                assert list(backend.verify()), story
                backend.repair()
                assert list(backend.verify()) == [], story
                found = observe(backend)
            _only_hit_records_differ(closed_log.seen, found, keys or set(), story)
            with LogBackend(backend.address.removeprefix("log://"), WRITE) as again:
                assert list(again.verify()) == [], story
                assert observe(again) == found, story
    record_property("bytes", tried)


def _only_hit_records_differ(seen: Observation, found: Observation, hit: set[bytes], story: str) -> None:
    for cell in {*seen.plain, *found.plain}:
        allowed = {seen.plain.get(cell), None} if cell[1] in hit else {seen.plain.get(cell)}
        assert found.plain.get(cell) in allowed, (story, cell)
    for name, (_, states, _) in found.versioned.items():
        for commit_id, state in states.items():
            expected = seen.versioned[name][1][commit_id]
            for key in {*state, *expected}:
                allowed = {expected.get(key), None} if key in hit else {expected.get(key)}
                assert state.get(key) in allowed, (story, name, commit_id, key)


def test_repair_keeps_a_copy_of_what_it_took_out_of_service(closed_log, flip) -> None:
    name = files(".seg", closed_log)[0]
    frame = next(f for f in frames(closed_log.files[name]) if f.kind is FrameKind.DATA)
    with flip(name, frame.offset + HEADER_BYTES, 0xFF, WRITE) as backend:
        report = backend.repair()
    assert report.quarantine is not None
    (kept,) = Path(report.quarantine).iterdir()
    assert flipped(closed_log.files[name], frame.offset + HEADER_BYTES, 0xFF).find(kept.read_bytes()) > 0


def test_a_log_closed_after_a_flip_is_still_right_or_raises(closed_log, flip) -> None:
    """Garbage collection does not launder a changed key into a new frame with a good checksum."""
    for name in files(".seg", closed_log):
        for frame in frames(closed_log.files[name]):
            if frame.kind is not FrameKind.CONTROL and frame.keys_bytes:
                place = frame.values_at - 1
                with flip(name, place, 0x01, WRITE) as backend:
                    answer(lambda backend=backend: backend.put_many("more", {b"k": b"v" * 14_000}))
                    answer(backend.compact)
                    broken = {key for _, _, key in broken_cells_of(backend, closed_log.seen)}
                    assert broken <= set(frame.keys())


@pytest.mark.parametrize("place", [30, 60, 100, 200, -1])
def test_a_damaged_index_is_rebuilt_by_whoever_stumbles_over_it(closed_log, flip, place: int) -> None:
    busy = LogOptions(segment_bytes=16 << 10, recent_records=20)
    for name in files(".idx", closed_log):
        at = place % len(closed_log.files[name])
        with flip(name, at, 0xFF, WRITE) as backend:
            backend.compact()
            assert observe(backend) == closed_log.seen
        with flip(name, at, 0xFF, WRITE) as backend:
            backend.delete_many("bulk", [b"bulk"])
            backend.commit("bulk", 1, {b"k": b"v"})
            assert backend.get_many("bulk", [b"k"]) == {b"k": b"v"}
        with flip(name, at, 0xFF, busy) as backend:  # the maintenance thread merges
            for i in range(200):
                backend.put_many("more", {b"%d" % i: b"v"})
            assert len(dict(backend.scan("more"))) == 200
            assert not broken_cells(backend, with_more(closed_log.seen, i))


def with_more(seen: Observation, last: int) -> Observation:
    more = {("more", b"%d" % i): b"v" for i in range(last + 1)}
    return Observation({**seen.plain, **more}, seen.versioned)


def broken_cells_of(backend: Backend, seen: Observation) -> set[Cell]:
    """As `broken_cells`, for a log that got another namespace since."""
    plain = {**seen.plain, ("more", b"k"): b"v" * 14_000}
    return broken_cells(backend, Observation(plain, seen.versioned))
