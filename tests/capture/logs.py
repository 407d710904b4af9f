"""Ranks that were captured, by hand."""

from __future__ import annotations

from armillary.capture.kinds import Kind
from armillary.capture.log import COMMUNICATION, OPERATOR, Communication, Log, Place, Row
from armillary.trace.gemm import Gemm

GEMM, COPY, CUSTOM = range(3)
KINDS = [
    Kind(
        "aten::mm", (((512, 256), "bfloat16"), ((256, 128), "bfloat16")), (((512, 128), "bfloat16"),),
        2 * 512 * 256 * 128, 2 * (512 * 256 + 256 * 128 + 512 * 128), "matmul", "bf16", Gemm(512, 128, 256),
    ),
    Kind("aten::copy_", (((1024,), "float32"),), (), 0, 8192, "memory"),
    Kind("mine::kernel", (((1024,), "float32"),), (), 0, 1 << 20, ""),
]  # fmt: skip


def log(
    rank: int,
    ranks: int,
    rows: list[Row],
    groups: list[tuple[int, ...]] | None = None,
    communications: list[Communication] | None = None,
) -> Log:
    """Return a rank with these rows."""
    return Log(
        rank, ranks, "h100-sxm", "2.13.0", "train.py", 3, groups or [], KINDS,
        [Place("", "", False), Place("layers.0", "train.py:7", False)], communications or [], rows,
    )  # fmt: skip


def kernel(stream: int = 0, kind: int = GEMM) -> Row:
    """Return a kernel on a stream."""
    return Row(OPERATOR, kind, stream, 1, 2)


def call(number: int, stream: int = 0) -> Row:
    """Return a communication that is issued from a stream."""
    return Row(COMMUNICATION, number, stream, 1, 1)
