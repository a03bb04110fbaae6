"""The experiments of dlb-cep-2016, in its order."""

from __future__ import annotations

from ckpt_bench.reproduce.dlb.figures import FIG_3A, FIG_3B, FIG_4A, FIG_4B
from ckpt_bench.reproduce.dlb.table_1 import TABLE_1
from ckpt_bench.reproduce.experiments import Paper

DLB = Paper(
    "dlb",
    "load balancing of complex event processing (DAIS 2016)",
    (TABLE_1, FIG_3A, FIG_3B, FIG_4A, FIG_4B),
)
