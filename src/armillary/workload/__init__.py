"""Workloads that are generated rather than recorded."""
