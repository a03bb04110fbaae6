"""The figures of mixed-2017, in its order; without 15 (scaling out) and 16 (several operators)."""

from __future__ import annotations

from ckpt_bench.reproduce.experiments import Paper
from ckpt_bench.reproduce.mixed.change import FIG_12
from ckpt_bench.reproduce.mixed.compactness import FIG_11
from ckpt_bench.reproduce.mixed.hashing import FIG_7
from ckpt_bench.reproduce.mixed.scale import FIG_8, FIG_9, FIG_10
from ckpt_bench.reproduce.mixed.tables import FIG_17, FIG_18
from ckpt_bench.reproduce.mixed.theorems import THEOREMS
from ckpt_bench.reproduce.mixed.throughput import FIG_13, FIG_14
from ckpt_bench.reproduce.mixed.weights import FIG_19, FIG_20, FIG_21

MIXED = Paper(
    "mixed",
    "the paper about Mixed (Fang et al. 2017, parallel stream processing against skew and variance)",
    (
        FIG_7,
        FIG_8,
        FIG_9,
        FIG_10,
        FIG_11,
        FIG_12,
        FIG_13,
        FIG_14,
        FIG_17,
        FIG_18,
        FIG_19,
        FIG_20,
        FIG_21,
        THEOREMS,
    ),
)
