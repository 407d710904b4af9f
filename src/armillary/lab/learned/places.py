"""Groups surroundings in which a piece has the same numbers: a gather before any layer gathers the same weights.

A corpus shows pieces in many surroundings, most of them rarely, and a new program has others. Surroundings with the
same numbers wherever a rank has both are one place; a tree over the surroundings separates the places and gives the
place of new surroundings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from armillary.lab.learned.contexts import LEVELS, at_level
from armillary.lab.learned.tree import Tree, grow


@dataclass(frozen=True)
class Places:
    """Surroundings by place.

    Attributes:
        level: Which of the surroundings matter, see `contexts.LEVELS`.
        known: Place of the surroundings that the corpus has.
        tree: Tree to the place of any surroundings.
        many: Number of places.
    """

    level: int
    known: Mapping[tuple[str, ...], int]
    tree: Tree
    many: int

    def of(self, around: tuple[str, ...]) -> int:
        """Return the place of surroundings that the corpus has."""
        return self.known[at_level(around, self.level)]


def places_of(level: int, spans: Mapping[tuple[str, ...], Mapping[int, bytes]], classes: int) -> Places:
    """Return the places of surroundings.

    Args:
        level: Level of the surroundings.
        spans: The numbers, as bytes, by surroundings and class of ranks.
        classes: Number of classes.
    """
    keys = list(spans)
    codes = np.full((len(keys), classes), -1, np.int64)
    known: dict[bytes, int] = {}
    for row, key in enumerate(keys):
        for at, span in spans[key].items():
            codes[row, at] = known.setdefault(span, len(known))
    labels = _joined(codes)
    asked = [dict(zip(LEVELS[level], key, strict=True)) for key in keys]
    return Places(level, dict(zip(keys, labels, strict=True)), grow(asked, labels), max(labels) + 1)


def _joined(codes: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> list[int]:
    """Return a number for each row, equal for rows that agree; rows that agree in most columns are joined first.

    Args:
        codes: Numbers by surroundings and class, (surroundings, classes); -1: the class has no such surroundings.
    """
    there = codes >= 0
    pairs = []
    for row in range(len(codes)):
        both = there[row] & there[row + 1 :]
        alike = (both & (codes[row] == codes[row + 1 :])).sum(1)
        # Rows agree if they do in every class that has both; without such a class nothing is known.
        equal = (alike == both.sum(1)) & (alike > 0)
        pairs += [(-int(alike[at]), row, row + 1 + int(at)) for at in np.flatnonzero(equal)]
    root = list(range(len(codes)))
    merged = codes.copy()
    for _, one, other in sorted(pairs):
        a, b = root[one], root[other]
        # Agreement is not transitive: what was joined since must agree, too.
        if a == b or ((merged[a] >= 0) & (merged[b] >= 0) & (merged[a] != merged[b])).any():
            continue
        merged[a] = np.where(merged[a] >= 0, merged[a], merged[b])
        root = [a if each == b else each for each in root]
    order = {each: place for place, each in enumerate(dict.fromkeys(root))}
    return [order[each] for each in root]
