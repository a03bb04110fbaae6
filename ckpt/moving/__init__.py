"""Verified copies between any two stores; the source is never written."""
