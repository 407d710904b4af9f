"""Tokens: a graph of tokens is the graph they came from, as far as engines read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.base.jit import Mode
from armillary.convert import front_end
from armillary.lab.learned.graphs import Layouts, graph_of_tokens
from armillary.lab.learned.reference_kernel import ENDS, EVERY
from armillary.lab.learned.tokens import Tokens, parents_of, same, tokens_of
from armillary.lab.learned.vocabulary import Vocabulary, split_name
from armillary.platform.kernels import Compute
from armillary.platform.memory import LocalMemory, RemoteMemory
from armillary.platform.model import Npu, Platform
from armillary.platform.network import Dimension
from armillary.trace import Graph, GraphBuilder, NodeType, Trace
from armillary.workload.generate import generate
from armillary.workload.models.decoder_parts import Attention, Experts, Mlp
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Data, Offload, Parallel, Pipeline, Plan

TINY = Decoder(
    name="tiny", layers=4, hidden=64, vocabulary=512, context=32, tied=True, norm="rms", activation="swiglu",
    attention=Attention(heads=8, kv_heads=4), mlp=Mlp(size=128),
)  # fmt: skip
SPARSE = TINY.model_copy(update={"experts": Experts(count=4, top_k=2, size=64, shared=1)})


def machine(npus: int) -> Platform:
    npu = Npu(1e12, LocalMemory(100.0))
    network = (Dimension("switch", "Switch", npus, 50.0, 100.0),)
    return Platform(network, npu, Compute("roofline"), remote_memory=RemoteMemory("per-npu", bandwidth=100))


def again(trace: Trace) -> Trace:
    """The trace, by way of tokens."""
    vocabulary = Vocabulary()
    sequences = [tokens_of(graph, vocabulary) for graph in trace.graphs]
    layouts = Layouts.of(Vocabulary.from_json(json.loads(json.dumps(vocabulary.to_json())), "model"))
    made = [
        graph_of_tokens(each, layouts, graph.source)
        for each, graph in zip(sequences, trace.graphs, strict=True)
    ]
    return Trace(tuple(made), trace.rank_graph, trace.grid)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    tp, cp, pp = (draw(st.sampled_from(sizes)) for sizes in ((1, 2, 4), (1, 2), (1, 2)))
    schedules = ("gpipe", "1f1b", "zero-bubble", "interleaved")[: 4 if pp > 1 else 3]
    schedule = draw(st.sampled_from(schedules))
    return Plan(
        ranks=tp * cp * pp * 2, batch=4 * draw(st.integers(1, 4)), parallel=Parallel(tp=tp, cp=cp, pp=pp),
        pipeline=Pipeline(schedule=schedule, virtual=2 if schedule == "interleaved" else 1),
        data=Data(sharding=draw(st.sampled_from(("ddp", "zero-1", "zero-2", "fsdp"))), bucket="8 KiB"),
        recompute=draw(st.sampled_from(("none", "selective", "full"))),
        offload=Offload(optimizer=draw(st.sampled_from((None, 0.5)))),
    )  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(plans(), st.booleans())
def test_the_same_ticks(plan: Plan, experts: bool) -> None:
    trace = generate(SPARSE if experts else TINY, plan)
    made = again(trace)
    for one, other in zip(trace.graphs, made.graphs, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one.parents(), other.parents(), strict=False))
        assert one.names() == other.names()
        assert [one.attrs(at) for at in range(one.n_nodes)] == [
            other.attrs(at) for at in range(other.n_nodes)
        ]
    results = [armillary.simulate(each, machine(plan.ranks), profile="physical") for each in (trace, made)]
    assert results[0].total_ticks == results[1].total_ticks


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_dependencies(data: st.DataObject) -> None:
    """Compiled and interpreted kernels agree on any graph, and references lose nothing."""
    builder = GraphBuilder(rank=0)
    for at in range(data.draw(st.integers(0, 25))):
        after = sorted(data.draw(st.sets(st.integers(0, at - 1), max_size=6))) if at else []
        name = data.draw(st.sampled_from(("a", "b", "c 1", "c 2")))
        attrs = [("micro_batch", "int32", data.draw(st.integers(-1, 2)))]
        kind = data.draw(
            st.sampled_from((NodeType.COMP_NODE, NodeType.COMM_COLL_NODE, NodeType.MEM_LOAD_NODE))
        )
        builder.add(name, kind, attrs, after=after)
    graph, vocabulary = builder.graph(), Vocabulary()
    tokens: Tokens = tokens_of(graph, vocabulary)
    assert same(tokens, tokens_of(graph, vocabulary, mode="interpreted"))
    edges = pairs(*graph.parents())
    for mode in ("compiled", "interpreted"):
        assert pairs(*parents_of(tokens, vocabulary, mode=mode)) == edges


def pairs(ptr: Any, parent: Any) -> set[tuple[int, int]]:
    """Every (node, parent)."""
    return set(zip(np.repeat(np.arange(len(ptr) - 1), np.diff(ptr)).tolist(), parent.tolist(), strict=True))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("core.attend 12", ("core.attend #", 12)),
        ("add", ("add", 0)),
        ("a 007", ("a 007", 0)),
        ("a1b2", ("a#b2", 1)),
    ],
)
def test_names(name: str, found: tuple[str, int]) -> None:
    assert split_name(name) == found


def test_what_tokens_cannot_say() -> None:
    builder = GraphBuilder()
    builder.add("to all", NodeType.COMM_COLL_NODE, [("comm_splits", "int64_list", [1, 2])])
    with pytest.raises(InputError, match="comm_splits, expected even parts"):
        tokens_of(builder.graph(), Vocabulary())


def test_nodes_may_wait_for_greater_ids() -> None:
    """As in traces that Chakra's tools linked."""
    builder = GraphBuilder()
    last, first, middle = (builder.compute(name) for name in ("last", "first", "middle"))
    builder.wait_for(last, after=middle)
    builder.wait_for(middle, after=first)
    vocabulary = Vocabulary()
    tokens = tokens_of(builder.graph(), vocabulary)
    assert [vocabulary.symbols[at].name for at in tokens.symbols] == ["first", "middle", "last"]
    assert pairs(*parents_of(tokens, vocabulary)) == {(1, 0), (2, 1)}


@pytest.mark.shared
def test_a_measured_trace(shared: Path) -> None:
    trace = front_end("pytorch").convert([shared / "traces/torch_cpu/tp2"]).trace
    made = again(trace)
    results = [armillary.simulate(each, machine(2), profile="physical") for each in (trace, made)]
    assert results[0].total_ticks == results[1].total_ticks > 0


@pytest.mark.parametrize("mode", ["compiled", "interpreted"])
def test_gradients_of_all_microbatches_are_named_by_their_places(mode: Mode) -> None:
    """As many references for any number of microbatches: of the latest bucket, and of the last places there are."""
    lists = []
    for batches in (3, 5):
        graph, vocabulary = _summed(batches), Vocabulary()
        tokens = tokens_of(graph, vocabulary, mode=mode)
        ptr, parents = parents_of(tokens, vocabulary, mode=mode)
        ours, theirs = graph.parents()
        assert np.array_equal(ptr, ours)
        assert np.array_equal(parents, theirs)
        buckets = np.flatnonzero([vocabulary.symbols[at].name == "bucket" for at in tokens.symbols])
        lists.append(
            [tokens.ref_form[tokens.ref_ptr[at] : tokens.ref_ptr[at + 1]].tolist() for at in buckets]
        )
    assert lists[0] == lists[1]
    assert {EVERY, ENDS} <= {form for each in lists[0] for form in each}


def _summed(batches: int) -> Graph:
    """Three layers, whose weights' gradients are summed over microbatches, in two buckets."""
    builder = GraphBuilder()
    weights: dict[int, list[int]] = {0: [], 1: [], 2: []}
    norms: dict[int, list[int]] = {0: [], 1: [], 2: []}

    def add(name: str, batch: int, after: list[int]) -> int:
        return builder.add(name, 4, [("micro_batch", "int32", batch)], after=after)

    for batch in range(batches):
        forward = [add("norm", batch, []) for _ in range(3)]
        for layer in (2, 1, 0):
            norms[layer].append(add("norm", batch, forward[:1]))
            weights[layer].append(add("weight", batch, forward[:1]))
            if batch == batches - 1 and layer == 1:
                add("bucket", batch, sorted(each for at in (2, 1) for each in (*norms[at], *weights[at])))
    add("bucket", batches - 1, sorted((*norms[0], *weights[0])))
    return builder.graph()
