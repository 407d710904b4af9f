"""The NPUs that form the groups of a workload."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isqrt, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.convert.text.kinds import SCOPES, Scope
from armillary.convert.text.reader import Workload

MOST_NPUS = 2**20
USUAL_NPUS = 8
"""NPUs assumed where neither the options nor the file state their number: those of one node."""


class Axis(NamedTuple):
    """Groups of `size` NPUs, `stride` apart."""

    stride: int
    size: int


class Layout:
    """The groups of each scope, innermost first: inner, expert, data of an expert, pipeline stage."""

    def __init__(self, npus: int, inner: int, ep: int = 1, pp: int = 1, dims: Sequence[int] = ()) -> None:
        self.npus = npus
        self.dims = tuple(dims)
        # Pipeline stages are outermost: each has npus / pp of the NPUs, next to each other.
        outer = npus // (inner * pp)
        self.axes = {
            Scope.ALL: Axis(1, npus),
            Scope.INNER: Axis(1, inner),
            Scope.OUTER: Axis(inner, outer),
            Scope.EP: Axis(inner, ep),
            Scope.DP_EP: Axis(inner * ep, outer // ep),
        }

    def size(self, scope: Scope) -> int:
        """Return the NPUs of a group."""
        return self.axes[scope].size

    def mask(self, scope: Scope) -> list[bool] | None:
        """Return for each network dimension whether the groups span it; None where they do not fill whole ones."""
        axis = self.axes[scope]
        # Strides at which dimensions begin and end: 1, d0, d0·d1, … Groups fill whole dimensions if they too
        # begin and end at one of these.
        ends = [prod(self.dims[:count]) for count in range(len(self.dims) + 1)]
        if not self.dims or not {axis.stride, axis.stride * axis.size} <= set(ends):
            return None
        return [axis.stride <= begin and end <= axis.stride * axis.size for begin, end in pairwise(ends)]

    def first(self, scope: Scope) -> NDArray[np.int64]:
        """Return the first member of the group of every rank."""
        # A rank's place in its group is rank // stride % size.
        axis, rank = self.axes[scope], np.arange(self.npus)
        return rank - rank // axis.stride % axis.size * axis.stride

    def members(self, scope: Scope, first: int) -> range:
        """Return the ranks of the group whose first is `first`."""
        axis = self.axes[scope]
        return range(first, first + axis.stride * axis.size, axis.stride)


def lay_out(
    workload: Workload, npus: int | None, model: int | None, dims: Sequence[int] = ()
) -> tuple[Layout, list[str]]:
    """Return the groups of a workload, and notes on what had to be assumed.

    Args:
        workload: the workload.
        npus: total NPUs; None: from the dimensions or the header, else about `USUAL_NPUS`.
        model: NPUs of a model-parallel group; None: from the header, the first dimension, or assumed.
        dims: sizes of the network dimensions, innermost first; empty: not known.

    Raises:
        InputError: the number of NPUs does not fit groups or dimensions.
    """
    header = workload.options
    pp, ep = header.get("pp") or 1, header.get("ep") or 1
    named = model or header.get("model_parallel_NPU_group")
    given = npus or (prod(dims) if dims else header.get("all_gpus"))
    assumed = []
    if not given:
        unit = max((named or 1) * ep * pp, 1)
        # The usual number, rounded up to a multiple of what the groups need.
        given = unit * -(-USUAL_NPUS // unit)
        assumed = [f"the number of NPUs is not given, {given} assumed; say --ranks or --dims"]
    if not 1 <= given <= MOST_NPUS:
        raise InputError(f"{workload.path}: {given} NPUs, expected 1 to {MOST_NPUS}")
    if dims and prod(dims) != given:
        raise InputError(
            f"--dims {','.join(map(str, dims))} are {prod(dims)} NPUs, expected {given} as --ranks"
        )
    inner, notes = _inner(workload, given // pp, named, dims)
    notes[:0] = assumed
    if given % (inner * ep * pp):
        raise InputError(
            f"{workload.path}: {given} NPUs, expected a multiple of {inner * ep * pp}: inner groups of {inner}, "
            f"ep {ep}, pp {pp}"
        )
    if pp > 1:
        notes.append(
            f"pp {pp}: every stage runs the layers of the file; transfers between stages are not in it"
        )
    layout = Layout(given, inner, ep, pp, dims)
    if dims and (cut := [scope.name for scope in _used(workload) if layout.mask(scope) is None]):
        notes.append(f"groups {', '.join(cut)} do not fill whole dimensions: named by their ranks")
    return layout, notes


def _used(workload: Workload) -> list[Scope]:
    kinds = {layer.kind or workload.kind for layer in workload.layers}
    scopes = {scope for kind in kinds for scope in SCOPES[kind] if scope is not None}
    named = {part.scope for layer in workload.layers for part in layer.parts if part.scope is not None}
    return sorted(scopes | named)


def _inner(workload: Workload, npus: int, model: int | None, dims: Sequence[int]) -> tuple[int, list[str]]:
    """Return the size of the inner groups."""
    # No collective distinguishes inner from outer: the size must not restrict the number of NPUs.
    if not {Scope.INNER, Scope.OUTER, Scope.EP, Scope.DP_EP} & set(_used(workload)):
        note = (
            f"model-parallel groups of {model} have no effect: collectives of {workload.kind} span all NPUs"
        )
        return 1, [note] if model else []
    # There the model-parallel group is the outer one, so its stated size is not that of the inner groups.
    model_is_outer = workload.kind == "HYBRID_MODEL_DATA"
    if model:
        return (npus // model if model_is_outer and npus % model == 0 else model), []
    if dims:
        return dims[0], []
    # The largest divisor up to the square root: the groups closest to a square.
    inner = next((size for size in range(isqrt(npus), 0, -1) if npus % size == 0), 1)
    size = npus // inner if model_is_outer else inner
    return inner, [
        f"the size of the model-parallel groups is not given, {size} of {npus} NPUs assumed; "
        "--model-parallel or --dims states it"
    ]
