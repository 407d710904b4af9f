"""The links of dimensions, and the ways over them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.engine.common.network import path
from armillary.platform.links import LinkBlock, link_blocks, route
from armillary.platform.network import Dimension, TopologyName

TOPOLOGIES: tuple[TopologyName, ...] = ("Ring", "FullyConnected", "Switch", "Mesh")


def blocks(*dimensions: tuple[TopologyName, int]) -> list[LinkBlock]:
    return link_blocks(tuple(Dimension("", topology, size, 1.0, 0.0) for topology, size in dimensions))


@pytest.mark.parametrize(
    ("topology", "source", "destination", "links"),
    [
        ("Ring", 0, 1, [0]),
        ("Ring", 1, 0, [3]),
        ("Ring", 0, 2, [0, 2]),  # as long both ways: up
        ("Ring", 0, 3, [1]),
        ("Mesh", 0, 3, [0, 2, 4]),
        ("Mesh", 3, 1, [7, 5]),
        ("FullyConnected", 0, 3, [2]),
        ("FullyConnected", 3, 0, [9]),
        ("Switch", 1, 2, [1, 6]),
    ],
)
def test_ways_in_one_dimension(
    topology: TopologyName, source: int, destination: int, links: list[int]
) -> None:
    assert route(blocks((topology, 4)), source, destination) == links


@pytest.mark.parametrize(("inner", "outer"), list(itertools.product(TOPOLOGIES, TOPOLOGIES)))
def test_a_message_crosses_as_many_links_of_each_dimension_as_lie_between(
    inner: TopologyName, outer: TopologyName
) -> None:
    found = blocks((inner, 4), (outer, 5))
    dimensions = tuple(block.dimension for block in found)
    bounds = [0, *(block.first + block.count for block in found)]
    used = set()
    for source, destination in itertools.product(range(20), repeat=2):
        links = route(found, source, destination)
        crossed = np.histogram(links, bins=bounds)[0].tolist()
        assert crossed == [int(c) for c in path(dimensions, np.array(source), np.array(destination))]
        assert len(set(links)) == len(links)
        used |= set(links)
    # Only the links off the ends of a mesh lead nowhere.
    ends = sum(2 * 20 // block.dimension.size for block in found if block.kind == "line")
    assert len(used) == bounds[-1] - ends


def test_links_without_bandwidth_are_refused() -> None:
    with pytest.raises(InputError, match=r"Dimension.bandwidth: got 0.0, expected more than 0"):
        link_blocks((Dimension("leaf", "Ring", 2, 1.0, 0.0), Dimension("spine", "Ring", 2, 0.0, 0.0)))
