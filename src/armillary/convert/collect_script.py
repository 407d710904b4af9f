"""One rank of ``armillary trace collect``: run a script unchanged, under the collector.

Called as ``python -m armillary.convert.collect_script OPTIONS SCRIPT ARGUMENTS…``; OPTIONS are JSON.
"""

from __future__ import annotations

import functools
import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.convert.collect import Collector
from armillary.convert.torch_import import import_torch

REFUSED = "refused_"
"""Prefix, before the rank, of the file in which a rank leaves the reason why it was refused."""


def main() -> None:
    """Run the script that the command line names."""
    options = json.loads(sys.argv[1])
    # From here on argv and the import path are those of `python SCRIPT ARGUMENTS…`: `-m` has put the current
    # folder in first place, where the script expects its own.
    script, sys.argv = sys.argv[2], sys.argv[2:]
    sys.path[0] = str(Path(script).resolve().parent)
    torch = import_torch("armillary trace collect")
    collector = Collector(Path(options["folder"]), options["warmup"], options["steps"], yields=True)
    end: SystemExit | None = None
    try:
        with collector:
            if torch.distributed.is_available():
                _before_destroying(torch.distributed, collector.note_groups)
            if not options["whole"]:
                _after_optimizer(torch.optim.Optimizer, collector.step)
            try:
                runpy.run_path(script, run_name="__main__")
            # sys.exit(0) is a regular end. Raised inside the collector's block it would discard what was
            # recorded, so it waits until the block is left.
            except SystemExit as error:
                if error.code:
                    raise
                end = error
    except InputError as error:
        # stdout and stderr are the script's: the parent process reads the reason from a file.
        rank = os.environ.get("RANK", "0")
        (Path(options["folder"]) / f"{REFUSED}{rank}").write_text(f"rank {rank}: {error}")
        sys.exit(error.exit_code)
    if end is not None:
        raise end


def _before_destroying(distributed: Any, note: Callable[[], None]) -> None:
    # Afterwards PyTorch no longer lists the groups of collectives that are in the trace.
    destroy = distributed.destroy_process_group

    @functools.wraps(destroy)
    def noted(*args: Any, **named: Any) -> Any:
        note()
        return destroy(*args, **named)

    distributed.destroy_process_group = noted


def _after_optimizer(optimizer: Any, step: Callable[[], None]) -> None:
    """Call `step` after every step of the optimizer that steps first.

    PyTorch calls an optimizer's own hooks inside the range that it records around the step. If the recording
    ended there, the range would be missing and its operators would have no parent.
    """
    wrap = optimizer.profile_hook_step
    first: list[Any] = []
    running: list[Any] = []

    def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
        inner = wrap(function)

        @functools.wraps(inner)
        def stepped(self: Any, *args: Any, **named: Any) -> Any:
            # Of several optimizers (a GAN has two) only the first ends a step, or one step would count as two.
            first[:] = first or [self]
            running.append(self)
            try:
                result = inner(self, *args, **named)
            finally:
                running.pop()
            # A subclass whose step() calls its parent's comes here twice; the outer call ends the step.
            if self is first[0] and self not in running:
                step()
            return result

        return stepped

    optimizer.profile_hook_step = staticmethod(profile_hook_step)


if __name__ == "__main__":
    main()
