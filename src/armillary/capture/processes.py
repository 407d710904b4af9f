"""Processes that a program starts: a rank is one process, and what others compute is not captured."""

from __future__ import annotations

import os
import time
import types
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.capture.recorder import Recorder
from armillary.convert.torch_import import torch_part

PATIENCE_SECONDS = 300.0
"""That a rank waits for the build of an extension; PyTorch's headers alone take a minute."""
_started: list[str] = []


def started() -> bool:
    """Return whether the program has started processes of `multiprocessing`."""
    return bool(_started)


def install(rank: int, recorder: Recorder) -> None:
    """Let the function of ``torch.multiprocessing.spawn`` run here, as the rank that this process is."""
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    start = BaseProcess.start

    def begun(self: BaseProcess) -> None:
        _started.append(self.name)
        start(self)

    BaseProcess.start = begun  # type: ignore[method-assign]

    _builds(recorder)

    def spawn(
        fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, join: bool = True, *_: Any, **__: Any
    ) -> Any:  # fmt: skip
        if nprocs != local:
            raise InputError(
                f"{recorder.where.line()}: {nprocs} processes start on a host of {local} ranks, expected as many: "
                f"nprocs=torch.cuda.device_count(), or --ranks {nprocs}"
            )
        fn(rank % local, *args)
        return None if join else types.SimpleNamespace(join=lambda *_: True, processes=[])

    for name in ("spawn", "start_processes"):
        setattr(torch_part("multiprocessing"), name, spawn)
        setattr(torch_part("multiprocessing.spawn"), name, spawn)


def _builds(recorder: Recorder) -> None:
    """Wait for another process that builds an extension, but not for one that was ended while it did."""
    baton = torch_part("utils.file_baton").FileBaton

    def wait(self: Any) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while Path(self.lock_file_path).exists():
            if time.monotonic() > until:
                raise InputError(
                    f"{recorder.where.line()}: it waits for another process that builds this extension, for "
                    f"{PATIENCE_SECONDS:.0f} s; expected one that ends: if none runs, remove {self.lock_file_path}"
                )
            time.sleep(self.wait_seconds)

    baton.wait = wait
