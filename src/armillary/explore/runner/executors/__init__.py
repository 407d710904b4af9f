"""Executors by name: built in, of other packages, or anything of ``concurrent.futures``."""

from __future__ import annotations

import concurrent.futures

from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.explore.executor_names import EXECUTOR_NAMES, EXECUTORS
from armillary.explore.runner.executor import Executor


def make_executor(
    wanted: str | Executor | concurrent.futures.Executor | None = None, workers: int | None = None
) -> Executor:
    """Return an executor by its name, or for one of ``concurrent.futures``.

    Args:
        wanted: "processes" (the default), "serial", "ray", "dask", a name of the entry points "armillary.executors", an
            executor, or anything that is a ``concurrent.futures.Executor``.
        workers: How many points at a time; by default as many as it has cores.

    Raises:
        InputError: there is none of that name, it is no `Executor`, or the number of workers is not above 0.
    """
    # Here, so that executors of other packages need not check it.
    if workers is not None and workers < 1:
        raise InputError(f"workers: got {workers}, expected 1 or more")
    if isinstance(wanted, Executor):
        return wanted
    if isinstance(wanted, concurrent.futures.Executor):
        # Imported on demand: each executor brings libraries of its own.
        from armillary.explore.runner.executors.futures import Futures

        return Futures(wanted, workers)
    name = wanted or "processes"
    found = EXECUTOR_NAMES.load(name, EXECUTORS)
    with EXECUTOR_NAMES.guard(name):
        # The guard names the package if its constructor fails.
        made = found(workers)
    if not isinstance(made, Executor):
        raise InputError(f"executor '{name}' is {show(made)}, expected an Executor")
    return made
