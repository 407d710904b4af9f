"""A graph as the levels at which collectives run on it, so that a step on 1,024 devices is predicted at once.

Messages that move one by one share each link with all others, and nothing of them folds: minutes for what nested
dimensions answer in a tenth of a second. A level has what its links give when all its groups run a collective at the
same time: all rounds of the algorithm that suits it, over the routes of the graph, as fast as the busiest link allows.
Different levels, and different collectives, do not share links here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.base.units import format_count
from armillary.collective.algorithms import natural, rounds_for
from armillary.compute.machine import Machine
from armillary.engine.messages.stages import stages_of
from armillary.platform.network import Dimension

MESSAGES = 32
"""Devices of a graph up to which messages move one by one unless it is asked otherwise: a step takes seconds to a
minute of CPU there, and more than an answer may on twice as many."""
APPROXIMATE = "approximate: "
HOW = ("messages", "levels")
_ROUTES = 0.75e-6
"""Seconds for each pair of a device and a node of a plane: 0.5e-6 measured of 1,024 devices on rails, 0.8e-6 of 576 in
18 planes and of 4,096 behind leaves and spines."""
_MOST_SECONDS = 60.0
"""Half of what an answer may take: the step comes after the routes."""
_OF_GRAPHS = ("topology", "network_model", "packets")
"""Keys of a machine that say how messages move over a graph."""


def takes_levels(how: str, machine: Machine) -> bool:
    """Return whether a graph is taken by its levels, `how` being one of `HOW`, or "": by its size."""
    return (how or ("levels" if machine.npus > MESSAGES else "messages")) == "levels"


def by_levels(machine: Machine) -> dict[str, Any]:
    """Return what a file holds of a machine whose network is the levels of its graph.

    Raises:
        InputError: the routing does not fit the graph, leaves devices without a route, or takes too long.
    """
    network = machine.platform.topology
    assert network is not None
    graph = network.topology
    takes = graph.npus * graph.nodes * graph.planes * _ROUTES
    if takes > _MOST_SECONDS:
        raise InputError(
            f"topology: routes of {graph.npus:,} devices over {graph.nodes - graph.npus:,} switches take about "
            f"{takes:.0f} s, expected at most {_MOST_SECONDS:.0f} s here: a part of the graph, or nested dimensions"
        )
    own, given = graph.dimensions, machine.platform.dimensions
    # Of a graph that was built from dimensions these are known.
    levels = given if given == own else _measured(machine, given)
    keys = {key: value for key, value in machine.keys.items() if key not in _OF_GRAPHS}
    keys["network"] = [_keys(level) for level in levels]
    if "collectives" in keys:
        keys["collectives"] = {k: v for k, v in keys["collectives"].items() if k != "hierarchy"}
    if isinstance(keys.get("storage"), Mapping):
        keys["storage"] = {key: value for key, value in keys["storage"].items() if key != "at"}
    said = " and ".join(
        f"{level.size:,} {'devices' if not at else 'groups'} at {level.bandwidth:.4g} GB/s"
        for at, level in enumerate(levels)
    )
    assumed = (
        f"{APPROXIMATE}the graph of {format_count(machine.npus)} devices is taken by its levels, {said}; traffic of "
        "different levels and collectives does not meet on its links as it does where every message is moved"
    )
    return {"software": machine.software, "assumptions": [assumed, *machine.assumptions], "platform": keys}


def _measured(machine: Machine, levels: tuple[Dimension, ...]) -> list[Dimension]:
    """Return levels with the bandwidth and latency that routes of the graph give them, in GB/s and ns."""
    stage = stages_of(machine.platform)[0]
    graph = stage.topology
    npu, inner, found = np.arange(machine.npus), 1, []
    for level in levels:
        rounds = rounds_for(natural("Switch", "all-gather", level.size), "all-gather", level.size)
        place = npu // inner % level.size
        sources, targets, sizes = [], [], []
        for each in rounds.rounds:
            moves = each.moves
            # Every group of the level does the same at the same time.
            order = np.argsort(moves.source, kind="stable")
            first = np.searchsorted(moves.source[order], np.arange(level.size + 1))
            count = np.diff(first)[place]
            move = order[np.repeat(first[:-1][place], count) + _within(count)]
            sources.append(np.repeat(npu, count))
            targets.append(sources[-1] + (moves.target[move] - place[sources[-1]]) * inner)
            sizes.append(each.repeat * moves.numerator[move] / moves.denominator[move])
        source, size = np.concatenate(sources), np.concatenate(sizes)
        # All rounds in one call: routes to a device are found once.
        paths = stage.paths(source, np.concatenate(targets))
        parts = len(paths.hops) // len(source)
        share = np.repeat(np.repeat(size / parts, parts), paths.hops)
        load = np.bincount(paths.link, share, graph.links)
        used = load > 0
        # Chunks are in different rounds at a time, so that each link has the load of all rounds to carry.
        time = float((load[used] / graph.bandwidth[used]).max())
        latency = float(np.add.reduceat(graph.latency[paths.link], paths.first[:-1]).max())
        # A message crosses two links of a switch.
        bandwidth = float(np.bincount(source, size).max()) / time
        found.append(replace(level, bandwidth=bandwidth, latency=latency / 2, port=None))
        inner *= level.size
    return found


def _within(count: Any) -> Any:
    """Return 0, 1, … within each of some runs of these lengths."""
    return np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)


def _keys(level: Dimension) -> dict[str, Any]:
    return {
        "name": level.name, "topology": level.topology, "size": level.size,
        "bandwidth": f"{level.bandwidth:.6g} GB/s", "per": "link", "latency": f"{level.latency:.6g} ns",
    }  # fmt: skip
