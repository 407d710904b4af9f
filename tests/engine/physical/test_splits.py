"""All-to-all with sizes of its own (`comm_splits`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.platform.model import Collectives, Platform
from armillary.platform.network import Dimension, Port
from armillary.report import bound
from armillary.trace import GraphBuilder, Trace

MACHINES = (
    (("Switch", 8),),
    (("FullyConnected", 8),),
    (("Ring", 4), ("Switch", 2)),
    (("Ring", 2), ("FullyConnected", 2), ("Switch", 2)),
)


def machine(dimensions: tuple[tuple[str, int], ...], chunks: int = 1) -> Platform:
    return Platform(
        tuple(
            Dimension(f"d{i}", topology, size, 100.0, 500.0, Port(100.0, 100.0))
            for i, (topology, size) in enumerate(dimensions)
        ),
        collectives=Collectives(chunks=chunks),
        groups={1: (1, 3, 5, 7)},
    )


def exchange(matrix: np.ndarray, members: tuple[int, ...] = tuple(range(8)), group: str = "") -> Trace:
    ranks = []
    for rank in range(8):
        builder = GraphBuilder(rank=rank)
        if rank in members:
            row = matrix[members.index(rank)]
            builder.all_to_all("exchange", max(1, int(row.sum())), group=group or None)
            builder.nodes[-1].attrs.append(("comm_splits", "int64_list", [int(b) for b in row]))
        else:
            builder.compute("elsewhere", duration_micros=1)
        ranks.append(builder.graph(f"rank {rank}"))
    return Trace.from_ranks(ranks)


@pytest.mark.parametrize("dimensions", MACHINES)
def test_equal_splits_are_a_plain_all_to_all(dimensions: tuple[tuple[str, int], ...]) -> None:
    plain = GraphBuilder()
    plain.all_to_all("exchange", "8 MiB")
    platform = machine(dimensions)
    expected = armillary.simulate(Trace.replicate(plain.graph(), 8), platform).total_ticks
    result = armillary.simulate(exchange(np.full((8, 8), 1 << 20)), platform)
    # Along one dimension the two are the same rounds; over several, plain ones are summed by dimension too.
    assert abs(result.total_ticks - expected) <= len(dimensions)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(MACHINES), st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_any_splits(dimensions: tuple[tuple[str, int], ...], seed: int, chunks: int) -> None:
    matrix = np.random.default_rng(seed).integers(0, 1 << 20, (8, 8)) * (seed % 3 > 0)
    platform, trace = machine(dimensions, chunks), exchange(matrix)
    folded, alone = armillary.simulate(trace, platform), armillary.simulate(trace, platform, fold=False)
    assert folded.finish_ticks.tolist() == alone.finish_ticks.tolist()
    assert bound(folded).ticks <= folded.total_ticks
    fullest = max(matrix.sum(1) - matrix.diagonal(), key=int) if len(dimensions) == 1 else 0
    assert folded.total_ticks >= int(fullest) // 100


def test_splits_of_a_group() -> None:
    matrix = np.arange(16).reshape(4, 4) << 16
    result = armillary.simulate(exchange(matrix, (1, 3, 5, 7), "1"), machine((("Switch", 8),)))
    assert len({int(t) for t in result.finish_ticks[[1, 3, 5, 7]]}) == 1
    assert set(result.finish_ticks[[0, 2, 4, 6]].tolist()) == {1000}


@settings(max_examples=40)
@given(
    st.sampled_from([(("Switch", 8),), (("Ring", 2), ("Ring", 4)), (("Ring", 4), ("Switch", 2))]),
    st.lists(st.integers(0, 1 << 20), min_size=4, max_size=4),
    st.lists(st.permutations(range(4)), min_size=2, max_size=2),
    st.lists(st.integers(1, 2), min_size=8, max_size=8),
)
def test_groups_whose_splits_differ_and_cost_the_same_are_alike(
    dimensions: tuple[tuple[str, int], ...], sent: list[int], turns: list[list[int]], micros: list[int]
) -> None:
    """Ranks of two groups can be of one class, and represent each other's group, though they send other bytes."""
    platform = replace(machine(dimensions), groups={1: (0, 2, 4, 6), 2: (1, 3, 5, 7)})
    ranks = []
    for rank in range(8):
        builder = GraphBuilder(rank=rank)
        before = builder.compute("k", duration_micros=micros[rank])
        splits = [sent[place] for place in turns[rank % 2]]
        builder.all_to_all("exchange", max(1, sum(splits)), group=str(1 + rank % 2), after=[before])
        builder.nodes[-1].attrs.append(("comm_splits", "int64_list", splits))
        builder.all_reduce("sum", 0)
        ranks.append(builder.graph(f"rank {rank}"))
    folded, alone = (
        armillary.simulate(Trace.from_ranks(ranks), platform, fold=each) for each in (True, False)
    )
    assert folded.finish_ticks.tolist() == alone.finish_ticks.tolist()


def test_splits_need_one_number_per_member() -> None:
    with pytest.raises(InputError, match=r"rank 0 has comm_splits .*; expected 8 numbers of bytes"):
        armillary.simulate(exchange(np.ones((8, 7), np.int64)), machine(MACHINES[0]))


def test_splits_are_needed_on_every_member() -> None:
    trace = exchange(np.ones((8, 8), np.int64))
    plain = GraphBuilder(rank=7)
    plain.all_to_all("exchange", 8)
    graphs = [*(trace.graph(rank) for rank in range(7)), plain.graph("rank 7")]
    with pytest.raises(InputError, match="rank 7 has no comm_splits where other members"):
        armillary.simulate(Trace.from_ranks(graphs), machine(MACHINES[0]))
