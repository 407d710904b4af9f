"""The changes that are wanted of a trace: checked, completed and in the order in which they are applied."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import prod

from armillary.base.errors import InputError, nearest, one_of
from armillary.lab.extrapolation.grow import mesh_dim_to_scale
from armillary.lab.extrapolation.recorded.replicas import lacks_replicas
from armillary.lab.extrapolation.roles import check_axis
from armillary.trace import Trace
from armillary.trace.axis_sets import grid_of
from armillary.trace.grid import RankGrid

RANKS = ("tp", "cp", "ep", "dp", "pp")
"""Axes whose value is a number of ranks."""


def wanted_by_axis(trace: Trace, scale: Mapping[str, Fraction | int]) -> dict[str, Fraction]:
    """Return the changes by axis, in the order in which they are applied.

    Raises:
        InputError: an axis that is none, or a size that it cannot have.
    """
    # The order of this tuple is the order of the steps: stages are remade first, from nodes as they were
    # traced; token factors come last.
    known = ("pp", "microbatches", "ep", "dp", "tp", "cp", "batch", "sequence")
    found: dict[str, Fraction] = {}
    for axis, value in scale.items():
        # Resolved below, when the new sizes of all other axes are known.
        if axis == "ranks":
            if "dp" in scale:
                raise InputError("scale ranks: dp is given, too; expected one of the two")
            continue
        if axis not in known:
            raise InputError(
                f"scale {axis}: no such axis; expected {one_of((*known, 'ranks'))}{nearest(axis, known)}"
            )
        number = Fraction(value)
        if number <= 0 or (axis in RANKS and number.denominator > 1):
            raise InputError(f"scale {axis}: got {value}, expected a number of ranks" if axis in RANKS else
                             f"scale {axis}: got {value}, expected a factor above 0")  # fmt: skip
        if axis in RANKS and not (axis == "dp" and lacks_replicas(trace)):
            check_axis(axis, grid_of(trace))
        found[axis] = number
    if "ranks" in scale:
        grid = grid_of(trace)
        added = lacks_replicas(trace)
        if not added:
            check_axis("dp", grid)
        # Ranks of one replica, at the new sizes of the axes that every replica has.
        rest = Fraction(grid.n_ranks, 1 if added else grid.size("dp"))
        for axis in ("tp", "cp", "pp"):
            if axis in found:
                rest = rest * found[axis] / grid.size(axis)
        replicas = Fraction(scale["ranks"]) / rest
        if replicas.denominator > 1 or replicas < 1:
            unit = int(rest)
            best = unit * max(1, round(float(replicas)))
            raise InputError(
                f"ranks {scale['ranks']}: expected a multiple of {unit}, those of one replica (nearest: {best})"
            )
        found["dp"] = replicas
    if "ep" in found:
        _check_experts(grid_of(trace), found)
    return {axis: found[axis] for axis in known if axis in found}


def _check_experts(grid: RankGrid, found: dict[str, Fraction]) -> None:
    """Keep dp where it is not given, and check that the new ranks of experts divide it.

    Raises:
        InputError: they do not.
    """
    data = int(found.setdefault("dp", Fraction(grid.size("dp"))))
    if found["ep"] == 1:
        raise InputError(
            "scale ep: got 1, which has no all-to-alls, by which experts are told from other layers; expected 2 or more"
        )
    mesh_dim, size = mesh_dim_to_scale(grid, "ep", int(found["ep"]))
    # Experts are spread over ranks of dp, and of tp or cp; only the mesh dimensions shared with dp must
    # divide it.
    shared = prod(grid.sizes[each] for each in grid.axes["dp"] if each in grid.axes["ep"])
    unit = shared * size // grid.sizes[mesh_dim]
    if data % unit:
        best = unit * max(1, round(data / unit))
        raise InputError(
            f"scale ep: got {found['ep']} with dp {data}; expected dp to be a multiple of {unit}, such as dp={best}"
        )
