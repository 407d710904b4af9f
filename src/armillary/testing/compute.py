"""Checks that a compute model fulfils its contract, to be called from the tests of the package that provides it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from armillary.compute.model import ComputeModel, Device, Times, Work
from armillary.trace.attention import Attention
from armillary.trace.gemm import Gemm

DEVICE = Device(peak=1e14, memory=2e12, peaks={"bf16": 1e14, "fp8": 2e14, "fp32": 1e13})
"""An NPU to make a model with."""
# Small and large, odd sides, batches, several calls, several GEMMs in one kernel, and none.
_SHAPES: tuple[tuple[Gemm, ...], ...] = (
    (Gemm(4096, 4096, 4096),), (Gemm(1, 1, 1),), (Gemm(7, 12289, 33),), (Gemm(128, 128, 64, batch=512),),
    (Gemm(16, 4096, 1024, calls=50),), (Gemm(64, 96, 32), Gemm(96, 64, 32)), (Gemm(2**20, 8192, 2**16),), (),
)  # fmt: skip


def sample_work() -> Work:
    """Return kernels of all kinds: GEMMs of many shapes and precisions, other operations, and unknown work."""
    gemms: list[tuple[Gemm, ...]] = []
    names: list[str] = []
    # Every precision that DEVICE has a peak for.
    for precision in ("bf16", "fp32", "fp8"):
        for at, shapes in enumerate(_SHAPES):
            gemms.append(shapes)
            names.append(f"{precision}.{at}")
    # The name begins with the precision.
    precisions = tuple(name.partition(".")[0] for name in names)
    operations = [sum(each.operations for each in shapes) or 10**9 for shapes in gemms]
    # 2 bytes per element; kernels without GEMMs get 1 MB.
    size = [2 * sum(each.elements for each in shapes) or 10**6 for shapes in gemms]
    return Work(
        (*names, "attend", "norm", "recorded", "nothing"),
        # -1: not known. "attend" has operations, "norm" only bytes, "recorded" only a duration, "nothing"
        # none of them.
        np.array([*operations, 2**32 + 2**22, 1, -1, -1], np.int64),
        np.array([*size, 2**24, 10**7, -1, -1], np.int64),
        (*precisions, "bf16", "bf16", "bf16", "bf16"),
        (*gemms, (), (), (), ()),
        np.array([0] * len(names) + [0, 0, 5000, 0], np.int64),
        (*[None] * len(names), Attention(1, 16, 4, 1024, 1024, 128, 128), None, None, None),
    )


def check_compute_model(make: Callable[[], ComputeModel], work: Work | None = None) -> None:
    """Check a model.

    Args:
        make: Returns a new one, e.g. ``lambda: MyModel.create({}, DEVICE, Path())``.
        work: Kernels to ask for; absent: `sample_work`.

    Raises:
        AssertionError: the model does not keep to `ComputeModel`; the message says in what.
    """
    work = sample_work() if work is None else work
    # Copies: a model that sorts or scales in place would spoil its caller's trace.
    count = len(work)
    before = [column.copy() for column in (work.operations, work.size, work.recorded)]
    whole = _asked(make, work)
    columns = (work.operations, work.size, work.recorded)
    assert all((a == b).all() for a, b in zip(before, columns, strict=True)), "durations changes its input"
    # A trace may have no compute nodes.
    assert len(_asked(make, part(work, [])).ns) == 0, "no kernels were asked for, but it gave times"
    assert _same(whole, _asked(make, work)), "the same kernels got other times when asked again"
    # Vectorised models tend to mix up rows: reversed, alone and together must give the same.
    turned = _asked(make, part(work, range(count)[::-1]))
    assert _same(whole, Times(turned.ns[::-1])), "times depend on the order of the kernels"
    for at in range(count):
        alone = _asked(make, part(work, [at]))
        assert _same(Times(whole.ns[at : at + 1]), alone), (
            f"'{work.names[at]}' takes {whole.ns[at]:g} ns beside others and {alone.ns[0]:g} ns alone"
        )


def part(work: Work, which: Sequence[int]) -> Work:
    """Return some of the kernels."""
    return Work(
        tuple(work.names[at] for at in which),
        work.operations[list(which)],
        work.size[list(which)],
        tuple(work.precisions[at] for at in which),
        tuple(work.gemms[at] for at in which),
        work.recorded[list(which)],
        tuple(work.attention_of(at) for at in which),
    )


def _asked(make: Callable[[], ComputeModel], work: Work) -> Times:
    model = make()
    assert isinstance(model, ComputeModel), f"{model!r} is no ComputeModel"
    try:
        times = model.durations(work)
    # close() also after an error: a subprocess would stay behind.
    finally:
        model.close()
    model.close()  # a second time must do no harm
    count = len(work)
    assert times.ns.shape == (count,), f"gave times of shape {times.ns.shape}, expected ({count},)"
    assert times.ns.dtype == np.float64, f"gave times as {times.ns.dtype}, expected float64"
    # NaN is allowed: "no time known".
    assert not (times.ns < 0).any() and not np.isinf(times.ns).any(), "gave a negative or infinite time"
    assert len(times.bound) in (0, count), f"gave {len(times.bound)} bounds, expected {count} or none"
    if times.beyond is not None:
        assert times.beyond.shape == (count,), (
            f"gave beyond of shape {times.beyond.shape}, expected ({count},)"
        )
        assert (times.beyond >= 1).all(), "gave beyond below 1"
    return times


def _same(one: Times, other: Times) -> bool:
    # equal_nan, as NaN stands for unknown in both.
    return bool(np.array_equal(one.ns, other.ns, equal_nan=True))
