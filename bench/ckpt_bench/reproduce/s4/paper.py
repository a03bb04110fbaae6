"""The experiments of the S4 thesis, in its order."""

from __future__ import annotations

from ckpt_bench.reproduce.experiments import Paper
from ckpt_bench.reproduce.s4.data_stores import FIG_4_6
from ckpt_bench.reproduce.s4.disk_writes import TABLE_5_1
from ckpt_bench.reproduce.s4.index_rebuild import FIG_4_2
from ckpt_bench.reproduce.s4.latency import FIG_4_5
from ckpt_bench.reproduce.s4.queue_rates import FIG_4_7
from ckpt_bench.reproduce.s4.saturation import FIG_4_1, FIG_5_1
from ckpt_bench.reproduce.s4.trade_offs import TABLE_5_2

S4 = Paper(
    "s4",
    "the thesis about checkpoints of Apache S4 (2012)",
    (FIG_4_1, FIG_4_2, FIG_4_5, FIG_4_6, FIG_4_7, FIG_5_1, TABLE_5_1, TABLE_5_2),
    "thesis",
)
