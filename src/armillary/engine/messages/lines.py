"""The pairs of nodes that exchange the messages of a collective, line by line."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from armillary.collective import in_switch
from armillary.collective.load import placed
from armillary.collective.rounds import Rounds
from armillary.engine.common.network import QuotientComm
from armillary.engine.messages import layout as lk
from armillary.engine.messages.in_switch import SwitchLines
from armillary.engine.messages.shapes import Shape, Shapes, require_room
from armillary.engine.messages.stages import network_of
from armillary.engine.messages.window import segments_of
from armillary.engine.physical.phases import PhysicalPhase
from armillary.engine.physical.program import Plan
from armillary.engine.physical.workload import lines_of
from armillary.platform.model import Platform
from armillary.platform.network import InNetwork
from armillary.platform.topology import Topology

Ints = NDArray[np.int64]


class MessageLines:
    """The pairs of nodes of every line in every shape that it runs."""

    def __init__(self, platform: Platform, graph: Topology) -> None:
        self.platform, self.nodes = platform, graph.nodes
        self.in_switches = SwitchLines(network_of(platform), graph)
        self.keys: list[Ints] = []
        self.rows: list[int] = []
        self.count = 0
        self.known: dict[tuple[int, int, int, bool], int] = {}

    def add(self, comm: QuotientComm, phase: PhysicalPhase, shape: Shape, first: int) -> int:
        """Return where the lines of a phase are, less `first`, the number of the first of them."""
        order = self._order(phase, shape.rounds)
        key = (comm.number, phase.dim, shape.number, order != phase.positions)
        if key not in self.known:
            lines = lines_of(self.platform, comm.real, phase.dim)
            if order != phase.positions:
                # The costs may place members in another order, e.g. a ring in a mesh; messages must follow
                # the same.
                lines = lines[:, [phase.positions.index(position) for position in order]]
            self.known[key] = len(self.rows) // lk.LI_COLUMNS - first
            require_room(self.count + len(lines) * len(shape.moves))
            for line in lines:
                self._line(line, shape)
        return self.known[key]

    def _order(self, phase: PhysicalPhase, rounds: Rounds) -> tuple[int, ...]:
        """Return the positions of a phase in the order in which its schedule takes them, as costs count them."""
        if phase.dim < 0:
            return phase.positions
        dimension = self.platform.dimensions[phase.dim]
        return placed(rounds, dimension.topology, dimension.size, phase.positions)[1]

    def add_in_switches(
        self, plan: Plan, phase: PhysicalPhase, size: int, shapes: Shapes, first: int
    ) -> tuple[int, Shape, int, InNetwork]:
        """Return the same as `add`, a shape, the segments of a chunk, and the abilities of the switches.

        Raises:
            InputError: no switch that can reduce joins a line.
        """
        what, comm = f"{plan.call.operation} in-switch", plan.comm
        members = lines_of(self.platform, comm.real, phase.dim).tolist()
        lines = [self.in_switches.of(line, what) for line in members]
        n = len(phase.positions)
        depth = max(in_switch.depth(line.trees, n) for line in lines)
        segments = segments_of(plan.chunks, phase, size, self.platform, depth)
        found = [in_switch.rounds(phase.operation, n, line.trees, segments) for line in lines]
        # Trees differ from line to line, but sizes are numbered for all of them together (`Shapes.add`).
        kinds = list(dict.fromkeys(found))
        made = dict(zip(kinds, shapes.add(*kinds), strict=True))
        key = (comm.number, phase.dim, made[kinds[0]].number, False)
        if key not in self.known:
            self.known[key] = len(self.rows) // lk.LI_COLUMNS - first
            for line, rounds in zip(lines, found, strict=True):
                self._line(line.nodes, made[rounds], *self.in_switches.limited(line))
        return self.known[key], made[kinds[0]], segments, self.in_switches.ability(lines[0])

    def _line(self, nodes: Ints, shape: Shape, switch: int = 0, switches: int = 0) -> None:
        self.rows += [self.count, shape.number, switch, switches]
        source, target = nodes[shape.moves[:, lk.MV_SOURCE]], nodes[shape.moves[:, lk.MV_TARGET]]
        self.keys.append(source * self.nodes + target)
        self.count += len(shape.moves)
