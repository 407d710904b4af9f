"""Whole runs: how long, how many NPU years, at what cost, and what failures take of them."""
