"""`hash_pieces` gives the library's numbers, whatever way it takes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from ckpt.types import lengths_of
from ckpt_backends.engine import hashing
from ckpt_backends.engine.hashing import hash_pieces


@pytest.fixture(scope="module", autouse=True, params=["compiled", "columns"])
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "compiled" and hashing.native is None:
        pytest.skip("the log is not compiled: pip install --editable . with a C compiler")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "columns":
            patch.setattr(hashing, "native", None)
        yield


SEEDS = st.integers(0, 2**64 - 1)


def expected(pieces: list[bytes], seed: int) -> list[int]:
    return [xxh3_64_intdigest(piece, seed=seed) for piece in pieces]


@pytest.mark.parametrize("width", [*range(1, 140), 240, 241, 500])
def test_rows_of_one_length(width: int) -> None:
    draw = random.Random(width)
    for seed in (0, 1, 2**63 + draw.getrandbits(62), 2**64 - 1):
        pieces = [draw.randbytes(width) for _ in range(300)] + [bytes(width), b"\xff" * width]
        found = hash_pieces(b"".join(pieces), lengths_of(pieces), seed)
        assert found.tolist() == expected(pieces, seed)


@given(
    stretches=st.lists(
        st.tuples(st.integers(0, 140), st.sampled_from([1, 2, 255, 256, 300])), min_size=1, max_size=7
    ),
    seed=SEEDS,
)
@settings(deadline=None, max_examples=50)
def test_stretches_of_one_length(stretches: list[tuple[int, int]], seed: int) -> None:
    draw = random.Random(seed)
    pieces = [draw.randbytes(width) for width, times in stretches for _ in range(times)]
    found = hash_pieces(b"".join(pieces), lengths_of(pieces), seed)
    assert found.tolist() == expected(pieces, seed)


@given(pieces=st.lists(st.binary(max_size=40), max_size=5), times=st.integers(1, 200), seed=SEEDS)
@settings(deadline=None, max_examples=50)
def test_rows_of_any_length(pieces: list[bytes], times: int, seed: int) -> None:
    many = pieces * times
    found = hash_pieces(memoryview(b"".join(many)), lengths_of(many), seed)
    assert found.dtype == np.uint64
    assert found.tolist() == expected(many, seed)
