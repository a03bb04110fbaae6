"""Looking at every byte of a log, and taking what is bad out of service without destroying it."""

from __future__ import annotations

from collections.abc import Iterator

from ckpt.contract.backend import BadRecord, RepairReport
from ckpt_backends.engine.engine import Engine
from ckpt_backends.engine.frame import Body, Frame, FrameKind, build_body
from ckpt_backends.engine.manifest import Damage
from ckpt_backends.engine.replay import Replay, Replayed
from ckpt_backends.engine.runs import IndexDamagedError, pack_location
from ckpt_backends.engine.segment import Segment
from ckpt_backends.engine.suspects import deletes_of_suspects, find_suspects
from ckpt_backends.engine.visibility import LayerView


def verify_log(engine: Engine) -> Iterator[BadRecord]:
    """Read every frame and every index entry, and yield what is wrong. Changes nothing.

    Writers need not wait; maintenance does, so that no segment is retired meanwhile.
    """
    address = engine.storage.address
    with engine.lock:
        engine.find_lost()
    for number in sorted(engine.lost):
        yield BadRecord(f"{address} segment {number}", "the file is gone although the log needs it")
    found: list[BadRecord] = []

    def check(batch: list[Frame]) -> None:
        for frame in batch:
            found.extend(_bad_records(engine, frame))

    replayed = Replay(engine.storage, engine.log_id, None, engine.durable).run(check)
    headers = _bad_headers(engine, replayed)
    damages = {(d.segment, d.start): d for d in [*engine.damages, *replayed.damages, *headers]}
    skips = list(engine.catalog.skips)
    for damage in damages.values():
        if not damage.is_within(skips) and damage.segment in engine.live:
            yield BadRecord(f"{address} segment {damage.segment} offset {damage.start}", damage.reason)
    yield from found
    if engine.index_problem is not None:
        yield BadRecord(f"{address} index", engine.index_problem)
    for run in engine.index.runs:
        try:
            run.all_locations()
        except IndexDamagedError as error:
            yield BadRecord(f"{address} index", str(error))


def _bad_headers(engine: Engine, replayed: Replayed) -> list[Damage]:
    """Damaged segment headers: no record is lost with one, because frames say the same."""
    end = engine.storage.data_start
    reason = "the segment header does not match its checksum; its records are not affected"
    return [Damage(n, 0, end, 0, reason) for n in replayed.bad_headers if n in engine.live]


def _bad_records(engine: Engine, frame: Frame) -> list[BadRecord]:
    """The records of an otherwise intact frame whose values are not what was written."""
    segment = frame.owner
    assert isinstance(segment, Segment)
    if segment.number not in engine.live:
        return []
    bad = frame.bad_values()
    if not bad or Damage(segment.number, frame.offset, frame.end, 0, "").is_within(engine.catalog.skips):
        return []
    state = engine.catalog.by_id.get(frame.namespace)
    name = state.name if state else f"(dropped namespace {frame.namespace})"
    place = f"{engine.storage.address} segment {segment.number} offset {frame.offset}"
    return [
        BadRecord(f"{place} record {i}", "the value does not match its checksum", name, frame.key(i))
        for i in bad
    ]


def repair_log(engine: Engine) -> RepairReport:
    """Rebuild the index from the frames; take damaged stretches and bad values out of service.

    Copies of both lie in the quarantine folder afterwards. A key whose current value was bad is missing from
    then on, and does not show an older value; every other record stays as it is.
    """
    problems = list(verify_log(engine))
    folder: str | None = None
    ranges: list[tuple[int, int, int]] = []
    with engine.lock:
        suspects = find_suspects(engine)
        engine.rebuild()
        deletes = deletes_of_suspects(engine, suspects)
        for damage in engine.damages:
            if damage.segment in engine.lost:
                continue
            folder = _quarantine(engine, engine.records.segment(damage.segment), damage.start, damage.end)
            ranges.append((damage.segment, damage.start, damage.end))
        frames, headers = _frames_with_bad_values(engine)
        for damage in headers:
            folder = _quarantine(engine, engine.records.segment(damage.segment), damage.start, damage.end)
            ranges.append((damage.segment, damage.start, damage.end))
        for frame in frames:
            segment = frame.owner
            assert isinstance(segment, Segment)
            folder = _quarantine(engine, segment, frame.offset, frame.end)
            ranges.append((segment.number, frame.offset, frame.end))
            deletes.extend(_deletes_of_bad_values(engine, frame, segment.number))
        engine.settle_segments(without=engine.lost)
        engine.catalog.skips.extend(ranges)
        repaired = engine.append(
            [*deletes, engine.control({"op": "catalog", "catalog": engine.catalog.dump()})]
        )
    engine.wait_durable(repaired)
    with engine.lock:
        engine.rebuild()
        kept = sum(s.records for s in engine.summaries.values())
    return RepairReport(kept, tuple(problems), folder)


def _quarantine(engine: Engine, segment: Segment, start: int, end: int) -> str:
    name = f"segment-{segment.number:012d}-{start}-{end}.bytes"
    return engine.storage.quarantine(name, bytes(segment.buffer[start:end]))


def _frames_with_bad_values(engine: Engine) -> tuple[list[Frame], list[Damage]]:
    found: list[Frame] = []

    def check(batch: list[Frame]) -> None:
        found.extend(f for f in batch if _bad_records(engine, f))

    replayed = Replay(engine.storage, engine.log_id, None, engine.durable).run(check)
    headers = _bad_headers(engine, replayed)
    return found, [h for h in headers if not h.is_within(engine.catalog.skips)]


def _deletes_of_bad_values(engine: Engine, frame: Frame, number: int) -> list[Body]:
    """Frames that make the bad records of a frame missing, where they are not out of date anyway."""
    state = engine.catalog.by_id.get(frame.namespace)
    if state is None:
        return []
    keys = {pack_location(number, frame.offset, i): frame.key(i) for i in frame.bad_values()}
    if frame.kind is not FrameKind.DATA:
        layer_view = LayerView(frozenset({frame.layer}), state.snapshot_layer, state.snapshot_sequence)
        current = engine.index.locate_layered(state.id, list(keys.values()), layer_view, engine.live)
    else:
        current = engine.index.locate(state.id, list(keys.values()), engine.live)
    gone = [key for location, key in keys.items() if current.get(key) == location]
    if not gone:
        return []
    kind = FrameKind.DATA if frame.kind is FrameKind.DATA else FrameKind.MOVED
    return [build_body(kind, state.id, (), (), gone, layer=frame.layer)]
