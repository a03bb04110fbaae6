"""A snapshot is equal to the state and shares nothing that can change."""

from __future__ import annotations

import collections
import dataclasses
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.errors import SerializationError
from ckpt.keeper.snapshot import snapshot

leaves = (
    st.none()
    | st.integers()
    | st.text()
    | st.binary()
    | st.floats(allow_nan=False)
    | st.binary().map(bytearray)
)
states = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.text(), inner),
        st.lists(inner).map(collections.deque),
        st.dictionaries(st.text(), inner).map(collections.OrderedDict),
        st.dictionaries(st.text(), inner).map(lambda d: collections.defaultdict(list, d)),
        st.sets(st.integers()),
    ),
)


def spoil(state: Any) -> None:
    """Change everything that can be changed."""
    if isinstance(state, dict):
        for value in state.values():
            spoil(value)
        state["spoiled"] = 1
    elif isinstance(state, list | collections.deque | tuple):
        for value in state:
            spoil(value)
        if not isinstance(state, tuple):
            state.append("spoiled")
    elif isinstance(state, set):
        state.add("spoiled")
    elif isinstance(state, bytearray):
        state += b"spoiled"


@given(states)
def test_nothing_is_shared(state: Any) -> None:
    kept = snapshot(state)
    same = snapshot(state)
    assert kept == state
    assert type(kept) is type(state)
    spoil(state)
    assert kept == same


@dataclasses.dataclass
class Count:
    words: list[str]


def test_arrays_objects_and_immutables() -> None:
    array = np.arange(4)
    objects = np.array([[1], None], dtype=object)
    count = Count(["a"])
    table = pa.table({"a": [1]})
    kept = snapshot({"a": array, "o": objects, "c": count, "t": table, "d": collections.deque([1], 3)})
    array[0] = 99
    objects[0].append(2)
    count.words.append("b")
    assert kept["a"].tolist() == [0, 1, 2, 3]
    assert kept["o"][0] == [1]
    assert kept["c"] == Count(["a"])
    assert kept["t"] is table
    assert kept["d"].maxlen == 3


def test_what_cannot_be_copied_is_named_by_type() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for state in (threading.Lock(), {"x": threading.Lock()}, loop):
        with pytest.raises(SerializationError, match=f"type {type(state).__name__} cannot be copied"):
            snapshot(state)
