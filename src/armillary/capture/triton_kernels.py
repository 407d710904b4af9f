"""Kernels in Triton: a launch is recorded as an operator of its tensors, where nothing could run it.

Nobody knows what such a kernel computes, so it has no price but that of its bytes, and reports name it.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from armillary.capture.recorder import Recorder


def install(recorder: Recorder) -> None:
    """Record launches of kernels, if Triton is installed."""
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.submodule_search_locations:  # absent, or a file of the program's own
        return
    try:
        autotuner, jit = (importlib.import_module(f"triton.runtime.{name}") for name in ("autotuner", "jit"))
    except ImportError:  # a package of that name that is no Triton
        return

    def launched(self: Any, *args: Any, grid: Any = None, warmup: bool = False, **named: Any) -> None:
        if not warmup:
            recorder.launched(f"triton::{getattr(self, '__name__', 'kernel')}", [*args, *named.values()])

    def first(self: Any, *args: Any, **named: Any) -> Any:
        # Which one is fastest, only the device could say.
        chosen = self.configs[0].all_kwargs() if self.configs else {}
        return self.fn.run(*args, **{**named, **chosen})

    jit.JITFunction.run = launched
    autotuner.Autotuner.run = first
