"""Rules that are found: put into every rank again they give the trace, and they name the axes."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import MIXED, TINY, run, step, written

from armillary.base.errors import InputError
from armillary.lab.extrapolation import recognise, recognise_one
from armillary.lab.extrapolation.mesh_dims import grid_of_mesh_dims, mesh_dims_of
from armillary.trace import GraphBuilder, Trace
from armillary.trace.axis_sets import grid_of
from armillary.trace.expand import expand


@given(st.lists(st.integers(2, 4), min_size=1, max_size=3), st.data())
@settings(max_examples=50, deadline=None)
def test_mesh_dims_of_a_group_are_those_it_was_made_of(sizes: list[int], data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1))
    members = [
        sum(place * prod(sizes[:mesh_dim]) for mesh_dim, place in enumerate(places))
        for places in product(*(range(size) if d in chosen else (0,) for d, size in enumerate(sizes)))
    ]
    mesh_dims = mesh_dims_of(members)
    assert mesh_dims is not None
    slow = {sum(i * stride for i, (stride, _) in zip(places, mesh_dims, strict=True))
            for places in product(*(range(size) for _, size in mesh_dims))}  # fmt: skip
    assert slow == set(members)


def test_no_mesh_dims() -> None:
    assert mesh_dims_of([0, 1, 3]) is None
    assert mesh_dims_of([0, 1, 2, 5]) is None
    with pytest.raises(InputError, match="groups of 2 and of 3"):
        grid_of_mesh_dims(12, [((1, 2),), ((1, 3),)], [])


@pytest.mark.parametrize(
    "trace",
    [
        run(2, 2, 2),
        run(2, 4, 2, data={"sharding": "fsdp"}),
        run(2, 2, 4, data={"sharding": "hsdp", "shard": 2}),
        run(1, 2, 2, parallel={"cp": 4}),
        run(2, 1, 8, model=MIXED, parallel={"ep": 4}),
        run(2, 4, 1, model=TINY.model_copy(update={"tied": True})),
        run(1, 4, 2, pipeline={"schedule": "interleaved", "virtual": 2}),
    ],
)
def test_rules_give_every_rank_back(trace: Trace) -> None:
    given = expand(trace)
    again = expand(recognise(given)[0])
    for rank in range(trace.n_ranks):
        one, other = given.graph(rank), again.graph(rank)
        assert one.types.tolist() == other.types.tolist()
        assert one.data_deps.tolist() == other.data_deps.tolist()
        for name in ("comm_src", "comm_dst", "comm_size", "comm_tag", "num_ops"):
            assert one.ints(name, -1).tolist() == other.ints(name, -1).tolist()
    assert step(recognise(given)[0]).total_ticks == step(given).total_ticks


@pytest.mark.parametrize(
    ("trace", "axes"),
    [
        (run(2, 2, 4), {"tp": 2, "dp": 4, "pp": 2}),
        (run(2, 2, 4, parallel={"sequence": False}), {"tp": 2, "dp": 4, "pp": 2}),
        (run(1, 1, 4, data={"sharding": "fsdp"}), {"dp": 4}),
        (run(4, 1, 1), {"tp": 4}),
        (run(2, 1, 4, data={"overlap": False}), {"tp": 2, "dp": 4}),
        (run(2, 1, 4, batches=1, data={"sharding": "zero-1", "overlap": False}), {"tp": 2, "dp": 4}),
        (run(2, 1, 2, parallel={"cp": 2}), {"tp": 2, "cp": 2, "dp": 2}),
        (run(2, 1, 2, parallel={"cp": 2, "context": "all-gather"}), {"tp": 2, "cp": 2, "dp": 2}),
        (run(2, 1, 8, model=MIXED, parallel={"ep": 4}), {"tp": 2, "ep": 4, "dp": 8}),
        (run(1, 4, 2, parallel={"order": "tp-cp-ep-pp-dp"}), {"pp": 4, "dp": 2}),
    ],
)
def test_axes_are_found(trace: Trace, axes: dict[str, int]) -> None:
    _, evidence = recognise(expand(trace))
    assert {each.role: each.size for each in evidence} == axes


def test_axes_that_are_told() -> None:
    trace = expand(run(2, 1, 4))
    _, evidence = recognise(trace, axes={"dp": 2, "tp": 4})
    assert (evidence[0].role, evidence[0].size, evidence[0].reason) == ("dp", 2, "as told")
    with pytest.raises(InputError, match="= 4 ranks; expected 8"):
        recognise(trace, axes={"dp": 2, "tp": 2})
    with pytest.raises(InputError, match="no axis 'xp'"):
        recognise(trace, axes={"xp": 8})
    _, evidence = recognise(trace, groups={"cp": 1})
    assert "cp" in {each.role for each in evidence}


def test_one_rank_stands_for_all() -> None:
    trace = run(2, 1, 4, data={"sharding": "zero-1"})
    all_of_it = expand(trace)
    for rank in (0, 5):
        made, _ = recognise_one(all_of_it.graph(rank), rank, 8)
        assert step(made).total_ticks == step(trace).total_ticks
    with pytest.raises(InputError, match="stage of a pipeline"):
        recognise_one(expand(run(1, 2, 2)).graph(0), 0, 4)


def test_ranks_without_a_rule_are_refused() -> None:
    builders = [GraphBuilder(rank=rank) for rank in range(3)]
    for rank, builder in enumerate(builders):
        builder.send((rank + 1) % 3 if rank else 2, 8)
        builder.compute("same", flops=5)
    with pytest.raises(InputError, match="no common rule"):
        recognise(Trace.from_ranks([builder.graph() for builder in builders]))


def test_written_is_by_rules() -> None:
    assert written(run(2, 2, 2)).grid is not None
    assert len(written(run(2, 2, 2)).graphs) == 2


def test_groups_of_one_rank_are_not_that_of_all() -> None:
    """Such as those of DDP with a single replica of each stage."""
    graphs = []
    for rank in range(2):
        builder = GraphBuilder(rank=rank)
        if rank == 0:
            builder.send(1, 4096)
        else:
            builder.recv(0, 4096)
        builder.all_reduce("gradients", 1 << 20 if rank else 1 << 19, group=str(10 + rank))
        graphs.append(builder.graph())
    made, _ = recognise(Trace(tuple(graphs), np.arange(2, dtype=np.int32)), given={10: (0,), 11: (1,)})
    grid = grid_of(made)
    assert [grid.members(graph.strings("pg_name")[1][-1]).tolist() for graph in made.graphs] == [
        [[0], [1]]
    ] * 2
