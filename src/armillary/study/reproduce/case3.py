"""Case study 3 of ASTRA-sim 2.0 (ISPASS 2023): ZeRO-Infinity against a hierarchical memory pool."""

from __future__ import annotations

SHAPES = ("mixtral-8x7b", "mixtral-8x22b", "qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-v3")
"""All models with experts that the workload generator knew when this was written, before anything was run."""
