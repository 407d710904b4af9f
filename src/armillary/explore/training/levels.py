"""A graph as the levels at which collectives run on it, so that a step on 1,024 devices is predicted at once.

Messages that move one by one share each link with all others, and nothing of them folds: minutes for what nested
dimensions answer in a tenth of a second. A level has what its links give when all its groups run a collective at the
same time: all rounds of the algorithm that suits it, over the routes of the graph, as fast as the busiest link allows.
Different levels, and different collectives, do not share links here.

Where a level holds several axes of a plan, tensor and data parallelism on one tree, say, it is cut where one axis ends
and the next begins: each axis then has what its own groups get. Halving and doubling over the pieces is that over the
whole. A group over several pieces has the links of a device once for each, as its chunks are in all of them at a time:
pieces whose links give about the same are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.hints import show
from armillary.base.units import format_count
from armillary.collective.algorithms import natural, rounds_for
from armillary.compute.machine import Machine, machine_of
from armillary.engine.messages.stages import stages_of
from armillary.engine.transport.network import Stage
from armillary.platform.network import Dimension
from armillary.workload.plan.schema import Plan

MESSAGES = 32
"""Devices of a graph up to which messages move one by one unless it is asked otherwise: a step takes seconds to a
minute of CPU there, and more than an answer may on twice as many."""
APPROXIMATE = "approximate: "
HOW = ("messages", "levels")
ALIKE = 0.85
"""Least over largest bandwidth of pieces of a level, and of both together, from which on they are one: of 0.5 to 0.9
this has the least error over 300 random steps (root mean square of ln: 0.058, of 0.9 0.067, of none 0.08)."""
_ROUTES = 0.75e-6
"""Seconds for each pair of a device and a node of a plane: 0.5e-6 measured of 1,024 devices on rails, 0.8e-6 of 576 in
18 planes and of 4,096 behind leaves and spines."""
_MOST_SECONDS = 60.0
"""Half of what an answer may take: the step comes after the routes."""
_OF_GRAPHS = ("topology", "network_model", "packets")
"""Keys of a machine that say how messages move over a graph."""


def taken(machine: Machine, how: str = "") -> Machine:
    """Return a machine whose graph is taken in one of `HOW`, "": by its size; as it is where messages move.

    Raises:
        InputError: `how` is none of them, or the machine has no graph; see `_Graph` for levels.
    """
    check_how(how)
    if machine.platform.topology is None:
        if how and machine.cut is None:
            raise InputError(f"graph: got {show(how)}, but the network of {machine.name} is no graph")
        return machine
    by_levels = (how or ("levels" if machine.npus > MESSAGES else "messages")) == "levels"
    return _Graph(machine).cut() if by_levels else machine


def how_for(machine: Machine, how: str) -> str:
    """Return how the network of one of several machines is taken if `how` was chosen for those that are graphs."""
    return how if machine.platform.topology is not None else ""


def check_how(how: str) -> None:
    """Check that a graph is taken in one of `HOW`, or "".

    Raises:
        InputError: it is not.
    """
    if how not in ("", *HOW):
        raise InputError(f"graph: got {show(how)}, expected {one_of(HOW)}{nearest(str(how), HOW)}")


def cut_for(machine: Machine, plan: Plan) -> Machine:
    """Return a machine as a plan finds it: levels of a graph are cut where an axis of the plan ends."""
    if machine.cut is None:
        return machine
    axes, ends = plan.parallel, []
    sizes = {"tp": axes.tp, "cp": axes.cp, "ep": axes.ep, "pp": axes.pp}
    # Experts are spread over replicas, so that dp is what ep leaves of them.
    sizes["dp"] = max(1, machine.npus // (axes.tp * axes.cp * axes.pp * axes.ep))
    end = 1
    for axis in axes.order.split("-"):
        end *= sizes[axis]
        ends.append(end)
    return machine.cut(tuple(ends))


def unshared(machine: Machine) -> Machine:
    """Return a machine with all links of a device in every level, which no time over the graph beats."""
    return replace(machine_of(_held(machine, machine.platform.dimensions, "")), name=machine.name)


class _Graph:
    """A machine by the levels of its graph.

    Args:
        machine: With a graph.

    Raises:
        InputError: the routing does not fit the graph, leaves devices without a route, or takes too long.
    """

    def __init__(self, machine: Machine) -> None:
        network = machine.platform.topology
        assert network is not None
        graph = network.topology
        takes = graph.npus * graph.nodes * graph.planes * _ROUTES
        if takes > _MOST_SECONDS:
            raise InputError(
                f"topology: routes of {graph.npus:,} devices over {graph.nodes - graph.npus:,} switches take about "
                f"{takes:.0f} s, expected at most {_MOST_SECONDS:.0f} s here: a part of the graph, or nested dimensions"
            )
        self.machine = machine

    def cut(self, ends: tuple[int, ...] = ()) -> Machine:
        """Return the machine with levels that end where groups of these numbers of devices do."""
        given = self.machine.platform.dimensions
        network = self.machine.platform.topology
        assert network is not None
        # Of a graph that was built from dimensions these are known, unless links are down.
        known = given == network.topology.dimensions and not network.failures
        levels = given if known else _measured(self.machine, _pieces(given, ends))
        said = " and ".join(
            f"{level.size:,} {'devices' if not at else 'groups'} at {level.bandwidth:.4g} GB/s"
            for at, level in enumerate(levels)
        )
        text = (
            f"{APPROXIMATE}the graph of {format_count(self.machine.npus)} devices is taken by its levels, {said}; "
            "traffic of different levels and collectives does not meet on its links as it does where every message "
            "is moved"
        )
        if any(each.at > 0 or each.until is not None for each in network.failures):
            text += "; links that fail or are repaired during the step stay here as they are at its start"
        return replace(machine_of(_held(self.machine, levels, text)), name=self.machine.name, cut=self.cut)


def _held(machine: Machine, levels: Sequence[Dimension], assumed: str) -> dict[str, Any]:
    """Return what a file holds of a machine with levels in place of its graph, of which `assumed` is to be said."""
    keys = {key: value for key, value in machine.keys.items() if key not in _OF_GRAPHS}
    keys["network"] = [_keys(level) for level in levels]
    if "collectives" in keys:
        places = places_of(levels, machine.platform.dimensions)
        keys["collectives"] = {
            # A list has an algorithm for each level; pieces of one have its.
            name: [value[at] for at in places] if isinstance(value, list) else value
            for name, value in keys["collectives"].items() if name != "hierarchy"
        }  # fmt: skip
    if isinstance(keys.get("storage"), Mapping):
        keys["storage"] = {key: value for key, value in keys["storage"].items() if key != "at"}
    said = [assumed] if assumed else []
    return {"software": machine.software, "assumptions": [*said, *machine.assumptions], "platform": keys}


def places_of(levels: Sequence[Dimension], given: Sequence[Dimension]) -> list[int]:
    """Return which of the given levels each is, or is a piece of."""
    ends, found, inner = list(accumulate((each.size for each in given), mul)), [], 1
    for level in levels:
        found.append(next((at for at, end in enumerate(ends) if inner < end), len(given) - 1))
        inner *= level.size
    return found


def _pieces(levels: Sequence[Dimension], ends: Sequence[int]) -> Sequence[Dimension]:
    """Return levels with those in pieces that hold several groups of these numbers of devices, the innermost first."""
    pieces, inner = [], 1
    for level in levels:
        before, cut = 1, []
        for end in sorted({*ends, inner * level.size}):
            size = end // inner
            if not inner < end <= inner * level.size or end % inner:
                continue
            if size > before and level.size % size == 0 and size % before == 0:
                cut.append(size // before)
                before = size
        pieces += [replace(level, size=size) for size in cut]
        inner *= level.size
    return pieces


def _measured(machine: Machine, levels: Sequence[Dimension]) -> list[Dimension]:
    """Return levels with the bandwidth and latency that routes of the graph give them, in GB/s and ns."""
    network = machine.platform.topology
    assert network is not None
    stage = stages_of(machine.platform)[0]
    graph, inner, found = stage.topology, 1, []
    arrays = (graph.first_link, graph.head, graph.bandwidth, graph.latency, graph.plane)
    name = (
        sha256(b"".join(each.tobytes() for each in arrays)).digest(), network.routing, network.seed,
        str(network.table) if network.table else "",
    )  # fmt: skip

    def measured(level: Dimension, inner: int) -> Dimension:
        place = (name, inner, level.size)
        if place not in _known:
            if len(_known) == _KNOWN:
                _known.clear()
            _known[place] = _measure(stage, machine.npus, inner, level.size)
        bandwidth, latency = _known[place]
        return replace(level, bandwidth=bandwidth, latency=latency, port=None)

    for level in levels:
        found.append(measured(level, inner))
        inner *= level.size
        while len(found) > 1 and found[-2].name == level.name:
            below, above = found[-2:]
            size = below.size * above.size
            both = measured(replace(below, size=size), inner // size)
            rates = [each.bandwidth for each in (below, above, both)]
            if min(rates) < ALIKE * max(rates):
                break
            found[-2:] = [both]
    count = Counter(level.name for level in found)
    at: Counter[str] = Counter()
    for place, level in enumerate(found):
        if count[level.name] > 1:
            at[level.name] += 1
            found[place] = replace(level, name=f"{level.name}, {at[level.name]} of {count[level.name]}")
    return found


_KNOWN = 10_000
_known: dict[tuple[Any, int, int], tuple[float, float]] = {}
"""Graph, devices of a member, and members of a level -> its GB/s and ns: plans and peaks share them."""


def _measure(stage: Stage, npus: int, inner: int, size: int) -> tuple[float, float]:
    """Return GB/s and ns of a level of `size` members of `inner` devices each, all of whose groups run a collective."""
    graph, npu = stage.topology, np.arange(npus)
    rounds = rounds_for(natural("Switch", "all-gather", size), "all-gather", size)
    place = npu // inner % size
    sources, targets, sizes = [], [], []
    for each in rounds.rounds:
        moves = each.moves
        # Every group of the level does the same at the same time.
        order = np.argsort(moves.source, kind="stable")
        first = np.searchsorted(moves.source[order], np.arange(size + 1))
        count = np.diff(first)[place]
        move = order[np.repeat(first[:-1][place], count) + _within(count)]
        sources.append(np.repeat(npu, count))
        targets.append(sources[-1] + (moves.target[move] - place[sources[-1]]) * inner)
        sizes.append(each.repeat * moves.numerator[move] / moves.denominator[move])
    source, amount = np.concatenate(sources), np.concatenate(sizes)
    # All rounds in one call: routes to a device are found once.
    paths = stage.paths(source, np.concatenate(targets))
    parts = len(paths.hops) // len(source)
    share = np.repeat(np.repeat(amount / parts, parts), paths.hops)
    load = np.bincount(paths.link, share, graph.links)
    used = load > 0
    # Chunks are in different rounds at a time, so that each link has the load of all rounds to carry.
    time = float((load[used] / graph.bandwidth[used]).max())
    latency = float(np.add.reduceat(graph.latency[paths.link], paths.first[:-1]).max())
    # A message crosses two links of a switch.
    return float(np.bincount(source, amount).max()) / time, latency / 2


def _within(count: Any) -> Any:
    """Return 0, 1, … within each of some runs of these lengths."""
    return np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)


def _keys(level: Dimension) -> dict[str, Any]:
    return {
        "name": level.name, "topology": level.topology, "size": level.size,
        "bandwidth": f"{level.bandwidth:.6g} GB/s", "per": "link", "latency": f"{level.latency:.6g} ns",
    }  # fmt: skip
