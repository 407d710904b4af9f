"""JAX and XLA profiles: the `.xplane.pb` of `jax.profiler.trace`; every device that worked is a rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.base.errors import InputError
from armillary.convert.converted import Converted


def convert(inputs: Sequence[Path]) -> Converted:
    """Return what every device ran with its recorded times, and who waited for whom.

    Ranks are in the order of the files, and in a file in that of the devices. Collectives have the bytes and groups of
    the HLO that the profile holds.

    Args:
        inputs: one file for each host, all of one run.

    Raises:
        InputError: a file is no such profile, is damaged, or has no work of a device.
    """
    from armillary.convert.xplane.trace import trace_of

    for path in inputs:
        if path.is_dir():
            raise InputError(f"{path}: is a folder, expected plugins/profile/TIME/HOST.xplane.pb in it")
        if path.name.endswith((".trace.json.gz", ".trace.json")):
            raise InputError(
                f"{path}: is a trace for Chrome, which may be cut short, expected HOST.xplane.pb beside it"
            )
    return trace_of(inputs)
