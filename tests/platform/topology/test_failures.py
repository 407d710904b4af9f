"""Failures: what is down when, and what is said about who is lost."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.platform.network import Dimension
from armillary.platform.topology import (
    Ecmp,
    Failure,
    Shortest,
    check_connected,
    degraded,
    fat_tree,
    from_dimensions,
    leaf_spine,
    stages,
)


def test_links_keep_their_numbers() -> None:
    topology = fat_tree(4, 10.0, 1.0)
    broken = degraded(topology, [Failure(node="core 0"), Failure(link=("npu 3", "edge 1"), bandwidth=0.25)])
    core = topology.node("core 0")
    assert (broken.head == topology.head).all()
    assert ((broken.bandwidth == 0) == ((topology.tail == core) | (topology.head == core))).all()
    assert broken.bandwidth[broken.between([3, 16 + 1], [16 + 1, 3])].tolist() == [2.5, 2.5]


def test_no_way_uses_what_is_down() -> None:
    topology = fat_tree(4, 10.0, 1.0)
    broken = degraded(topology, [Failure(node="core 1"), Failure(link=("edge 0", "aggregation 0"))])
    source, destination = np.indices((16, 16)).reshape(2, -1)
    routes = Ecmp(broken).paths(source, destination)
    assert (broken.bandwidth[routes.link] > 0).all()


def test_stages_follow_time() -> None:
    topology = leaf_spine(2, 2, 1, 10.0, 1.0)
    plan = [
        Failure(node="spine 0", at=5.0, until=9.0),
        Failure(link=("npu 0", "leaf 0"), bandwidth=0.5, latency=3.0, at=7.0, one_way=True),
    ]
    found = stages(topology, plan)
    assert [time for time, _ in found] == [0.0, 5.0, 7.0, 9.0]
    assert [int((part.bandwidth == 0).sum()) for _, part in found] == [0, 4, 4, 0]
    link, back = topology.between([0, topology.node("leaf 0")], [topology.node("leaf 0"), 0])
    assert [part.bandwidth[link] for _, part in found] == [10.0, 10.0, 5.0, 5.0]
    assert found[-1][1].latency[[link, back]].tolist() == [4.0, 1.0]
    assert found[-1][1].bandwidth[back] == 10.0


def test_a_partition_names_both_ends() -> None:
    ring = from_dimensions([Dimension("ring", "Ring", 6, 1.0, 1.0)])
    cut = degraded(ring, [Failure(link=("npu 0", "npu 1")), Failure(link=("npu 3", "npu 4"))])
    with pytest.raises(
        InputError,
        match="npu 1 to npu 0: npu 0 is reached from 2 of 5 nodes; 4 of 12 links are down",
    ):
        check_connected(cut)
    with pytest.raises(InputError, match="no way from npu 2 to npu 5"):
        Shortest(cut).paths([0, 2], [4, 5])
    with pytest.raises(InputError, match="no way from npu 5 to npu 1"):
        Shortest(cut).candidates(5, 1)
    one_way = degraded(ring, [Failure(node="npu 2")])
    with pytest.raises(InputError, match="npu 2"):
        check_connected(one_way)


def test_the_only_path_of_a_tree() -> None:
    tree = degraded(leaf_spine(2, 1, 2, 1.0, 1.0), [Failure(link=("leaf 1", "spine 0"), one_way=True)])
    with pytest.raises(InputError, match="npu 2 to npu 0: npu 0 is reached from 3 of 6 nodes; 1 of 12 links"):
        check_connected(tree)


@pytest.mark.parametrize(
    ("failure", "message"),
    (
        (Failure(node="spin 0"), "no node 'spin 0' .did you mean 'spine 0'"),
        (Failure(node=99), "no node 99, expected 0 to"),
        (
            Failure(link=("npu 0", "spine 0")),
            "no link npu 0 → spine 0, expected a neighbour of npu 0, e.g. leaf 0",
        ),
        (Failure(), "expected either a node or a link"),
        (Failure(node=0, bandwidth=1.5), "got bandwidth 1.5, expected a share from 0 to 1"),
        (Failure(node=0, at=5.0, until=5.0), "got until 5 ns, expected more than at"),
    ),
)
def test_what_cannot_fail(failure: Failure, message: str) -> None:
    with pytest.raises(InputError, match=message):
        degraded(leaf_spine(2, 2, 1, 1.0, 1.0), [failure])
