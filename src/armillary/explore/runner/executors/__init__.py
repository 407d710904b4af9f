"""Executors by their names: built in, of other packages, or anything of ``concurrent.futures``."""

from __future__ import annotations

import concurrent.futures

from armillary.base.errors import InputError
from armillary.base.extension import ExtensionPoint
from armillary.explore.runner.executor import Executor

EXECUTORS = {
    "processes": "armillary.explore.runner.executors.processes:Processes",
    "serial": "armillary.explore.runner.executors.serial:Serial",
    "ray": "armillary.explore.runner.executors.ray:Ray",
}
"""Name -> class of those that are built in; a class takes `workers`."""
NAMES = ExtensionPoint("armillary.executors", "executor", tuple(EXECUTORS))


def make_executor(
    wanted: str | Executor | concurrent.futures.Executor | None = None, workers: int | None = None
) -> Executor:
    """Return an executor by its name, or for one of ``concurrent.futures``.

    Args:
        wanted: "processes" (the default), "serial", "ray", a name of the entry points "armillary.executors", an
            executor, or anything that is a ``concurrent.futures.Executor``.
        workers: How many points at a time; by default as many as it has cores.

    Raises:
        InputError: there is none of that name, or the number of workers is not above 0.
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers: got {workers}, expected 1 or more")
    if isinstance(wanted, Executor):
        return wanted
    if isinstance(wanted, concurrent.futures.Executor):
        from armillary.explore.runner.executors.futures import Futures

        return Futures(wanted, workers)
    made: Executor = NAMES.load(wanted or "processes", EXECUTORS)(workers)
    return made
