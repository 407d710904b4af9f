"""The closing check names what makes a replay differ from its recording."""

from __future__ import annotations

from typing import Any

import pytest

from armillary.convert.pytorch.closing import close, statements
from armillary.convert.pytorch.job import convert_job
from armillary.convert.pytorch.rank import Rank, build
from armillary.trace import Graph, NodeType
from armillary.trace.node import graph_of, nodes_of
from tests.convert.pytorch.recording import Recording

US = 1000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def converted(change: dict[str, int]) -> tuple[Rank, Graph]:
    """Return a rank with kernels, and its graph with other durations (ns) of some nodes."""
    rec = Recording()
    rec.op("step", 0, 1000 * US, annotation=True)
    rec.launch(20 * US, 30 * US, (40 * US, 400 * US), name="gemm")
    rec.launch(40 * US, 50 * US, (400 * US, 600 * US), name=NCCL)
    rec.call("cudaDeviceSynchronize", 60 * US, 610 * US)
    graph = convert_job([rec.linked()]).trace.graph(0)
    nodes = nodes_of(graph)
    for node in nodes:
        if node.name in change:
            node.attrs = [
                (name, kind, change[node.name] if name == "duration_ns" else value)
                for name, kind, value, *_ in node.attrs
            ]
    return build(rec.linked()), graph_of(nodes, graph.source, metadata=graph.metadata)


def test_a_replay_like_the_recording_needs_no_word() -> None:
    rank, graph = converted({})
    facts, wrong = close(rank, graph)
    assert (facts["recorded_ns"], facts["replayed_ns"]) == (1000 * US, 1000 * US)
    assert facts["communication_kernels"] == 1
    assert wrong == []


@pytest.mark.parametrize(("length", "word"), [(2000 * US, "late"), (0, "early")])
def test_a_replay_that_is_off_names_the_node(length: int, word: str) -> None:
    rank, graph = converted({"gemm": length})
    facts, (message,) = close(rank, graph)
    assert facts["replayed_ns"] != facts["recorded_ns"]
    assert "'gemm'" in message
    assert word in message


def test_a_communication_kernel_that_became_something_else_is_named() -> None:
    rank, graph = converted({})
    nodes = nodes_of(graph)
    for node in nodes:
        if node.name == NCCL:
            node.type = NodeType.COMP_NODE
    facts, (message,) = close(rank, graph_of(nodes, "rank 0"))
    assert facts["communication_kernels"] == 1
    assert NCCL in message


def test_every_rank_is_stated_and_of_many_the_worst() -> None:
    facts: list[dict[str, Any]] = [
        {"rank": rank, "recorded_ns": 1000 * US, "replayed_ns": (1000 + rank) * US} for rank in range(100)
    ]
    assert statements(facts[:2]) == [
        "rank 0: replayed 1 ms, recorded 1 ms",
        "rank 1: replayed 1.001 ms, recorded 1 ms",
    ]
    lines = statements(facts)
    assert lines[-2].startswith("rank 99:")
    assert "84 other ranks" in lines[-1]
    assert statements([{"rank": 0, "recorded_ns": None}]) == []
