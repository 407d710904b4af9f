"""Profilers: they watch the host only, and ranges for those that watch from outside lead nowhere."""

from __future__ import annotations

from typing import Any

from armillary.convert.torch_import import torch_part


def install(torch: Any) -> None:
    """Let profilers run: for each operator they would ask a device that is not there."""
    profile = torch_part("autograd.profiler").profile
    init = profile.__init__

    def begun(self: Any, *args: Any, use_cuda: bool = False, **named: Any) -> None:
        init(self, *args, **{**named, "use_device": None, "use_cpu": True, "use_kineto": True})

    profile.__init__ = begun
    vars(torch.cuda.nvtx)["_nvtx"] = _Ranges()


class _Ranges:
    """NVTX: it takes all names, and numbers no range."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0
