"""Recorded runs extrapolated to other sizes, against runs that are recorded at these sizes."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary.base.errors import InputError
from armillary.convert import front_end
from armillary.convert.launch import collect_script
from armillary.lab.extrapolation import extrapolate, recognise
from armillary.lab.extrapolation.edit import with_durations, with_ints, without
from armillary.lab.extrapolation.recorded.remake import remake_recorded
from armillary.platform import load_platform
from armillary.trace import Graph, NodeType, Trace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
PROGRAM = Path(__file__).parent / "programs" / "gpt.py"
Run = tuple[int, str]
"""Ranks, and arguments of the program."""
CASES: dict[str, tuple[Run, dict[str, int], Run]] = {
    "ddp 2 to 4": ((2, "ddp"), {"dp": 4}, (4, "ddp")),
    "ddp 2 to 8": ((2, "ddp"), {"dp": 8}, (8, "ddp")),
    "fsdp2 2 to 4": ((2, "fsdp2"), {"dp": 4}, (4, "fsdp2")),
    "fsdp2 2 to 8": ((2, "fsdp2"), {"dp": 8}, (8, "fsdp2")),
    "tp 2 to 4": ((2, "tp"), {"tp": 4}, (4, "tp")),
    "tp 2 to 8": ((2, "tp"), {"tp": 8}, (8, "tp")),
    "fused tp 2 to 4": ((2, "tp fused=1"), {"tp": 4}, (4, "tp fused=1")),
    "fused tp 2 to 8": ((2, "tp fused=1"), {"tp": 8}, (8, "tp fused=1")),
    "tp x fsdp2, dp 2 to 4": ((4, "mesh"), {"dp": 4}, (8, "mesh")),
    "tp x fsdp2, tp 2 to 4": ((4, "mesh"), {"tp": 4}, (8, "mesh tp=4")),
    "1f1b x ddp, dp 2 to 4": ((4, "1f1b_ddp"), {"dp": 4}, (8, "1f1b_ddp")),
    "ddp, batch": ((2, "ddp"), {"batch": 2}, (2, "ddp batch=4")),
    "fsdp2, batch": ((2, "fsdp2"), {"batch": 2}, (2, "fsdp2 batch=4")),
    "tp, batch": ((2, "tp"), {"batch": 2}, (2, "tp batch=4")),
    "1f1b, batch": ((2, "1f1b"), {"batch": 2}, (2, "1f1b batch=4")),
    "ddp, sequence": ((2, "ddp"), {"sequence": 2}, (2, "ddp sequence=64")),
    "fsdp2, sequence": ((2, "fsdp2"), {"sequence": 2}, (2, "fsdp2 sequence=64")),
    "tp, sequence": ((2, "tp"), {"sequence": 2}, (2, "tp sequence=64")),
    "1f1b, sequence": ((2, "1f1b"), {"sequence": 2}, (2, "1f1b sequence=64")),
    "1f1b, microbatches": ((2, "1f1b"), {"microbatches": 2}, (2, "1f1b microbatches=8")),
    "1f1b x ddp, microbatches": ((4, "1f1b_ddp"), {"microbatches": 2}, (4, "1f1b_ddp microbatches=8")),
    "1f1b 2 to 4": ((2, "1f1b layers=8"), {"pp": 4}, (4, "1f1b layers=8")),
    "1f1b 2 to 8": ((2, "1f1b layers=8 microbatches=8"), {"pp": 8}, (8, "1f1b layers=8 microbatches=8")),
    "1f1b 4 to 8, microbatches": (
        (4, "1f1b layers=8"),
        {"pp": 8, "microbatches": 2},
        (8, "1f1b layers=8 microbatches=8"),
    ),
    "1f1b 2 to 4, microbatches and batch": (
        (2, "1f1b layers=8"),
        {"pp": 4, "microbatches": 2, "batch": 2},
        (4, "1f1b layers=8 microbatches=8 batch=4"),
    ),
    "fused 1f1b 2 to 4": ((2, "1f1b layers=4 fused=1"), {"pp": 4}, (4, "1f1b layers=4 fused=1")),
    "no replicas, dp added": ((1, "alone"), {"dp": 2}, (2, "ddp")),
    "two buckets, dp added": ((1, "alone hidden=256 layers=4"), {"dp": 2}, (2, "ddp hidden=256 layers=4")),
    "ddp of one, dp added": ((1, "ddp"), {"dp": 2}, (2, "ddp")),
    "1f1b, dp added": ((2, "1f1b"), {"dp": 2}, (4, "1f1b_ddp")),
    "1f1b x ddp of one, dp added": ((2, "1f1b_ddp"), {"dp": 2}, (4, "1f1b_ddp")),
    "tp, dp added": ((2, "tp"), {"dp": 2}, (4, "tp_ddp")),
    "tp 2 to 4, dp added": ((2, "tp"), {"tp": 4, "dp": 2}, (8, "tp_ddp tp=4")),
    "tp 2 to 4 and batch": ((2, "tp"), {"tp": 4, "batch": 2}, (4, "tp batch=4")),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Run], Trace]:
    """Record runs, each once."""

    @cache
    def record(run: Run) -> Trace:
        folder = tmp_path_factory.mktemp("run")
        collect_script(PROGRAM, run[1].split(), folder=folder, ranks=run[0])
        return front_end("pytorch").convert([folder]).trace

    return record


@pytest.mark.parametrize("case", CASES)
def test_as_a_run_recorded_at_that_size(case: str, recorded: Callable[[Run], Trace]) -> None:
    small, scale, large = CASES[case]
    known, axes = recognise(recorded(small))
    truth, _ = recognise(recorded(large))
    found = extrapolate(known, {axis: Fraction(value) for axis, value in scale.items()}, axes=axes)
    assert found.unclassified.operations == found.unclassified.bytes == 0
    alike(found.trace, truth)


@pytest.mark.parametrize("scale", [{"pp": 4}])
def test_a_recorded_pipeline_of_a_layer_on_each_stage_is_refused(
    scale: dict[str, int], recorded: Callable[[Run], Trace]
) -> None:
    known, axes = recognise(recorded((2, "1f1b")))
    with pytest.raises(InputError, match="expected"):
        extrapolate(known, scale, axes=axes)


@pytest.mark.parametrize("run", [(2, "1f1b layers=8"), (4, "1f1b_ddp")])
def test_put_together_as_they_were_stages_are_what_they_were(
    run: Run, recorded: Callable[[Run], Trace]
) -> None:
    known, _ = recognise(recorded(run))
    made = remake_recorded(known, None, Fraction(1), lambda *_: None, lambda _: None)
    for rank in range(known.n_ranks):
        ours, theirs = made.graph(rank), known.graph(rank)
        assert communication(ours) == communication(theirs)
        assert Counter(zip(ours.names(), ours.ints("tensor_size").tolist(), strict=True)) == Counter(
            zip(theirs.names(), theirs.ints("tensor_size").tolist(), strict=True)
        )
    assert modelled_step(made) == pytest.approx(modelled_step(known), rel=0.005)


def test_replicas_are_added_to_the_stages_that_are_made(recorded: Callable[[Run], Trace]) -> None:
    """PyTorch itself fails to rebuild DDP's buckets in four stages, so the truth is added to, too."""
    (small, axes), (large, more) = (recognise(recorded((ranks, "1f1b layers=8"))) for ranks in (2, 4))
    ours = extrapolate(small, {"pp": 4, "dp": 2}, axes=axes).trace
    theirs = extrapolate(large, {"dp": 2}, axes=more).trace
    alike(ours, theirs)


def communication(graph: Graph) -> Counter[tuple[int, int, int]]:
    """Count collectives and messages by type, kind and bytes."""
    kinds = graph.ints("comm_type", -1)
    rows = zip(graph.types.tolist(), kinds.tolist(), graph.ints("comm_size").tolist(), strict=True)
    return Counter((kind, what, size) for kind, what, size in rows if kind != NodeType.COMP_NODE)


def operators(graph: Graph) -> Counter[tuple[str, int]]:
    """Count operators by name and operations; but for copies and fills, which depend on the host's memory."""
    return Counter(row for row in zip(graph.names(), graph.ints("num_ops").tolist(), strict=True) if row[1])


def moved(graph: Graph) -> dict[tuple[str, int], int]:
    """Add up the bytes of operators by name and operations."""
    found: Counter[tuple[str, int]] = Counter()
    for name, operations, size in zip(
        graph.names(), graph.ints("num_ops").tolist(), graph.ints("tensor_size").tolist(), strict=True
    ):
        if operations:
            found[name, operations] += size
    return found


def alike(ours: Trace, theirs: Trace) -> None:
    """Check that all ranks communicate as much, and run the same operators, and that the step takes as long."""
    assert ours.n_ranks == theirs.n_ranks
    for rank in range(theirs.n_ranks):
        a, b = ours.graph(rank), theirs.graph(rank)
        assert communication(a) == communication(b)
        for name in ("num_ops", "tensor_size"):
            # Copies of the parts of all members are more, and smaller, for more of them.
            assert a.ints(name).sum() == pytest.approx(b.ints(name).sum(), rel=1e-4), name
        assert operators(a) == operators(b)
        assert moved(a) == pytest.approx(moved(b), rel=1e-3)
    assert modelled_step(ours) == pytest.approx(modelled_step(theirs), rel=0.01)


def modelled_step(trace: Trace) -> int:
    """Simulate with a model of compute: what operators took on a busy machine of many processes is noise."""
    graphs = []
    for graph in trace.graphs:
        bare = with_durations(graph, np.zeros(graph.n_nodes, np.int64))
        bare = without(bare, "duration_ns", np.ones(graph.n_nodes, np.bool_))
        works = (graph.ints("num_ops") > 0) | (graph.ints("tensor_size") > 0)
        graphs.append(with_ints(bare, {"is_cpu_op": np.where(works, 0, graph.ints("is_cpu_op"))}))
    network = [{"topology": "Switch", "size": trace.n_ranks, "bandwidth": "10 GB/s", "latency": "1 us"}]
    npu = {"peak": "100 GFLOP/s", "memory": {"bandwidth": "10 GB/s"}}
    platform = load_platform({"network": network, "npu": npu, "compute": {"roofline": True}})
    return armillary.simulate(replace(trace, graphs=tuple(graphs)), platform).total_ticks
