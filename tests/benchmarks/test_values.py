"""A state comes back from its bytes as it was: our envelope beside the bare serialisers.

An envelope also says how to read it and has a checksum; the bare serialisers have neither.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ckpt.values.envelope import ValueCodec

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]

STATES: Mapping[str, Any] = {
    "counter": {"count": 2, "share": 0.25, "word": "be", "seen": [1, 2, 3]},
    "window": {f"key-{n:04}": [n, n / 7] for n in range(1000)},
    "array": np.arange(10_000, dtype=np.float64),
}
PLAIN = ("ckpt-msgpack", "ckpt-json", "ckpt-pickle", "ckpt-zstd", "msgspec", "json", "pickle")
RICH = ("ckpt-msgpack", "ckpt-pickle", "ckpt-zstd", "pickle")
"""Those that have a form for arrays."""


def _envelope(codec: ValueCodec) -> tuple[Encode, Decode]:
    return (
        lambda state: codec.encode(state, namespace="words", key=b"be"),
        lambda data: codec.decode(data, namespace="words", key=b"be"),
    )


FORMS: Mapping[str, tuple[Encode, Decode]] = {
    "ckpt-msgpack": _envelope(ValueCodec()),
    "ckpt-json": _envelope(ValueCodec("json")),
    "ckpt-pickle": _envelope(ValueCodec("pickle")),
    "ckpt-zstd": _envelope(ValueCodec(compression="zstd")),
    "msgspec": (msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode),
    "json": (lambda state: json.dumps(state).encode(), json.loads),
    "pickle": (lambda state: pickle.dumps(state, protocol=5), pickle.loads),
}
PAIRS = [(form, state) for state in STATES for form in (RICH if state == "array" else PLAIN)]


@pytest.mark.parametrize(("form", "state"), PAIRS)
def test_encode(benchmark: BenchmarkFixture, form: str, state: str) -> None:
    benchmark.group = f"encode {state}"
    encode, decode = FORMS[form]
    assert_same(decode(benchmark(encode, STATES[state])), STATES[state])


@pytest.mark.parametrize(("form", "state"), PAIRS)
def test_decode(benchmark: BenchmarkFixture, form: str, state: str) -> None:
    benchmark.group = f"decode {state}"
    encode, decode = FORMS[form]
    assert_same(benchmark(decode, encode(STATES[state])), STATES[state])


def assert_same(found: Any, state: Any) -> None:
    if isinstance(state, np.ndarray):
        assert found.dtype == state.dtype
        np.testing.assert_array_equal(found, state)
    else:
        assert found == state
