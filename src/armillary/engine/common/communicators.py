"""Who takes part in a collective: the world, the groups of a file, or those of the trace's metadata."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, nearest
from armillary.platform.model import Platform
from armillary.trace import Graph
from armillary.trace.process_groups import WORLD, define, definitions, recorded_world


@dataclass(frozen=True, eq=False)
class Communicator:
    """Ranks in the order of their group; `world`: it spans the machine and uses its topology."""

    number: int
    members: NDArray[np.int64]
    world: bool


class Communicators:
    """The communicators of a run, by group number; 0 is the world."""

    def __init__(self, platform: Platform) -> None:
        self.npus = platform.npus
        self.source = platform.source
        self.found: dict[int, Communicator] = {}
        self.groups = dict(platform.groups)

    @cached_property
    def _world(self) -> tuple[int, ...]:
        return tuple(range(self.npus))

    def get(self, number: int) -> Communicator:
        """Return communicator `number`, which must exist."""
        if number not in self.found:
            world = number == WORLD or len(self.groups[number]) == self.npus
            # The order of a group of all ranks matters to an all-to-all with sizes of its own.
            members = np.arange(self.npus) if number == WORLD else np.array(self.groups[number], np.int64)
            self.found[number] = Communicator(number, members, world)
        return self.found[number]

    def resolve(self, graph: Graph, position: int, name: str) -> int:
        """Return the group number that ``pg_name`` of a node means.

        Raises:
            InputError: no such group.
        """
        if name in ("", "0"):
            return WORLD
        try:
            number = int(name)
        except ValueError:
            number = -1
        if number not in self.groups:
            known = [str(n) for n in self.groups]
            hint = nearest(name, known) or (
                f" (groups: {', '.join(known[:8])})" if known else " (there are none)"
            )
            raise InputError(f"{graph.node(position)} has pg_name '{name}'; expected the id of a group{hint}")
        return number

    def read_metadata(self, graph: Graph) -> None:
        """Add the process groups that PyTorch's METADATA nodes define.

        Raises:
            InputError: the definition cannot be read, or contradicts another rank's.
        """
        recorded = recorded_world(graph)  # a replay of some ranks never asks who the others of a group are
        for position, text in definitions(graph):
            try:
                define(self.groups, text, self._world if self.npus >= recorded else tuple(range(recorded)))
            except ValueError as error:
                raise InputError(f"{graph.node(position)}: {error}") from error
