"""The plans of collectives: rows of the routes of their chunks, of the phases of each route, and of phase costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from armillary.engine.astra_sim import layout as lk
from armillary.engine.astra_sim.classes import CallPhases
from armillary.engine.astra_sim.collective.plan import next_size
from armillary.engine.astra_sim.congestion.network import Links
from armillary.engine.astra_sim.phase_costs import PhaseCosts, Timing
from armillary.engine.astra_sim.phases import CallChunks, CallPhase
from armillary.engine.astra_sim.rings import Rings
from armillary.engine.common import network
from armillary.engine.common.network import CollectiveCall, QuotientComm
from armillary.engine.common.timeline import OPERATIONS
from armillary.platform.model import Platform
from armillary.trace.trace import WORLD

Ints = NDArray[np.int64]
FAMILY = {"all": lk.ALL, "first": lk.FIRST, "last": lk.LAST}
KIND = {"reduce-scatter": lk.SCATTERS, "all-gather": lk.GATHERS}
TREE_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


@dataclass(eq=False)
class CallPlan:
    """A call lowered: its row in `plans` and what its collectives need."""

    number: int
    comm: QuotientComm
    source: CollectiveCall
    call: CallChunks
    first: int
    """Its first row in `phases`; routes stand one after the other."""
    lines: int = 0
    ticks: float = 0.0
    """Ticks of one chunk alone on the machine."""

    @property
    def phases(self) -> tuple[CallPhase, ...]:
        """The phases of a chunk on its first route."""
        return self.call.routes[0]

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return self.call.count

    @property
    def routed(self) -> bool:
        """Whether chunks take several routes."""
        return len(self.call.routes) > 1 or bool(self.call.after)

    def rows(self) -> list[tuple[int, int, int, int]]:
        """Return (dimension, operation, bytes sent per NPU, bytes through its port) of its rows in `phases`."""
        return [
            (phase.dim, OPERATIONS.index(phase.operation), _bytes_sent(phase), _bytes_sent(phase))
            for route in self.call.routes
            for phase in route
        ]


def _bytes_sent(phase: CallPhase) -> int:
    """Bytes that a member sends, the mean where members differ; 0 for a custom collective, whose trace says."""
    if not phase.schedules:
        return 0
    schedule = phase.schedules[0]
    members = range(schedule.n if schedule.relative == "absolute" else 1)
    # Roles of a tree send different amounts; the mean times the members is what the phase moves.
    return sum(schedule.bytes_sent(member, phase.size) for member in members) // len(members)


class Plans:
    """The plans of one program while they grow; calls that are the same in a communicator share one."""

    def __init__(
        self,
        platform: Platform,
        classes: Ints,
        representatives: Ints,
        call_phases: CallPhases,
        links: Links | None,
    ) -> None:
        self.platform, self.call_phases = platform, call_phases
        self.levels = len(platform.dimensions)
        self.rings = Rings(platform, classes, representatives)
        system = platform.astra_sim
        self.costs = PhaseCosts(
            Timing(
                platform.dimensions, platform.npu.memory.bytes_per_s, system.rendezvous, system.shared_bus,
                system.local_reduction_delay,
            ),
            links,
        )  # fmt: skip
        self.all: list[CallPlan] = []
        self.rows: list[int] = []
        self.phase_rows: list[int] = []
        self.route_rows: list[int] = []
        self.plan_of: dict[tuple[int, CollectiveCall], CallPlan] = {}

    def plan(self, comm: QuotientComm, call: CollectiveCall) -> CallPlan:
        """Return the plan of a call in a quotient communicator."""
        # Ranks of one class may know their groups by different numbers.
        key = (comm.number, replace(call, comm=WORLD))
        if key not in self.plan_of:
            found = self.call_phases[call]
            plan = CallPlan(len(self.all), comm, call, found, len(self.phase_rows) // lk.PH_COLUMNS)
            # Routes differ in order, not in the number of phases; lines and ticks are those of the largest.
            for route in found.routes:
                ticks, lines = 0.0, 0
                for p in range(len(route)):
                    more_ticks, more_lines = self._phase(comm, route, p, lines, call.operation)
                    ticks, lines = ticks + more_ticks, lines + more_lines
                plan.ticks, plan.lines = max(plan.ticks, ticks), max(plan.lines, lines)
            routes = self._routes(found.of_chunk) if plan.routed else -1
            row = [len(plan.phases), plan.first, plan.lines, routes, int(found.in_turn), int(found.greedy)]
            self.rows += row
            self.all.append(plan)
            self.plan_of[key] = plan
        return self.plan_of[key]

    def _routes(self, of_chunk: tuple[int, ...]) -> int:
        """Add the routes of chunks; returns their place in `route_rows`."""
        self.route_rows += (len(of_chunk), *of_chunk)
        return len(self.route_rows) - len(of_chunk) - 1

    def after(self) -> Ints:
        """Return the routes of plans after others, (plans, plans), -1: not known."""
        number = {plan.source: plan.number for plan in self.all}
        table = np.full((len(self.all), len(self.all)), -1, np.int64)
        for plan in self.all:
            for other, of_chunk in plan.call.after.items():
                table[plan.number, number[other]] = self._routes(of_chunk)
        return table

    def _phase(
        self, comm: QuotientComm, route: tuple[CallPhase, ...], p: int, line: int, operation: str
    ) -> tuple[float, int]:
        """Add the row of phase `p` of a route; `line` lines come before its own. Returns its ticks and lines."""
        phase = route[p]
        if not phase.schedules:
            # A custom collective: its nodes carry the messages, so the row names no ring and no cost.
            row = [0] * lk.PH_COLUMNS
            row[lk.PH_COUNT], row[lk.PH_TREE] = 1, -1
            self.phase_rows += row
            return 0.0, 0
        ring = self.rings.ring(comm, phase)
        members = comm.real.members
        if phase.dim >= 0:
            stride = network.strides(self.platform.dimensions)[phase.dim]
            # Along a dimension all rings look alike: the ranks of the first one stand for any.
            members = np.arange(phase.n) * stride
        add = self.costs.add
        cost = [
            add(s, phase.size, members, phase.endpoint, uniform=phase.uniform, on_bus=comm.real.world)
            for s in phase.schedules
        ]
        # Phases of one dimension and family share queues: their chunks take turns there.
        same = [q for q, o in enumerate(route) if (o.level, o.family) == (phase.level, phase.family)]
        trees = [q for q, o in enumerate(route) if o.tree and o.level == phase.level]
        # Trees alternate per kind of collective and dimension.
        tree = TREE_KINDS.index(operation) * self.levels + phase.level if phase.tree else -1
        row = [0] * lk.PH_COLUMNS
        row[lk.PH_LEVEL], row[lk.PH_FAMILY] = phase.level, FAMILY[phase.family]
        row[lk.PH_COUNT], row[lk.PH_INDEX] = len(same), same.index(p)
        row[lk.PH_TREE] = tree
        if phase.tree:
            row[lk.PH_TREE_COUNT], row[lk.PH_TREE_INDEX] = len(trees), trees.index(p)
        row[lk.PH_COST0], row[lk.PH_COST1] = cost
        row[lk.PH_RING], row[lk.PH_LINE] = ring.entry, line - ring.first_line
        row[lk.PH_KIND] = lk.OTHER if phase.tree else KIND.get(phase.operation, lk.OTHER)
        # `smallestFirst` compares what a member holds at most, before or after the phase.
        row[lk.PH_BYTES] = max(phase.size, next_size(phase.operation, phase.size, phase.n))
        self.phase_rows += row
        return max(self.costs.longest[c] for c in cost), ring.n_lines
