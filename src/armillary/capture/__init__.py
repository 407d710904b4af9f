"""Capture an unmodified PyTorch program on a CPU, as if it were one rank of many on GPUs that are not there.

`capture_script` runs a script as some of its ranks, `capturing` is the same for the body of a ``with``. Tensors of the
GPU have shapes and no memory; what is recorded are operators, collectives, streams, events and memory of one step.
`trace_of` makes of them the trace of all ranks, which any machine can run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.capture.chakra import trace_of
    from armillary.capture.launch import capture_script
    from armillary.capture.log import Log
    from armillary.capture.prices import unpriced
    from armillary.capture.rank_files import read_captured
    from armillary.capture.session import Session, capturing
    from armillary.capture.summary import RankClass, classes, document

__all__ = [
    "Log", "RankClass", "Session", "capture_script", "capturing", "classes", "document", "read_captured", "trace_of",
    "unpriced",
]  # fmt: skip

__getattr__ = lazy(
    __name__,
    {
        ".chakra": ("trace_of",),
        ".launch": ("capture_script",),
        ".log": ("Log",),
        ".prices": ("unpriced",),
        ".rank_files": ("read_captured",),
        ".session": ("Session", "capturing"),
        ".summary": ("RankClass", "classes", "document"),
    },
)
