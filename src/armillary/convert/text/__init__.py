"""ASTRA-sim 1.0 text workloads: the file, its training loop, and which NPUs each collective spans."""

from __future__ import annotations
