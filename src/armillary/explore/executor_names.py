"""The names of executors: apart from what they do, so that help and completion need not load it."""

from __future__ import annotations

from armillary.base.extension import ExtensionPoint

# Text, not classes: help and completion import this module.
EXECUTORS = {
    "processes": "armillary.explore.runner.executors.processes:Processes",
    "serial": "armillary.explore.runner.executors.serial:Serial",
    "ray": "armillary.explore.runner.executors.ray:Ray",
    "dask": "armillary.explore.runner.executors.dask:Dask",
}
"""Name -> class of those that are built in, the default first; a class takes `workers`."""
EXECUTOR_NAMES = ExtensionPoint("armillary.executors", "executor", tuple(EXECUTORS))
