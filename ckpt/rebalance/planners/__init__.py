"""One planner per file, each to be laid beside its paper's pseudocode; deviations are marked with a reason.

A planner knows the `Problem` that it is given and nothing else of the package. It is registered by existing.
"""
