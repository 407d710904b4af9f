"""The mesh of a program: coordinates of its ranks, found from the process groups that a few of them used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

import numpy as np

from armillary.base.errors import InputError
from armillary.capture.log import Log
from armillary.trace.grid import RankGrid

WORLD = "0"
"""Name of the group of all ranks."""


@dataclass
class Mesh:
    """Ranks as points of a grid, whose axes are called after their strides.

    Attributes:
        sizes: Number of coordinates of each axis, innermost first.
        subsets: Groups of ranks at some coordinates of one axis, such as first and last stage, as `RankGrid` has them.
    """

    sizes: tuple[int, ...]
    subsets: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.strides[-1] * self.sizes[-1]

    @property
    def strides(self) -> list[int]:
        """How far apart neighbours along each axis are."""
        found = [1]
        for size in self.sizes[:-1]:
            found.append(found[-1] * size)
        return found

    def grid(self) -> RankGrid:
        """Return it as a trace has it."""
        return RankGrid(self.sizes, {name: (at,) for at, name in enumerate(self.names)}, dict(self.subsets))

    @property
    def names(self) -> list[str]:
        """Names of the axes, innermost first."""
        return [f"stride{stride}" for stride in self.strides]

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Return where a rank is, innermost axis first."""
        return tuple(rank // stride % size for stride, size in zip(self.strides, self.sizes, strict=True))

    def rank(self, coordinates: Iterable[int]) -> int:
        """Return the rank at these coordinates."""
        return sum(at * stride for at, stride in zip(coordinates, self.strides, strict=True))

    def group(self, ranks: Sequence[int]) -> str:
        """Return the name of a group; "": it is none of a whole number of axes, nor of some coordinates of one.

        Such names mean the same on every rank: another rank's group has the ranks around that one.
        """
        if len(ranks) == self.ranks:
            return WORLD
        members = np.asarray(ranks, np.int64)
        places = [
            np.unique(members // stride % size) for stride, size in zip(self.strides, self.sizes, strict=True)
        ]
        axes = [at for at, place in enumerate(places) if len(place) > 1]
        if prod(self.sizes[at] for at in axes) == len(np.unique(members)):
            return "+".join(self.names[at] for at in axes)
        if len(axes) != 1:
            return ""
        kept = tuple(places[axes[0]].tolist())
        name = f"{self.names[axes[0]]}@{','.join(map(str, kept))}"
        self.subsets[name] = self.names[axes[0]], kept
        return name

    def way(self, rank: int, peer: int) -> tuple[str, int] | None:
        """Return the axis, and the steps along it, from a rank to its peer; None: they differ along several axes."""
        here, there = self.coordinates(rank), self.coordinates(peer)
        axes = [at for at in range(len(self.sizes)) if here[at] != there[at]]
        if len(axes) != 1:
            return None
        return self.names[axes[0]], (there[axes[0]] - here[axes[0]]) % self.sizes[axes[0]]

    def stages(self, logs: Iterable[Log]) -> tuple[int, ...]:
        """Return the axes along which ranks send messages: stages of a pipeline do different things."""
        found: set[int] = set()
        for log in logs:
            for peer in log.peers() - {log.rank}:
                way = self.way(log.rank, peer)
                found.update([self.names.index(way[0])] if way else range(len(self.sizes)))
        return tuple(sorted(found))


def mesh_of(logs: Sequence[Log]) -> Mesh | None:
    """Return the coarsest mesh in which every group of these ranks is made of whole axes, as far as they are regular.

    None: their groups overlap in a way that no mesh has.
    """
    ranks = logs[0].ranks
    ends = {1, ranks}
    pairs: set[int] = set()
    peers: set[int] = set()
    # Each once: the group of all has 100,000 ranks, and every rank has it.
    for group in {group for log in logs for group in log.groups}:
        for stride, count in _regular(group):
            # Any two ranks are regular: first and last stage say nothing of the mesh.
            (pairs if len(group) == 2 else ends).update((stride, stride * count))
    for log in logs:
        peers |= {abs(peer - log.rank) for peer in log.peers()}
    if not _divide(sorted(ends)):
        return None
    # A message goes along an axis. Rings close with a longer distance, which is no axis's.
    for end in (*sorted(pairs), *sorted(peers - {0})[:1]):
        if _divide(sorted({*ends, end})) and end <= ranks:
            ends.add(end)
    chain = sorted(ends)
    return Mesh(tuple(after // before for before, after in pairwise(chain)) or (1,))


def _divide(chain: Sequence[int]) -> bool:
    return not any(after % before for before, after in pairwise(chain))


def _regular(group: Sequence[int]) -> list[tuple[int, int]]:
    """Return (stride, count) of the axes whose product a group is, innermost first; nothing if it is none."""
    ranks = np.sort(np.asarray(group, np.int64))
    found: list[tuple[int, int]] = []
    block = 1
    while block < len(ranks):
        stride = int(ranks[block] - ranks[0])
        # Blocks that repeat the first one, `stride` further each time.
        blocks = ranks[: len(ranks) // block * block].reshape(-1, block)
        repeats = (blocks == ranks[:block] + stride * np.arange(len(blocks))[:, None]).all(axis=1)
        count = len(blocks) if repeats.all() else int(np.argmin(repeats))
        if count == 1 or len(ranks) % (block * count):
            return []
        if found and found[-1][0] * found[-1][1] == stride:
            found[-1] = found[-1][0], found[-1][1] * count
        else:
            found.append((stride, count))
        block *= count
    return found


def needs_mesh(logs: Sequence[Log]) -> InputError:
    """Return what to say where ranks that were not run cannot be told from those that were."""
    return InputError(
        f"{logs[0].script}: the process groups of ranks {', '.join(str(log.rank) for log in logs)} are no axes of a "
        f"mesh of {logs[0].ranks} ranks, so what the other ranks do does not follow; expected --run all"
    )
