"""Random programs on machines whose messages cross links."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from armillary.collective.algorithms import find_algorithm
from armillary.platform.logical import logical_dimensions
from armillary.platform.topology import Topology, dragonfly, fat_tree, leaf_spine, rail_optimised
from armillary.platform.topology.aggregation import with_in_network
from armillary.platform.topology.network import Network

from ..physical.programs import IN_NETWORK, Case, cases

GRAPHS: dict[int, list[Topology]] = {}
for graph in (
    leaf_spine(leaves=2, spines=2, npus_per_leaf=2, bandwidth=10.0, latency=100.0),
    leaf_spine(leaves=3, spines=2, npus_per_leaf=2, bandwidth=10.0, latency=0.7, uplink=3.3),
    fat_tree(4, 12.5, 250.0),
    dragonfly(2, 2, 1, 10.0, 100.0),
    rail_optimised(
        hosts=3, npus_per_host=2, bandwidth=5.0, latency=700.0, host_bandwidth=33.3, host_latency=10.0
    ),
):
    GRAPHS.setdefault(graph.npus, []).append(graph)


@st.composite
def programs(draw: st.DrawFn, graphs: tuple[bool, ...] = (False, True)) -> Case:
    """A program on dimensions, or on a graph with as many NPUs."""
    case = draw(cases(most=6, staged=False))
    collectives = replace(case.platform.collectives, active_chunks=draw(st.sampled_from([0, 0, 1, 2])))
    # Ports of a share of their bandwidth are for network model analytical alone.
    platform = replace(case.platform, collectives=collectives, scheduling="fair", port_speed={})
    if draw(st.sampled_from(graphs)) and platform.npus in GRAPHS:
        chosen = draw(st.sampled_from(GRAPHS[platform.npus]))
        network = Network(chosen, draw(st.sampled_from(["ecmp", "shortest"])) if not chosen.host else "rail")
        platform = replace(
            platform,
            collectives=replace(collectives, algorithms={}),
            dimensions=logical_dimensions(chosen),
            topology=network,
        )
    return replace(case, platform=platform)


@st.composite
def in_switches(draw: st.DrawFn) -> Case:
    """A program whose collectives run in switches, where those can do it: of dimensions, or of a graph."""
    case = draw(programs((False, True, True, True)))
    platform, able = case.platform, draw(st.sampled_from(IN_NETWORK[1:]))
    if platform.topology:
        graph = platform.topology.topology
        switches = list(range(graph.npus, graph.nodes))
        which = draw(st.sampled_from([switches, switches, switches[::2], switches[1:]]))
        network = replace(platform.topology, in_network=able, switches=tuple(which))
        platform = replace(
            platform, topology=network, dimensions=with_in_network(platform.dimensions, network)
        )
    else:
        dimensions = tuple(
            replace(d, topology="Switch", in_network=draw(st.sampled_from([able, able, None])))
            for d in platform.dimensions
        )
        platform = replace(platform, dimensions=dimensions)
    names = tuple("in-switch" if d.in_network else "natural" for d in platform.dimensions)
    algorithms = dict.fromkeys(find_algorithm("in-switch").operations, names)
    platform = replace(platform, collectives=replace(platform.collectives, algorithms=algorithms))
    return replace(case, platform=platform)
