"""Every paper that can be reproduced, by the name it has on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ckpt_bench.reproduce.dlb.paper import DLB
from ckpt_bench.reproduce.experiments import Paper
from ckpt_bench.reproduce.ftlb.paper import FTLB
from ckpt_bench.reproduce.mixed.paper import MIXED
from ckpt_bench.reproduce.mnrt.paper import MNRT
from ckpt_bench.reproduce.s4.paper import S4

PAPERS: Mapping[str, Paper] = MappingProxyType({paper.name: paper for paper in (S4, MIXED, DLB, MNRT, FTLB)})
