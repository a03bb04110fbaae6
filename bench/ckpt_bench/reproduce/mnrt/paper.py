"""The experiments of mnrt-2017, in its order."""

from __future__ import annotations

from ckpt_bench.reproduce.experiments import Paper
from ckpt_bench.reproduce.mnrt.growth import FIG_3, FIG_4, FIG_5
from ckpt_bench.reproduce.mnrt.topk import FIG_7, FIG_8
from ckpt_bench.reproduce.mnrt.window import FIG_6

MNRT = Paper(
    "mnrt",
    "the paper about keys that are split on demand (2017)",
    (FIG_3, FIG_4, FIG_5, FIG_6, FIG_7, FIG_8),
)
