"""Workloads as YCSB describes them, and what a checkpoint store is asked beyond them: `ckpt bench load|run`.

Property names, defaults, distributions and output are YCSB's, so its workload files and the scripts around
it work unchanged. `settings` says which properties there are, `generators` which keys are chosen, `records`
what is stored, `bindings` what an operation does to a store, `client` who does it when, `measures` how long
it took.
"""
