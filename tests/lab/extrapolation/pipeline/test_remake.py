"""Stages put together from the layers of others, against generated ones; layers that are named and that are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_runs import MIXED, TINY, run, step, totals, written

from armillary.base.errors import InputError
from armillary.lab.extrapolation import extrapolate, recognise
from armillary.lab.extrapolation.edit import with_ints, without
from armillary.lab.extrapolation.kernels import Nodes
from armillary.trace import GraphBuilder, Trace
from armillary.trace.axis_sets import grid_of

PLANS: list[dict[str, Any]] = [
    *({"data": {"sharding": name}} for name in ("ddp", "zero-1", "zero-2", "fsdp")),
    {"data": {"sharding": "fsdp", "prefetch": 2, "limit": 3}},
    {"data": {"sharding": "fsdp", "reshard": False}},
    {"data": {"sharding": "hsdp", "shard": 2}},
    {"pipeline": {"schedule": "gpipe"}},
    {"pipeline": {"schedule": "zero-bubble"}},
    {"pipeline": {"schedule": "interleaved", "virtual": 2}},
    {"pipeline": {"schedule": "interleaved", "virtual": 2}, "data": {"sharding": "zero-2"}},
    {"pipeline": {"schedule": "interleaved", "virtual": 2}, "data": {"sharding": "fsdp"}},
    {"pipeline": {"schedule": "interleaved", "virtual": 2}, "model": MIXED, "parallel": {"ep": 2}},
    {"recompute": "full"},
    {"model": MIXED},
    {"model": MIXED, "parallel": {"ep": 4}},
    {"model": TINY.model_copy(update={"tied": True})},
    {"parallel": {"cp": 2}},
    {"optimizer": "none"},
]


def alike(made: Trace, truth: Trace) -> None:
    """Check that two runs are the same to the byte and to the tick."""
    assert totals(made) == totals(truth)
    assert step(made).finish.tolist() == step(truth).finish.tolist()


@pytest.mark.parametrize("more", PLANS, ids=str)
def test_other_numbers_of_stages_and_microbatches(more: dict[str, Any]) -> None:
    def of(pp: int, batches: int = 4) -> Trace:
        return run(2, pp, 4, batches, **more)

    alike(extrapolate(written(of(2)), {"pp": 4}).trace, of(4))
    alike(extrapolate(written(of(4)), {"pp": 2}).trace, of(2))
    alike(extrapolate(written(of(2)), {"microbatches": 2}).trace, of(2, 8))


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zero-bubble", "interleaved"])
def test_first_stages_without_tensor_parallelism(schedule: str) -> None:
    virtual = 2 if schedule == "interleaved" else 1
    few, many = (run(1, pp, 2, 8, pipeline={"schedule": schedule, "virtual": virtual}) for pp in (2, 4))
    alike(extrapolate(written(few), {"pp": 4}).trace, many)
    alike(extrapolate(extrapolate(written(few), {"pp": 4}).trace, {"pp": 2}).trace, few)


def bare(trace: Trace, *, names: bool) -> Trace:
    """Return a trace without layers and microbatches, and without names if so."""
    graphs = []
    for graph in trace.graphs:
        every = np.ones(graph.n_nodes, np.bool_)
        made = without(without(graph, "layer", every), "micro_batch", every)
        if not names:
            columns = replace(made.columns, rows=made.columns.rows.copy())
            columns.rows[4, 1:-1] = 0
            made = type(made)(columns, 0, made.source)
        graphs.append(made)
    return replace(trace, graphs=tuple(graphs))


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_layers_that_are_not_named_are_found(sharding: str, names: bool) -> None:
    data = {"sharding": sharding}
    made = extrapolate(written(bare(run(2, 2, 2, data=data), names=names)), {"pp": 4})
    alike(made.trace, run(2, 4, 2, data=data))
    assert "pipeline: layers are what repeats between the messages of a microbatch" in {
        a.rule for a in made.assumptions
    }


@pytest.mark.parametrize("sequence", [True, False])
@pytest.mark.parametrize(("sharding", "dp"), [("ddp", 1), ("ddp", 2), ("zero-2", 2), ("fsdp", 2)])
def test_sums_of_partial_gradients_are_found_without_names(sharding: str, dp: int, sequence: bool) -> None:
    trace = written(run(2, 2, dp, data={"sharding": sharding}, parallel={"sequence": sequence}))
    for graph, other in zip(trace.graphs, bare(trace, names=False).graphs, strict=True):
        named, nameless = (Nodes(each, grid_of(trace)).partial for each in (graph, other))
        assert named.any() == sequence
        assert np.array_equal(named, nameless)


def test_a_layer_that_changes_from_microbatch_to_microbatch_is_refused() -> None:
    trace = written(run(2, 2, 2))
    graph = trace.graphs[0]
    size = graph.ints("tensor_size").copy()
    size[int(np.flatnonzero(graph.types == 4)[-5])] += 1
    wrong = replace(trace, graphs=(with_ints(graph, {"tensor_size": size}), *trace.graphs[1:]))
    with pytest.raises(InputError, match="expected all microbatches to be alike"):
        extrapolate(wrong, {"pp": 4})


def test_an_order_of_its_own_is_refused() -> None:
    with pytest.raises(InputError, match="would differ; expected a trace whose layers"):
        extrapolate(written(run(1, 2, 2, pipeline={"overlap": True})), {"pp": 4})
    with pytest.raises(InputError, match="6 microbatches: schedule interleaved expects a multiple of pp 4"):
        extrapolate(written(run(1, 2, 2, 6, pipeline={"schedule": "interleaved", "virtual": 2})), {"pp": 4})
    with pytest.raises(
        InputError, match="pp 8 x virtual 2 = 16 stages: expected at most the model's 8 layers"
    ):
        extrapolate(written(run(1, 2, 2, 8, pipeline={"schedule": "interleaved", "virtual": 2})), {"pp": 8})
    builders = [GraphBuilder(rank=rank) for rank in range(2)]
    builders[0].send(1, 64, after=[builders[0].compute("a", flops=10)])
    builders[1].compute("b", flops=20, after=[builders[1].recv(0, 64)])
    with pytest.raises(InputError, match="begins a task in which 1 layers are found"):
        extrapolate(recognise(Trace.from_ranks([b.graph() for b in builders]))[0], {"pp": 4})
