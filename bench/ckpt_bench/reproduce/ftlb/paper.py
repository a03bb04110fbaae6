"""The experiments of ftlb-2019, in its order."""

from __future__ import annotations

from ckpt_bench.reproduce.experiments import Paper
from ckpt_bench.reproduce.ftlb.planning import FIG_8, FIG_9
from ckpt_bench.reproduce.ftlb.recovery import FIG_10, FIG_11
from ckpt_bench.reproduce.ftlb.skew import FIG_7

FTLB = Paper(
    "ftlb",
    "the paper about replicas that balance load and survive failures (2019)",
    (FIG_7, FIG_8, FIG_9, FIG_10, FIG_11),
)
