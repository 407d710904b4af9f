"""Who takes part in a collective: the world, the groups of a file, or those of the trace's metadata."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.errors import InputError, nearest
from armillary.platform.model import Platform
from armillary.trace import Graph, NodeType

WORLD = 0


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

    def get(self, number: int) -> Communicator:
        """Return communicator `number`, which must exist."""
        if number not in self.found:
            world = number == WORLD or len(self.groups[number]) == self.npus
            members = np.arange(self.npus) if world else np.array(self.groups[number], np.int64)
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
        for position in np.flatnonzero(graph.types == NodeType.METADATA_NODE).tolist():
            text = graph.io_inputs(position)
            if "pg_name" not in text:
                continue
            try:
                groups = [_group(group) for group in json.loads(text[2:-2])]
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"{graph.node(position)}: process groups cannot be read ({error}); expected a JSON list of "
                    '{"pg_name": "<number>", "ranks": [...]}'
                ) from error
            for number, ranks in groups:
                self._define(graph, position, number, ranks or tuple(range(self.npus)))

    def _define(self, graph: Graph, position: int, number: int, ranks: tuple[int, ...]) -> None:
        if number == WORLD:
            return
        for rank in ranks:
            if not 0 <= rank < self.npus:
                raise InputError(
                    f"{graph.node(position)}: group {number} has rank {rank}; expected ranks from 0 to {self.npus - 1}"
                )
        if len(set(ranks)) < len(ranks):
            raise InputError(
                f"{graph.node(position)}: group {number} is {list(ranks)[:8]}; expected each rank once"
            )
        if self.groups.setdefault(number, ranks) != ranks:
            raise InputError(
                f"{graph.node(position)}: group {number} is {list(ranks)[:8]}, but another definition says "
                f"{list(self.groups[number])[:8]}; expected the same members everywhere"
            )


def _group(group: dict[str, Any]) -> tuple[int, tuple[int, ...]]:
    """Return number and ranks of one process group."""
    number, ranks = int(group["pg_name"]), group["ranks"]
    if number < 0:
        raise ValueError(f"pg_name is {number}")
    if not isinstance(ranks, list) or any(type(rank) is not int for rank in ranks):
        raise ValueError(f"ranks of group {number} are {ranks!r}")
    return number, tuple(ranks)
