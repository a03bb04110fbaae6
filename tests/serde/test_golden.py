"""The bytes on disk cannot drift: envelopes written once are read by every later ckpt.

`golden/*.hex` hold one envelope each. To add a case, write its file with the program that introduces it;
never change a file that was released.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import pathlib
import uuid
from typing import Any

import numpy as np
import pytest

from ckpt.values.envelope import ValueCodec
from ckpt.values.keyring import Keyring
from ckpt.values.serialisers import same

GOLDEN = pathlib.Path(__file__).parent / "golden"
AT = {"namespace": "words", "key": b"be"}
RING = Keyring({"k1": bytes(range(32))})
TEXT = {"text": "to be or not to be " * 20}
RICH = {
    "tuple": (1, ()),
    "set": {1},
    "frozenset": frozenset({"a"}),
    "pairs": {(1, 2): 3},
    "bytearray": bytearray(b"xy"),
    "big": [2**70, -(2**70)],
    "complex": 1 + 2j,
    "decimal": decimal.Decimal("1.10"),
    "datetime": [dt.datetime(2026, 11, 16, 12, 30, 5, 7), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)],
    "date": dt.date(2026, 11, 16),
    "time": dt.time(1, 2, 3),
    "timedelta": dt.timedelta(-1, 2, 3),
    "uuid": uuid.UUID(int=7),
    "deque": collections.deque([1, 2], 5),
    "counter": collections.Counter("aab"),
    "ordered": collections.OrderedDict(b=1, a=2),
    "default": collections.defaultdict(int, a=1),
    "array": np.arange(6, dtype="<i4").reshape(2, 3),
    "scalar": np.float32(1.5),
}

WRITTEN: dict[str, tuple[ValueCodec, Any]] = {
    "plain": (
        ValueCodec(),
        {"count": 2, "word": "be", "none": None, "raw": b"\0\xff", "list": [1.5, True, -1]},
    ),
    "json": (ValueCodec("json"), {"count": 2, "list": [1.5, None]}),
    "schema7": (ValueCodec(schema_version=7), {"count": 2}),
    "rich": (ValueCodec(), RICH),
    "zstd": (ValueCodec(compression="zstd"), TEXT),
    "aes": (ValueCodec(keyring=RING), {"count": 2}),
    "zstd+aes": (ValueCodec(compression="zstd", keyring=RING), TEXT),
}
DETERMINISTIC = ["plain", "json", "schema7", "rich"]


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / f"{name}.hex").read_text())


@pytest.mark.parametrize("name", WRITTEN)
def test_golden_envelopes_are_read(name: str) -> None:
    codec, state = WRITTEN[name]
    back = codec.decode(golden(name), **AT)
    if name == "rich":
        assert list(back.pop("deque")) == [1, 2]
        state = {k: v for k, v in state.items() if k != "deque"}
    assert same(state, back)


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_golden_envelopes_are_written(name: str) -> None:
    codec, state = WRITTEN[name]
    assert codec.encode(state, **AT) == golden(name)


def test_every_golden_file_has_a_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.hex")} == set(WRITTEN)
