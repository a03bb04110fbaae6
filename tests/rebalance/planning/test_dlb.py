"""DLB ends, also where the last digits of floats would have it go on."""

from __future__ import annotations

import numpy as np
import pytest

import ckpt.rebalance as rb


@pytest.mark.parametrize("planner", ["dlb-h", "dlb-l"])
def test_a_key_as_heavy_as_the_difference_is_not_passed_to_and_fro(planner: str) -> None:
    draw = np.random.default_rng(91)
    count, instances = int(draw.integers(4, 14)), int(draw.integers(2, 5))
    tenths = draw.integers(1, 4, count) * 0.1  # sums of tenths are not exact
    place = draw.integers(0, instances, count).astype(np.int32)
    plan = rb.plan(rb.Loads(np.arange(count, dtype=np.uint64), tenths, tenths, place), planner, theta=0.0)
    # Odd in tenths, so one instance has a tenth more; no move makes that better.
    assert round(10 * (plan.loads_after.max() - plan.loads_after.min())) <= 1
