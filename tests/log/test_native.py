"""The compiled half of the log gives the answers of the Python that it stands in for, whatever it finds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from ckpt.errors import CkptError
from ckpt.types import Changes
from ckpt_backends.engine import engine, hashing, opening, reading
from ckpt_backends.engine.frame import MAX_RECORDS, Frame, FrameKind, build_body, seal
from ckpt_backends.engine.native import native
from ckpt_backends.engine.runs import Run, encode_run, pack_location, unpack_location
from ckpt_backends.log import LogBackend, LogOptions

if native is None:
    pytest.skip(
        "the log is not compiled: pip install --editable . with a C compiler", allow_module_level=True
    )

ROOT = Path(__file__).parents[2]
SMALL = LogOptions(segment_bytes=16 << 10, recent_records=50)


def answers(log: LogBackend, keys: list[bytes]) -> list[dict[bytes, bytes] | type[CkptError]]:
    """What the log says about each key, and about all of them at once."""
    found: list[dict[bytes, bytes] | type[CkptError]] = []
    for asked in [*([key] for key in keys), keys]:
        try:
            found.append(log.get_many("words", asked))
        except CkptError as error:
            found.append(type(error))
    return found


def both(log: LogBackend, keys: list[bytes]) -> list[dict[bytes, bytes] | type[CkptError]]:
    """The answers of the compiled half, which are those of the Python."""
    compiled = answers(log, keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "native", None)
        assert answers(log, keys) == compiled
    return compiled


@pytest.mark.parametrize("length", [*range(260), 1023, 1024, 1025, 1087, 1088, 1089, 16384, 100_003])
def test_every_length_has_its_hash(length: int) -> None:
    piece = np.random.default_rng(length).bytes(length)
    for seed in (0, 2**63 + length):
        [found] = hashing.hash_pieces(piece, np.array([length], np.uint32), seed).tolist()
        assert found == xxh3_64_intdigest(piece, seed)


def test_lengths_that_do_not_fit_are_refused() -> None:
    assert native is not None
    for lengths, hashes in (([2, 2], 2), ([1, 1], 1), ([4], 2)):
        with pytest.raises(ValueError, match="do not fit"):
            native.hash_pieces(b"abc", np.array(lengths, np.uint32), 0, np.empty(hashes, np.uint64))


U64 = st.integers(0, 2**64 - 1)


@given(
    st.dictionaries(st.binary(max_size=300), st.binary(max_size=3000), min_size=1, max_size=40),
    *(st.integers(0, 2**32 - 1), U64, U64, U64, U64),
)
def test_puts_are_the_same_frame(
    items: dict[bytes, bytes], namespace: int, sequence: int, durable: int, epoch: int, seed: int
) -> None:
    assert native is not None
    body = build_body(FrameKind.DATA, namespace, list(items), list(items.values()))
    frame = seal(body, sequence=sequence, durable=durable, epoch=epoch, seed=seed, layer=0)
    sealed = native.sealed_puts(items, namespace, sequence, durable, epoch, seed)
    assert sealed == (b"".join(frame), list(items))


def test_a_frame_of_what_does_not_fit_is_refused() -> None:
    assert native is not None
    with pytest.raises(OverflowError, match="cannot hold"):
        native.sealed_puts({b"be": b"2"}, 2**32, 1, 0, 1, 0)
    with pytest.raises(OverflowError):
        native.sealed_puts({b"be": b"2"}, 1, -1, 0, 1, 0)
    with pytest.raises(TypeError, match="sealed_puts"):
        native.sealed_puts([(b"be", b"2")], 1, 1, 0, 1, 0)  # type: ignore[arg-type]


FULL = {b"%d" % n: b"" for n in range(MAX_RECORDS)}


@pytest.mark.parametrize(
    "items",
    [
        {},
        {b"be": bytearray(b"2")},
        {b"be": b"2", "or": b"1"},
        {b"be": bytes(1 << 16)},
        {b"%d" % n: bytes(1 << 15) for n in range(128)},
        {**FULL, b"one more": b""},
    ],
    ids=["nothing", "not bytes", "a wrong key", "a long value", "long together", "too many"],
)
def test_other_puts_are_left_to_python(items: dict[bytes, bytes]) -> None:
    assert native is not None
    assert native.sealed_puts(items, 1, 1, 0, 1, 0) is None


def test_puts_fill_a_frame() -> None:
    assert native is not None
    sealed = native.sealed_puts(FULL, 1, 1, 0, 1, 0)
    assert sealed is not None
    assert Frame(memoryview(sealed[0]), 0, 0).keys() == sealed[1] == list(FULL)


def test_puts_leave_the_same_log(tmp_path: Path) -> None:
    """Byte for byte, through the beginnings of segments, whichever half has written it."""
    rng = np.random.default_rng(7)
    puts = [
        {b"key-%d" % rng.integers(30): rng.bytes(rng.integers(6000 // many)) for _ in range(many)}
        for many in (1, 3, 1, 20) * 15
    ]
    written = []
    for way in ("compiled", "plain"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(opening.secrets, "randbits", lambda bits: 2**bits // 3)
            if way == "plain":
                patch.setattr(engine, "native", None)
            with LogBackend(str(tmp_path / way), LogOptions(segment_bytes=16 << 10, gc=False)) as log:
                log.put_many("words", {b"": b""})
                for put in puts[::2]:
                    log.put_many("words", put)
                for put in puts[1::2]:
                    log.write_many({"words": Changes(put)})
                assert all(both(log, [key for put in puts for key in put]))
        segments = sorted((tmp_path / way / "segments").glob("0*.seg"))
        written.append([segment.read_bytes() for segment in segments])
    assert len(written[0]) > 5
    assert written[0] == written[1]


KEYS = [b"", b"a", b"be", b"\0", b"k" * 17, *(b"key-%d" % n for n in range(20))]
WRITES = st.one_of(
    st.tuples(st.just("put"), st.dictionaries(st.sampled_from(KEYS), st.binary(max_size=600), min_size=1)),
    st.tuples(st.just("delete"), st.lists(st.sampled_from(KEYS), min_size=1)),
    st.tuples(st.sampled_from(["open", "compact", "expiring"]), st.none()),
)


@given(st.lists(WRITES, max_size=30))
@settings(deadline=None)
def test_whatever_was_written_is_read_alike(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[str, object]]
) -> None:
    folder = str(tmp_path_factory.mktemp("log"))
    times_s = [1000.0]
    log = LogBackend(folder, SMALL, clock=lambda: times_s[-1])
    for what, given_ in writes:
        match what:
            case "put":
                log.put_many("words", given_)  # type: ignore[arg-type]
            case "delete":
                log.delete_many("words", given_)  # type: ignore[arg-type]
            case "expiring":
                log.put_many("words", {b"be": b"soon gone"}, ttl_s=60)
                times_s.append(times_s[-1] + 40)
            case "compact":
                log.compact()
            case _:
                log.close()
                log = LogBackend(folder, SMALL, clock=lambda: times_s[-1])
        both(log, KEYS)
    log.close()


def test_damage_is_found_by_both(tmp_path: Path) -> None:
    """One flipped bit after the other, all over the segments and the index."""
    keys = [b"key-%d" % n for n in range(12)]
    with LogBackend(str(tmp_path / "log")) as log:
        log.put_many("words", {key: key * 9 for key in keys})
        log.delete_many("words", keys[:2])
        log.put_many("words", {keys[2]: b"newer"})
    [segment] = (tmp_path / "log" / "segments").glob("0*.seg")
    [run] = (tmp_path / "log" / "index").glob("run-*.idx")
    kept = set()
    for path in (segment, run):
        intact = path.read_bytes()
        start = 4096 if path == segment else 0
        for at in range(start, len(intact), 7):
            path.write_bytes(intact[:at] + bytes([intact[at] ^ (1 << at % 8)]) + intact[at + 1 :])
            with LogBackend(str(tmp_path / "log"), LogOptions(mode="read")) as log:
                for answer in both(log, keys):
                    kept.update(answer.items() if isinstance(answer, dict) else ())
        path.write_bytes(intact)
    # Nothing but what was written, whatever was damaged.
    assert kept == {**{key: key * 9 for key in keys[3:]}, keys[2]: b"newer"}.items()


def test_damage_to_an_index_that_is_open_hides_no_key(tmp_path: Path) -> None:
    """What says where the entries of a namespace are was verified, and is not read from the file again."""
    keys = [b"key-%d" % n for n in range(12)]
    with LogBackend(str(tmp_path / "log")) as log:
        log.put_many("words", {key: key * 9 for key in keys})
    [run] = (tmp_path / "log" / "index").glob("run-*.idx")
    intact = run.read_bytes()
    hashes_at = len(intact) - 16 * len(keys)
    with LogBackend(str(tmp_path / "log")) as log:
        before = both(log, keys)
        for at in range(hashes_at):
            with run.open("r+b") as file:
                file.seek(at)
                file.write(bytes([intact[at] ^ (1 << at % 8)]))
            assert both(log, keys) == before
            with run.open("r+b") as file:
                file.write(intact)


def test_what_is_no_run_makes_no_entries() -> None:
    assert native is not None
    with pytest.raises(ValueError, match="not an intact run"):
        native.Entries(memoryview(bytes(100)))
    with pytest.raises(TypeError):
        native.Entries.__new__(native.Entries)  # type: ignore[call-overload]


def test_another_key_with_the_same_hash_is_another_key(tmp_path: Path) -> None:
    with LogBackend(str(tmp_path / "log")) as log:
        log.put_many("words", {b"be": b"2", b"or": b"1"})
    with LogBackend(str(tmp_path / "log")) as log:
        engine = log._engine
        state = engine.namespace("words")
        assert state is not None
        places = engine.index.locate(state.id, [b"be", b"or"], engine.live)
        wanted = xxh3_64_intdigest(b"be", engine.index.seed)
        # An index in which the hash of "be" is first that of "or".
        columns = (np.array([wanted] * 2, np.uint64), np.array([places[b"or"], places[b"be"]], np.uint64))
        data = b"".join(encode_run([(state.id, *columns)]))
        engine.index.runs = (Run("made-up", memoryview(data)),)
        assert both(log, [b"be"]) == [{b"be": b"2"}] * 2


def test_a_retired_segment_is_not_read_from(tmp_path: Path) -> None:
    with LogBackend(str(tmp_path / "log"), LogOptions(segment_bytes=16 << 10, gc=False)) as log:
        keys = [b"key-%d" % n for n in range(20)]
        for round_ in range(40):  # the keys are in the first segment, and the others only hold garbage
            log.put_many("words", dict.fromkeys(keys if not round_ else [b"junk"], b"%d" % round_ * 500))
        before = both(log, keys)
        near = set(log._engine.records.near)
        log.compact()
        assert both(log, keys) == before
        gone = near - log._engine.live.numbers
        assert gone
        assert not gone & set(log._engine.records.near)


def test_a_segment_that_cannot_be_fetched_is_told_in_the_same_words(tmp_path: Path) -> None:
    with LogBackend(str(tmp_path / "log")) as log:
        log.put_many("words", {b"be": b"2"})
    with LogBackend(str(tmp_path / "log")) as log:
        [segment] = (tmp_path / "log" / "segments").glob("0*.seg")
        segment.rename(tmp_path / "aside")
        with pytest.raises(CkptError, match="is gone although the log needs it") as compiled:
            log.get_many("words", [b"be"])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "native", None)
            with pytest.raises(CkptError) as plain:
                log.get_many("words", [b"be"])
        assert str(compiled.value) == str(plain.value)
        (tmp_path / "aside").rename(segment)
        assert log.get_many("words", [b"be"]) == {b"be": b"2"}


def test_ctrl_c_while_a_segment_is_fetched_is_heard(tmp_path: Path) -> None:
    with LogBackend(str(tmp_path / "log")) as log:
        log.put_many("words", {b"be": b"2"})
    with LogBackend(str(tmp_path / "log")) as log, pytest.MonkeyPatch.context() as patch:
        patch.setattr(log._storage, "segment", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            log.get_many("words", [b"be"])


def test_what_goes_wrong_while_looking_into_a_segment_is_heard(tmp_path: Path) -> None:
    """Segments of an object store are fetched when somebody looks into them, and that may fail."""

    class Seeded:
        seed = 0

    class Lost(Seeded):
        @property
        def buffer(self) -> memoryview:
            # Python forgets an error that is not yet raised when it looks through the classes of an object.
            sys._clear_type_cache()
            raise CkptError("the object is gone")

    with LogBackend(str(tmp_path / "log")) as log:
        log.put_many("words", {b"be": b"2"})
        for number in log._engine.live.numbers:
            log._engine.records.near[number] = Lost()  # type: ignore[assignment]
        with pytest.raises(CkptError, match="the object is gone"):
            log.get_many("words", [b"be"])


def test_locations_are_taken_apart_alike(tmp_path: Path) -> None:
    """A record far into a large segment: the widest numbers that a location has."""
    with LogBackend(str(tmp_path / "log")) as log:
        for n in range(40):
            log.put_many("words", {b"%d-%d" % (n, i): b"v" * 100 for i in range(9000)})
        assert unpack_location(pack_location(5, 48, 7)) == (5, 48, 7)
        keys = [b"39-8999", b"0-0", b"20-4000", b"39-9000"]
        assert [len(found) for found in both(log, keys)] == [1, 1, 1, 0, 3]
    with LogBackend(str(tmp_path / "log")) as log:
        assert [len(found) for found in both(log, keys)] == [1, 1, 1, 0, 3]


def test_it_can_be_left_out(tmp_path: Path) -> None:
    asked = "from ckpt_backends.engine.native import native; print(native is None)"
    for value, expected in (("1", "True"), ("0", "False"), ("", "False")):
        done = subprocess.run(
            [sys.executable, "-c", asked],
            env={**os.environ, "CKPT_PURE": value},
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        assert done.stdout.split() == [expected]
