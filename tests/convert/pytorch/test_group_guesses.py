"""Groups that no node names: what one rank's trace leaves open, the calls of the others decide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary
from armillary.convert.converted import Converted
from armillary.platform.model import Platform
from armillary.platform.network import Dimension
from armillary.trace import NodeType
from armillary.trace.check_ranks import check_ranks
from tests.convert.pytorch.test_process_groups import PG, T, attrs, group, groups_of, job, rank

STAGES, TENSORS = ([0, 2], [1, 3]), ([0, 1], [2, 3])
SUM = ("c10d::_allgather_base_", (T, [1, 1, 0, 500, 4, "cpu"], PG, True, -1), ())
"""Of two ranks, by its sizes."""


def mesh(number: int, *, tensors_first: bool = False) -> list[dict[str, Any]]:
    """Return the groups of a rank of two pipeline stages of two tensor-parallel ranks."""
    rows = [("mesh_pp", STAGES), ("mesh_tp", TENSORS)]
    found = [group("0", [], "default_pg", 4)]
    for name, ranks in reversed(rows) if tensors_first else rows:
        found += [group(f"{name}{at}", each, name) for at, each in enumerate(ranks) if number in each]
    return found


def pipeline(number: int, sums: int, *, tensors_first: bool = False) -> Any:
    """Return a rank that sends or receives at its stage, and sums so often with the other of its stage."""
    other = 1 if number < 2 else 0
    name = "c10d::send" if number < 2 else "c10d::recv_"
    message = (name, ([T], PG, other, 0), ())
    return rank(number, 4, mesh(number, tensors_first=tensors_first), *[SUM] * sums, message)


@pytest.mark.parametrize("tensors_first", [False, True])
def test_stages_that_sum_differently_often_refute_the_group_of_the_stages(tensors_first: bool) -> None:
    recs = [pipeline(r, 2 if r < 2 else 5, tensors_first=tensors_first) for r in range(4)]
    converted = job(*recs)
    for number in range(4):
        row = (0, 1) if number < 2 else (2, 3)
        assert collectives(converted, number) == [row] * (2 if number < 2 else 5)
    assert [(m["comm_src"], m["comm_dst"]) for m in messages(converted)] == [(0, 2), (1, 3), (0, 2), (1, 3)]
    assert check_ranks(converted.trace) == []
    machine = Platform((Dimension("network", "Switch", 4, bandwidth=10.0, latency=1000.0),))
    assert armillary.simulate(converted.trace, machine).total_ticks > 0


def test_a_likely_group_that_fits_stays() -> None:
    recs = [rank(r, 4, mesh(r), SUM) for r in range(4)]
    converted = job(*recs)
    assert [collectives(converted, r) for r in range(4)] == [[(0, 2)], [(1, 3)], [(0, 2)], [(1, 3)]]
    assert "do not say their process group" in converted.warnings[0]


def test_groups_that_are_said_are_not_touched() -> None:
    said = ("_c10d_functional::all_gather_into_tensor", ([1, 1, 0, 500, 4, "cpu"], 2, "mesh_pp0"), (T,))
    recs = [rank(0, 4, mesh(0), said, said)]
    recs += [rank(r, 4, mesh(r), ("aten::mm", (T, T), (T,))) for r in (1, 2, 3)]
    assert collectives(job(*recs), 0) == [(0, 2), (0, 2)]


def collectives(converted: Converted, number: int) -> list[Any]:
    return groups_of(converted, number)[
        : int(np.sum(converted.trace.graph(number).types == NodeType.COMM_COLL_NODE))
    ]


def messages(converted: Converted) -> list[dict[str, Any]]:
    return [each for at in range(4) for each in attrs(converted, at) if "comm_src" in each]
