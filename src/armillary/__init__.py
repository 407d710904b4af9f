"""Armillary: a fast, exact simulator for distributed machine learning."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from armillary.base import VERSION, lazy

if TYPE_CHECKING:
    from armillary import astra_sim
    from armillary.base.allowed import allow
    from armillary.convert.collect import collect
    from armillary.engine import simulate
    from armillary.engine.common.timeline import Timeline
    from armillary.engine.multi_job import simulate_jobs
    from armillary.explore.codesign.search import plan_machine
    from armillary.explore.compare.comparison import compare
    from armillary.explore.deploy.choose import plan_serving
    from armillary.explore.result import run
    from armillary.explore.runner.results import sweep
    from armillary.explore.samples.run import sample
    from armillary.explore.search.run import search
    from armillary.explore.training.choose import plan
    from armillary.explore.training.train import train
    from armillary.platform import load_platform
    from armillary.serving.serve import serve
    from armillary.trace import Trace, load_trace
    from armillary.trace.compose import PlacedJob

__version__ = VERSION
__all__ = [
    "PlacedJob",
    "Timeline",
    "Trace",
    "allow",
    "astra_sim",
    "collect",
    "compare",
    "load_platform",
    "load_trace",
    "plan",
    "plan_machine",
    "plan_serving",
    "run",
    "sample",
    "search",
    "serve",
    "simulate",
    "simulate_jobs",
    "sweep",
    "train",
]

_lazy = lazy(
    __name__,
    {
        ".base.allowed": ("allow",),
        ".convert.collect": ("collect",),
        ".engine": ("simulate",),
        ".engine.multi_job": ("simulate_jobs",),
        ".engine.common.timeline": ("Timeline",),
        ".explore.codesign.search": ("plan_machine",),
        ".explore.compare.comparison": ("compare",),
        ".explore.deploy.choose": ("plan_serving",),
        ".explore.result": ("run",),
        ".explore.runner.results": ("sweep",),
        ".explore.samples.run": ("sample",),
        ".explore.search.run": ("search",),
        ".explore.training.choose": ("plan",),
        ".explore.training.train": ("train",),
        ".platform": ("load_platform",),
        ".serving.serve": ("serve",),
        ".trace": ("Trace", "load_trace"),
        ".trace.compose": ("PlacedJob",),
    },
)


def __dir__() -> list[str]:
    # Names that are imported on first use are there before.
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    # The one name that is a module.
    return import_module("armillary.astra_sim") if name == "astra_sim" else _lazy(name)
