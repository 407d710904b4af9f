"""Ranks as the points of a grid, so that groups and peers follow from rules instead of lists.

A rank is a number whose digits, innermost first, are its coordinates. An axis such as ``dp`` is one or more of the
digits; ranks that differ only along some axes are a group. In the graphs of a `Trace` that has a grid, ``pg_name`` is
a family of groups (axes joined by ``+``, or a name of `RankGrid.subsets`), and a message with the attribute
``comm_axis`` goes as many steps along that axis, cyclically, as its ``comm_dst`` or ``comm_src`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, nearest

AXIS = "comm_axis"
"""String attribute of a message: the axis along which its peer is counted."""
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RankGrid:
    """The coordinates of all ranks.

    Attributes:
        sizes: Of each digit, innermost first.
        axes: The digits of every named axis, innermost first; axes may share digits.
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
        """Return how many ranks lie along an axis."""
        return prod(self.sizes[digit] for digit in self.digits_of(axis))

    def digits_of(self, axis: str) -> tuple[int, ...]:
        """Return the digits of an axis, innermost first.

        Raises:
            InputError: no such axis.
        """
        if axis not in self.axes:
            known = [*self.axes, *self.subsets]
            raise InputError(f"group '{axis}': no such axis, expected one of {known}{nearest(axis, known)}")
        return self.axes[axis]

    def digits(self, family: str) -> tuple[int, ...]:
        """Return the digits in which the members of a group differ, innermost first; digits of one value are left out.

        Raises:
            InputError: no such axis.
        """
        axes = self.subsets[family][0:1] if family in self.subsets else family.split("+")
        found = {digit for axis in axes for digit in self.digits_of(axis) if self.sizes[digit] > 1}
        return tuple(sorted(found))

    def places(self, family: str) -> tuple[int, ...] | None:
        """Return the coordinates that a subset keeps, each once; None where it is all, in order."""
        if family not in self.subsets:
            return None
        axis, places = self.subsets[family]
        outside = [place for place in places if not 0 <= place < self.size(axis)]
        if outside or not places:
            raise InputError(
                f"group '{family}' has coordinates {list(places)[:8]} of axis '{axis}'; expected some of 0 to "
                f"{self.size(axis) - 1}"
            )
        kept = tuple(dict.fromkeys(places))
        return None if kept == tuple(range(self.size(axis))) else kept

    def coordinate(self, axis: str) -> Ints:
        """Return the coordinate of every rank along an axis, (n_ranks,)."""
        return self._code(np.arange(self.n_ranks), self.digits_of(axis))

    def members(self, family: str) -> Ints:
        """Return the ranks of every group of a family, (groups, members), in order of their first rank."""
        digits = self.digits(family)
        ranks = np.arange(self.n_ranks)
        inside = self._code(ranks, digits)
        order = np.lexsort((inside, ranks - self._offset(ranks, digits)))
        table = order.reshape(-1, prod(self.sizes[digit] for digit in digits))
        places = self.places(family)
        if places is not None:
            mine = self.coordinate(self.subsets[family][0])[table[0]]
            table = table[:, [int(np.flatnonzero(mine == place)[0]) for place in places]]
        return np.ascontiguousarray(table)

    def group_of(self, family: str) -> Ints:
        """Return the index of every rank's group in `members`, (n_ranks,); -1: it is in none."""
        found = np.full(self.n_ranks, -1, np.int64)
        table = self.members(family)
        found[table] = np.arange(len(table))[:, None]
        return found

    def peers(self, ranks: Ints, axis: str, steps: int) -> Ints:
        """Return the ranks that are `steps` along an axis from `ranks`, around its end."""
        digits = self.digits_of(axis)
        own = self._code(ranks, digits)
        moved = (own + steps) % self.size(axis)
        away = np.zeros_like(ranks)
        for digit in digits:
            away += moved % self.sizes[digit] * self._strides[digit]
            moved = moved // self.sizes[digit]
        return ranks - self._offset(ranks, digits) + away

    @cached_property
    def _strides(self) -> list[int]:
        return [prod(self.sizes[:digit]) for digit in range(len(self.sizes))]

    def _code(self, ranks: Ints, digits: tuple[int, ...]) -> Ints:
        """Return the number that these digits of the ranks make."""
        code = np.zeros_like(ranks)
        weight = 1
        for digit in digits:
            code += ranks // self._strides[digit] % self.sizes[digit] * weight
            weight *= self.sizes[digit]
        return code

    def _offset(self, ranks: Ints, digits: tuple[int, ...]) -> Ints:
        """Return what these digits contribute to the ranks."""
        offset = np.zeros_like(ranks)
        for digit in digits:
            offset += ranks // self._strides[digit] % self.sizes[digit] * self._strides[digit]
        return offset
