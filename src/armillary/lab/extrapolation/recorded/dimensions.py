"""Unifies dimensions of tensors that are views, products and copies of each other.

A dimension is a number, or the product of others: a view of [4, 8, 16] as [32, 16] makes the 32 the product of the 4
and the 8. Two dimensions that must be equal are made one (union-find with products): where only one of them is a
product, the other becomes it; where both are, both become products of their common factors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod


@dataclass(eq=False, slots=True)
class Dim:
    """A dimension of a tensor.

    Attributes:
        size: Elements.
        whole: Whether it stays, such as the number of parts that a tensor is split into.
    """

    size: int
    whole: bool = False
    _same: Dim | None = None
    _parts: tuple[Dim, ...] = field(default=())

    def leaves(self) -> list[Dim]:
        """Return those whose product it is, outermost first."""
        top = self
        while top._same is not None:
            top = top._same
        if not top._parts:
            return [top]
        return [leaf for part in top._parts for leaf in part.leaves()]

    def _becomes(self, other: Dim) -> None:
        other.whole |= self.whole
        self._same = other

    def _splits(self, parts: Sequence[Dim]) -> None:
        self._parts = tuple(parts)


def product(dims: Sequence[Dim]) -> Dim:
    """Return the dimension that is the product of others."""
    if len(dims) == 1:
        return dims[0]
    made = Dim(prod(dim.size for dim in dims))
    made._splits(dims)
    return made


def same(a: Dim, b: Dim) -> bool:
    """Make two dimensions one; False where they cannot be, such as 4 times 6 and 3 times 8."""
    if a.size != b.size:
        return False
    # Position in the leaves of either side; leaves before it are unified already.
    at = [0, 0]
    while True:
        ours, theirs = a.leaves(), b.leaves()
        if at[0] >= len(ours) or at[1] >= len(theirs):
            return True
        x, y = ours[at[0]], theirs[at[1]]
        if x is y:
            at = [at[0] + 1, at[1] + 1]
        elif len(ours) == 1 and len(theirs) > 1:
            # x = x * 1: splitting x into itself would never end.
            if any(leaf is x for leaf in theirs):
                return True
            x._splits(theirs)
        elif len(theirs) == 1 and len(ours) > 1:
            if any(leaf is y for leaf in ours):
                return True
            y._splits(ours)
        elif x.size == y.size:
            x._becomes(y)
        elif x.size == 1 or y.size == 1:
            # A factor of 1 has no partner: skip it on its side.
            at[x.size != 1] += 1
        elif x.size % y.size == 0:
            x._splits((Dim(y.size), Dim(x.size // y.size)))
        elif y.size % x.size == 0:
            y._splits((Dim(x.size), Dim(y.size // x.size)))
        else:
            return False


def regroup(before: Sequence[Dim], after: Sequence[Dim], *, merging: bool = False) -> bool:
    """Unify the dimensions of a tensor and of its view.

    Args:
        before: Of the tensor.
        after: Of its view, in the same order of elements.
        merging: Refuse where the view does more than keep, join or divide single dimensions.
    """
    groups: list[tuple[list[Dim], list[Dim]]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        ours, theirs = [before[i]], [after[j]]
        i, j = i + 1, j + 1
        a, b = ours[0].size, theirs[0].size
        # Extend the smaller side until both groups have the same number of elements: the finest common
        # grouping.
        while a != b:
            if a < b and i < len(before):
                ours.append(before[i])
                a *= before[i].size
                i += 1
            elif b < a and j < len(after):
                theirs.append(after[j])
                b *= after[j].size
                j += 1
            else:
                return False
        groups.append((ours, theirs))
    # Two or more real dimensions on both sides, such as [4, 6] and [3, 8]: more likely another tensor than a
    # view.
    if merging and any(min(sum(dim.size > 1 for dim in side) for side in pair) > 1 for pair in groups):
        return False
    # A dimension of 1 belongs to what follows it: one sample of many tokens.
    done = [same(product(ours), product(theirs)) for ours, theirs in groups]
    return all(done)


class Factors:
    """New sizes of dimensions.

    Attributes:
        of: By dimension without parts, its factor.
        padded: Whether some dimension does not divide.
    """

    def __init__(self) -> None:
        """Start without a change."""
        self.of: dict[Dim, Fraction] = {}
        self.padded = False

    def scale(self, dims: Iterable[Dim], factor: Fraction) -> Dim | None:
        """Give one of the factors of a product a factor: the outermost that divides; None: one has it already."""
        leaves = [leaf for dim in dims for leaf in dim.leaves()]
        if not leaves or any(leaf in self.of for leaf in leaves):
            return None
        free = [leaf for leaf in leaves if not leaf.whole] or leaves
        # Preferred in this order: a factor that divides, one that can be padded, and at last one of size 1.
        exact = [leaf for leaf in free if (leaf.size * factor).denominator == 1]
        large = [leaf for leaf in free if leaf.size > 1]
        found = (exact or large or free)[0]
        self.padded |= not exact
        self.of[found] = factor
        return found

    def changed(self, dim: Dim) -> bool:
        """Say whether a dimension gets another size."""
        return any(leaf in self.of for leaf in dim.leaves())

    def size(self, dim: Dim) -> int:
        """Return the new size of a dimension."""
        found = Fraction(1)
        for leaf in dim.leaves():
            value = leaf.size * self.of.get(leaf, 1)
            # Each factor is padded on its own: 3 heads of 64 at 1/2 are 2 x 64, not 96.
            found *= -(-value.numerator // value.denominator)
        return int(found)
