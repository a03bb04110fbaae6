"""A state comes back as what it was, or its save fails and says why."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import subprocess
import sys
import uuid
import zoneinfo
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ckpt.errors import ConfigError, SerializationError
from ckpt.values.serialisers import make_serializer, same

MSGPACK = make_serializer("msgpack")
JSON = make_serializer("json")

hashable = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False),
    st.datetimes(timezones=st.none() | st.just(dt.UTC) | st.just(zoneinfo.ZoneInfo("Europe/Madrid"))),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.complex_numbers(allow_nan=False),
)
keys = st.recursive(
    hashable,
    lambda inner: st.frozensets(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
states = st.recursive(
    hashable | st.floats() | st.binary().map(bytearray) | st.just(np.float32(1.5)),
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(keys, inner),
        st.sets(keys),
        st.lists(inner).map(collections.deque),
        st.dictionaries(keys, st.integers()).map(collections.Counter),
        st.dictionaries(keys, inner).map(collections.OrderedDict),
    ),
    max_leaves=20,
)


def deep_same(a: Any, b: Any) -> bool:
    if isinstance(a, collections.deque):
        return type(b) is collections.deque and a.maxlen == b.maxlen and deep_same(list(a), list(b))
    return same(a, b)


@given(states)
def test_every_state_comes_back_with_its_types(state: Any) -> None:
    back = MSGPACK.loads(MSGPACK.dumps(state))
    assert type(back) is type(state)
    assert deep_same(state, back)


json_states = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_states)
def test_what_json_has_comes_back(state: Any) -> None:
    assert same(state, JSON.loads(JSON.dumps(state)))


@given(
    hnp.arrays(hnp.array_dtypes() | hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
)
def test_arrays_come_back_bit_for_bit_and_writable(array: np.ndarray) -> None:
    back = MSGPACK.loads(MSGPACK.dumps(array))
    assert type(back) is np.ndarray
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable


def test_fortran_order_and_slices() -> None:
    base = np.arange(24, dtype=">i4").reshape(4, 6)
    for array in (base.T, base[::2, 1::3], np.asfortranarray(base)):
        back = MSGPACK.loads(MSGPACK.dumps(array))
        assert np.array_equal(back, array)
        assert back.dtype == array.dtype
    assert MSGPACK.loads(MSGPACK.dumps(base.T)).flags.f_contiguous


@pytest.mark.parametrize(
    "scalar",
    [
        np.float64(1.5),
        np.int8(-3),
        np.bool_(True),
        np.datetime64("2026-11-16", "ns"),
        np.str_("é"),
        np.complex64(1j),
    ],
)
def test_numpy_scalars_keep_their_type(scalar: np.generic) -> None:
    back = MSGPACK.loads(MSGPACK.dumps({"x": scalar}))["x"]
    assert type(back) is type(scalar)
    assert back == scalar


@pytest.mark.parametrize(
    "value",
    [
        pa.table({"a": [1, 2, None], "b": ["x", "y", "z"]}),
        pa.table({"a": pa.chunked_array([[1], [2, 3]])}),
        pa.record_batch({"a": [1.5, None]}),
        pa.record_batch({"a": pa.array([], pa.int64())}),
        pa.array([[1], None, [2, 3]]),
        pa.array([], pa.string()),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.chunked_array([["x"], ["y", None]]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_arrow_values_come_back(value: Any) -> None:
    back = MSGPACK.loads(MSGPACK.dumps([value]))[0]
    assert type(back) is type(value)
    assert back.equals(value)


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Count:
    word: str
    count: int = 0


class NamedZone(dt.tzinfo):
    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(0)


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        (Colour.RED, "plain int"),
        (Text("x"), "plain str"),
        (Point(1, 2), "plain tuple"),
        (collections.UserDict(), "no form for"),
        (Count("be"), "state_type=Count"),
        (object(), "no form for"),
        (lambda: 0, "no form for"),
        ("\ud800", "surrogates"),
        ({"\ud800": 1}, "surrogates"),
        (np.array([object()]), "dtype object"),
        (np.ma.masked_array([1], [True]), "no form for"),
        (collections.defaultdict(lambda: 0), "factory"),
        (dt.datetime(2026, 1, 1, tzinfo=NamedZone()), "time zone"),
        (dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(0), "mine")), "time zone"),
        (memoryview(b"x"), "no form for"),
    ],
    ids=lambda v: v if isinstance(v, str) and v.isidentifier() else type(v).__name__,
)
@pytest.mark.parametrize("place", [lambda s: s, lambda s: [{"x": s}]], ids=["top", "nested"])
def test_what_would_change_is_refused_at_save(state: Any, hint: str, place: Any) -> None:
    with pytest.raises(SerializationError, match=hint):
        MSGPACK.dumps(place(state))


@pytest.mark.parametrize(
    "state", [(1,), {1: 2}, float("nan"), float("inf"), b"x", {"a"}, dt.date(2026, 1, 1), Text("x")]
)
def test_json_refuses_what_it_would_change(state: Any) -> None:
    with pytest.raises(SerializationError, match="JSON"):
        JSON.dumps([state])


def test_a_state_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    twisted: list[Any] = [(1,)]
    twisted.append(twisted)
    for state in (loop, twisted, {"x": loop}):
        with pytest.raises(SerializationError, match="contain themselves"):
            MSGPACK.dumps(state)
    with pytest.raises(SerializationError):
        JSON.dumps(loop)


def test_a_defaultdict_keeps_its_factory() -> None:
    state = collections.defaultdict(list, {"a": [1]})
    back = MSGPACK.loads(MSGPACK.dumps(state))
    assert back == state
    back["new"].append(1)


def test_no_message_contains_a_value() -> None:
    typed = make_serializer("msgpack", Count)
    for attempt in (
        lambda: typed.dumps(Count("secret-word", "secret-count")),  # type: ignore[arg-type]
        lambda: typed.loads(MSGPACK.dumps({"word": "secret", "count": "secret"})),
        lambda: JSON.dumps({"secret": float("nan")}),
        lambda: MSGPACK.loads(b"\xc1secret"),
        lambda: make_serializer("json", Count).loads(b'{"word": "secret", "count": "secret"}'),
    ):
        with pytest.raises(SerializationError) as caught:
            attempt()
        assert "secret" not in str(caught.value)


def test_pyarrow_is_imported_only_for_its_own_values() -> None:
    program = (
        "import sys, ckpt; c = ckpt.ValueCodec(); at = dict(namespace='n', key=b'k'); "
        "c.decode(c.encode({'a': (1, {2})}, **at), **at); assert 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_cryptography_is_imported_with_a_keyring_and_not_before() -> None:
    program = (
        "import sys, ckpt; before = 'cryptography' in sys.modules; ckpt.Keyring({'a': bytes(16)}); "
        "assert (before, 'cryptography' in sys.modules) == (False, True)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_without_pyarrow_its_values_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    data = MSGPACK.dumps({"t": pa.table({"a": [1]})})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SerializationError, match="pip install pyarrow"):
        MSGPACK.loads(data)


# -- typed states --------------------------------------------------------------------------------


@dataclasses.dataclass
class Window:
    start: dt.datetime
    counts: dict[str, Count]
    seen: set[int]
    bounds: tuple[int, int]
    vector: npt.NDArray[np.float64]
    anything: Any = None
    share: float = 0
    colour: Colour = Colour.RED


class Tagged(msgspec.Struct, tag="t", rename="camel"):
    first_name: str
    raw: bytes = b""


class Packed(msgspec.Struct, array_like=True):
    a: int
    b: list[Tagged]


WINDOW = Window(
    dt.datetime(2026, 1, 1), {"be": Count("be", 2)}, {1, 2}, (1, 2), np.arange(3.0), (1, [2j], {3})
)


@pytest.mark.parametrize(
    "state",
    [WINDOW, Count("x"), Tagged("a", b"\xff"), Packed(1, [Tagged("b")])],
    ids=lambda s: type(s).__name__,
)
def test_typed_states_come_back_as_their_type(state: Any) -> None:
    serializer = make_serializer("msgpack", type(state))
    back = serializer.loads(serializer.dumps(state))
    assert same(state, back)


@pytest.mark.parametrize(
    "state",
    [Count("x", 3), Tagged("a", b"\xff"), Packed(1, [Tagged("b")]), {"a": dt.date(2026, 1, 1)}],
    ids=lambda s: type(s).__name__,
)
def test_typed_json(state: Any) -> None:
    serializer = make_serializer("json", dict[str, dt.date] if isinstance(state, dict) else type(state))
    assert same(state, serializer.loads(serializer.dumps(state)))


@pytest.mark.parametrize(
    "state", [Count("x", "3"), Count("x", None), {"word": "x"}, None, Count(b"x")], ids=repr
)  # type: ignore[arg-type]
@pytest.mark.parametrize("name", ["msgpack", "json"])
def test_a_value_that_does_not_fit_its_annotation_fails_the_save(state: Any, name: str) -> None:
    with pytest.raises(SerializationError):
        make_serializer(name, Count).dumps(state)


def test_pickle_checks_the_state_type() -> None:
    serializer = make_serializer("pickle", Count)
    assert serializer.loads(serializer.dumps(Count("x"))) == Count("x")
    with pytest.raises(SerializationError, match="expected Count"):
        serializer.dumps({"word": "x"})


def test_a_state_that_cannot_be_pickled_is_an_error_of_the_save() -> None:
    with pytest.raises(SerializationError, match="cannot be pickled"):
        make_serializer("pickle").dumps(lambda: 0)


def test_unusable_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'pickle'"):
        make_serializer("pickel")
    with pytest.raises(ConfigError, match="state_type"):
        make_serializer("msgpack", dict[str, 3])  # type: ignore[misc]


@given(st.binary())
def test_garbage_is_never_a_crash(data: bytes) -> None:
    for name in ("msgpack", "json"):
        with contextlib.suppress(SerializationError):
            make_serializer(name).loads(data)


def test_other_values_of_the_extension_table() -> None:
    for state in (
        uuid.UUID(int=5),
        decimal.Decimal("1.10"),
        2**200,
        -(2**64),
        2**64 - 1,
        {2**70: 1},
        {(1, 2): 3},
    ):
        assert same(state, MSGPACK.loads(MSGPACK.dumps(state)))
