"""Points of a sweep, evaluated once each and kept: a store that can be resumed, and where the work is done.

`run` screens points, simulates what is left and puts every result into a `Store` at once. An `Executor` says where:
in this process, in processes of this machine, on Ray, or in any ``concurrent.futures.Executor``.

Whoever does points, on this machine, on Ray or in somebody's executor, does them through a keeper: a process
that has loaded the program and its kernels, and forks workers within milliseconds. Workers write on a shared
page which point they do and since when. So the keeper can end one over its limits and knows which point to
blame, also after a crash, while the others continue. An executor is four functions: `start`, `submit`,
`wait`, `close`.

The run screens all points, then simulates what is left in tasks of about two seconds, and adds each result to
the store as it comes. The store knows work by a hash of everything it depends on, and points only refer to
it. So resuming, editing a sweep and sharing work between sweeps are one thing: looking up hashes. Rows are
read in the order of the space, whatever order they were done in.
"""

from __future__ import annotations

from armillary.explore.executor_names import EXECUTORS
from armillary.explore.runner.executor import Arrived, CutShortError, Executor
from armillary.explore.runner.executors import make_executor
from armillary.explore.runner.results import Results, sweep
from armillary.explore.runner.run import Counts, run, screen
from armillary.explore.runner.store import Store
from armillary.explore.runner.stored import Stored
from armillary.explore.runner.task import Job, Outcome, Task, do

__all__ = [
    "EXECUTORS",
    "Arrived",
    "Counts",
    "CutShortError",
    "Executor",
    "Job",
    "Outcome",
    "Results",
    "Store",
    "Stored",
    "Task",
    "do",
    "make_executor",
    "run",
    "screen",
    "sweep",
]
