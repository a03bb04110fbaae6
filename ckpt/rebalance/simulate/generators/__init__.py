"""Streams like those of the papers, and recorded ones: each gives the intervals that planners work on.

Guarantees that the same arguments give the same stream, whatever was read before. Where an application can
run on the stream, `rows` gives its columns, and the intervals count exactly these rows.
"""

from ckpt.rebalance.simulate.generators.keyset import Columns
from ckpt.rebalance.simulate.generators.posts import Posts
from ckpt.rebalance.simulate.generators.recorded import read_intervals
from ckpt.rebalance.simulate.generators.tpch import Tpch
from ckpt.rebalance.simulate.generators.trades import Trades
from ckpt.rebalance.simulate.generators.tweets import Tweets
from ckpt.rebalance.simulate.generators.zipf import DriftingZipf, drain, zipf

__all__ = ["Columns", "DriftingZipf", "Posts", "Tpch", "Trades", "Tweets", "drain", "read_intervals", "zipf"]
