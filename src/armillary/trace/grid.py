"""Ranks as points of a grid, so that rules instead of lists give groups and peers.

A rank is a number whose digits, one per mesh dimension, innermost first, are its coordinates. An axis such as ``dp`` is
one or more mesh dimensions; ranks that differ only along some axes are a group, and the groups along the same axes are
an axis set. In the graphs of a `Trace` that has a grid, ``pg_name`` is the name of an axis set (axes joined by ``+``,
or a name of `RankGrid.subsets`; ``#`` and a number after it name a further communicator of the same ranks, as
``MPI_Comm_dup`` makes one), and for a message with the attribute ``comm_axis``, ``comm_dst`` or ``comm_src`` is
the number of steps along that axis, cyclically, to the peer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, nearest

MOST_NODES = 50_000_000
"""Most nodes of all ranks together that are expanded without an explicit request."""

AXIS = "comm_axis"
"""String attribute of a message: the axis along which its peer is counted."""
FURTHER = "#"
"""What follows it in the name of an axis set tells apart communicators of the same ranks."""
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RankGrid:
    """The coordinates of all ranks.

    Attributes:
        sizes: Number of coordinates of each mesh dimension, innermost first.
        axes: The mesh dimensions of every named axis, innermost first; axes may share mesh dimensions.
        subsets: Name -> (axis, coordinates): groups of the ranks at some coordinates of an axis only.
    """

    sizes: tuple[int, ...]
    axes: Mapping[str, tuple[int, ...]]
    subsets: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return prod(self.sizes)

    def size(self, axis: str) -> int:
        """Return the number of ranks along an axis."""
        return prod(self.sizes[mesh_dim] for mesh_dim in self.mesh_dims_of(axis))

    def mesh_dims_of(self, axis: str) -> tuple[int, ...]:
        """Return the mesh dimensions of an axis, innermost first.

        Raises:
            InputError: no such axis.
        """
        if axis not in self.axes:
            known = [*self.axes, *self.subsets]
            raise InputError(f"group '{axis}': no such axis, expected one of {known}{nearest(axis, known)}")
        return self.axes[axis]

    def mesh_dims(self, axis_set: str) -> tuple[int, ...]:
        """Return the mesh dimensions in which the members of a group differ, innermost first, without those of size 1.

        Raises:
            InputError: no such axis.
        """
        # Axes may share mesh dimensions, hence a set; one of size 1 tells no members apart.
        found = {
            mesh_dim
            for axis in self.axes_in(axis_set)
            for mesh_dim in self.mesh_dims_of(axis)
            if self.sizes[mesh_dim] > 1
        }
        return tuple(sorted(found))

    def axes_in(self, axis_set: str) -> tuple[str, ...]:
        """Return the names of the axes that an axis set joins; that of a subset is along one."""
        ranks = axis_set.partition(FURTHER)[0]
        return self.subsets[ranks][:1] if ranks in self.subsets else tuple(ranks.split("+"))

    def places(self, axis_set: str) -> tuple[int, ...] | None:
        """Return the coordinates that a subset keeps, each once; None if it keeps all of them, in order."""
        axis_set = axis_set.partition(FURTHER)[0]
        if axis_set not in self.subsets:
            return None
        axis, places = self.subsets[axis_set]
        outside = [place for place in places if not 0 <= place < self.size(axis)]
        if outside or not places:
            raise InputError(
                f"group '{axis_set}' has coordinates {list(places)[:8]} of axis '{axis}'; expected some of 0 to "
                f"{self.size(axis) - 1}"
            )
        kept = tuple(dict.fromkeys(places))
        return None if kept == tuple(range(self.size(axis))) else kept

    def coordinate(self, axis: str) -> Ints:
        """Return the coordinate of every rank along an axis, (n_ranks,)."""
        return self._code(np.arange(self.n_ranks), self.mesh_dims_of(axis))

    def members(self, axis_set: str) -> Ints:
        """Return the ranks of every group of an axis set, (groups, members), in order of their first rank."""
        mesh_dims = self.mesh_dims(axis_set)
        # Ranks by coordinates, outermost first; those of a group go last, so that its ranks stand side by side.
        axes = range(len(self.sizes) - 1, -1, -1)
        others = [mesh_dim for mesh_dim in axes if mesh_dim not in mesh_dims]
        places = [len(self.sizes) - 1 - mesh_dim for mesh_dim in (*others, *reversed(mesh_dims))]
        ranks = np.arange(self.n_ranks).reshape(self.sizes[::-1]).transpose(places)
        table = ranks.reshape(-1, prod(self.sizes[mesh_dim] for mesh_dim in mesh_dims))
        kept = self.places(axis_set)
        if kept is not None:
            # In every group the members at these coordinates are in the same columns.
            mine = self.coordinate(*self.axes_in(axis_set))[table[0]]
            table = table[:, [int(np.flatnonzero(mine == place)[0]) for place in kept]]
        return np.ascontiguousarray(table)

    def group_of(self, axis_set: str) -> Ints:
        """Return the index of every rank's group in `members`, (n_ranks,); -1 for a rank in no group."""
        found = np.full(self.n_ranks, -1, np.int64)
        table = self.members(axis_set)
        found[table] = np.arange(len(table))[:, None]
        return found

    def peers(self, ranks: Ints, axis: str, steps: int) -> Ints:
        """Return the ranks that are `steps` along an axis from `ranks`, around its end."""
        mesh_dims = self.mesh_dims_of(axis)
        own = self._code(ranks, mesh_dims)
        # Steps wrap around the axis as a whole, not within one of its mesh dimensions.
        moved = (own + steps) % self.size(axis)
        away = np.zeros_like(ranks)
        for mesh_dim in mesh_dims:
            away += moved % self.sizes[mesh_dim] * self._strides[mesh_dim]
            moved = moved // self.sizes[mesh_dim]
        return ranks - self._offset(ranks, mesh_dims) + away

    @cached_property
    def _strides(self) -> list[int]:
        return [prod(self.sizes[:mesh_dim]) for mesh_dim in range(len(self.sizes))]

    def _code(self, ranks: Ints, mesh_dims: tuple[int, ...]) -> Ints:
        """Return the coordinates along these mesh dimensions as one mixed-radix number per rank, (ranks,)."""
        code = np.zeros_like(ranks)
        weight = 1
        for mesh_dim in mesh_dims:
            code += ranks // self._strides[mesh_dim] % self.sizes[mesh_dim] * weight
            weight *= self.sizes[mesh_dim]
        return code

    def _offset(self, ranks: Ints, mesh_dims: tuple[int, ...]) -> Ints:
        """Return the part of each rank number that these mesh dimensions contribute, (ranks,)."""
        offset = np.zeros_like(ranks)
        for mesh_dim in mesh_dims:
            offset += ranks // self._strides[mesh_dim] % self.sizes[mesh_dim] * self._strides[mesh_dim]
        return offset
