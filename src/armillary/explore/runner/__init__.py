"""Points of a sweep, evaluated once each and kept: a store that can be resumed, and where the work is done.

`run` screens points, simulates what is left and puts every result into a `Store` at once. An `Executor` says where:
in this process, in processes of this machine, on Ray, or in any ``concurrent.futures.Executor``.
"""

from __future__ import annotations

from armillary.explore.runner.executor import Executor
from armillary.explore.runner.executors import EXECUTORS, make_executor
from armillary.explore.runner.results import Results, sweep
from armillary.explore.runner.run import Counts, run, screen
from armillary.explore.runner.store import Store
from armillary.explore.runner.stored import Stored

__all__ = [
    "EXECUTORS",
    "Counts",
    "Executor",
    "Results",
    "Store",
    "Stored",
    "make_executor",
    "run",
    "screen",
    "sweep",
]
