"""Armillary: a fast, exact simulator for distributed machine learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.base import VERSION

if TYPE_CHECKING:
    from armillary import astra_sim as astra_sim
    from armillary.convert.collect import collect as collect
    from armillary.engine import simulate as simulate
    from armillary.engine.common.multi_job import simulate_jobs as simulate_jobs
    from armillary.engine.common.timeline import Timeline as Timeline
    from armillary.explore.runner.results import sweep as sweep
    from armillary.explore.search.run import search as search
    from armillary.explore.training.choose import plan as plan
    from armillary.explore.training.train import train as train
    from armillary.platform import load_platform as load_platform
    from armillary.trace import Trace as Trace
    from armillary.trace import load_trace as load_trace
    from armillary.trace.compose import PlacedJob as PlacedJob

__version__ = VERSION
__all__ = [
    "PlacedJob",
    "Timeline",
    "Trace",
    "astra_sim",
    "collect",
    "load_platform",
    "load_trace",
    "plan",
    "search",
    "simulate",
    "simulate_jobs",
    "sweep",
    "train",
]

_HOME = {
    "PlacedJob": "armillary.trace.compose",
    "Timeline": "armillary.engine.common.timeline",
    "Trace": "armillary.trace",
    "collect": "armillary.convert.collect",
    "load_platform": "armillary.platform",
    "load_trace": "armillary.trace",
    "plan": "armillary.explore.training.choose",
    "search": "armillary.explore.search.run",
    "simulate": "armillary.engine",
    "simulate_jobs": "armillary.engine.common.multi_job",
    "sweep": "armillary.explore.runner.results",
    "train": "armillary.explore.training.train",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "astra_sim":
        return importlib.import_module("armillary.astra_sim")
    if name not in _HOME:
        raise AttributeError(f"module 'armillary' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
