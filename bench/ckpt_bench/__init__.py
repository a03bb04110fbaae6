"""Benchmarks of ckpt beside its peers."""
