"""Real PyTorch runs: they are recognised, and what becomes of them is sane."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_runs import totals

import armillary
from armillary.base.errors import InputError
from armillary.convert import front_end
from armillary.lab.extrapolation import extrapolate, recognise, recognise_one
from armillary.platform import load_platform
from armillary.trace import Graph, Trace
from armillary.trace.graph import duration_ns


def read(shared: Path, name: str) -> Trace:
    return front_end("pytorch").convert([shared / "traces/torch_cpu" / name]).trace


def ticks(trace: Trace, bandwidth: str = "10 GB/s") -> int:
    network = [{"topology": "Switch", "size": trace.n_ranks, "bandwidth": bandwidth, "latency": "5 us"}]
    return armillary.simulate(trace, load_platform({"network": network})).total_ticks


def gemms(graph: Graph) -> list[tuple[int, ...]]:
    """Return m, n and k of every GEMM."""
    codes, lists = graph.int_lists("gemm")
    return [tuple(lists[code][2:]) for code in codes.tolist() if code >= 0]


def test_ddp(shared: Path) -> None:
    trace = read(shared, "ddp4")
    known, axes = recognise(trace)
    assert [(each.role, each.size) for each in axes] == [("dp", 4)]
    assert ticks(known) == ticks(trace)
    steps = [ticks(trace)]
    for dp in (16, 64):
        made = extrapolate(known, {"dp": dp}).trace
        assert totals(made) == {name: value * dp / 4 for name, value in totals(trace).items()}
        steps.append(ticks(made))
    assert steps == sorted(steps)
    assert steps[-1] < 1.01 * steps[0]
    batches = [totals(extrapolate(known, {"batch": factor}).trace) for factor in (1, 2, 4)]
    assert batches[0]["num_ops"] < batches[1]["num_ops"] < batches[2]["num_ops"]
    assert batches[1]["num_ops"] == pytest.approx(2 * batches[0]["num_ops"], rel=0.01)
    assert batches[2]["comm_size"] == batches[0]["comm_size"]


def test_fsdp(shared: Path) -> None:
    trace = read(shared, "fsdp4")
    known, axes = recognise(trace)
    assert [(each.role, each.size) for each in axes] == [("dp", 4)]
    made = extrapolate(known, {"dp": 64}).trace
    size, kind = (trace.graphs[0].ints(name, -1) for name in ("comm_size", "comm_type"))
    grown = made.graphs[0].ints("comm_size")
    assert (grown[kind == 7] == size[kind == 7]).all()
    assert (grown[kind == 2] == np.rint(size[kind == 2] / 16)).all()


def test_tp(shared: Path) -> None:
    trace = read(shared, "tp2")
    known, axes = recognise(trace)
    assert [(each.role, each.size) for each in axes] == [("tp", 2)]
    work = [totals(known)["num_ops"] / 2]
    for tp in (4, 8):
        made = extrapolate(known, {"tp": tp}).trace
        work.append(totals(made)["num_ops"] / tp)
        assert totals(made)["comm_size"] / tp == totals(known)["comm_size"] / 2
        assert duration_ns(made.graphs[0]).sum() < duration_ns(known.graphs[0]).sum()
    assert work == sorted(work, reverse=True)
    made = extrapolate(known, {"tp": 4}).trace
    changed = {
        (before, after)
        for graph, grown in zip(known.graphs, made.graphs, strict=True)
        for before, after in zip(gemms(graph), gemms(grown), strict=True)
        if before != after
    }
    # Tokens 256, width 128, 512 / 2 of the MLP to a rank; the two gradients of weights are one the other turned.
    assert changed >= {((256, 256, 128), (256, 128, 128)), ((256, 128, 256), (256, 128, 128))}
    assert all(128 in after for _, after in changed) and not any(64 in after for _, after in changed)
    # What is not divided stays: the steps from 2 to 4 and from 4 to 8 ranks are as 2 to 1.
    assert work[0] - work[1] == pytest.approx(2 * (work[1] - work[2]), rel=0.01)


WEIGHTS = 1_063_680
"""Of the model of collect_traces.py, and of its four blocks."""
BLOCKS = 4 * 198_272


@pytest.mark.parametrize(
    ("name", "axis", "whole"),
    [
        ("ddp4", "dp", 2 * WEIGHTS),
        # What is gathered twice, once and scattered; padding makes one row of positions one for each of 4 ranks.
        ("fsdp4", "dp", 3 * BLOCKS + 2 * (WEIGHTS - BLOCKS + 3 * 64 * 128)),
        ("tp2", "tp", 2 * 8 * 4 * 64 * 128),
    ],
)
@pytest.mark.parametrize("size", [8, *(pytest.param(size, marks=pytest.mark.slow) for size in (64, 256))])
def test_a_rank_sends_what_a_ring_sends(shared: Path, name: str, axis: str, whole: int, size: int) -> None:
    known = recognise(read(shared, name))[0]
    made = extrapolate(known, {axis: size}).trace
    network = [{"topology": "Ring", "size": size, "bandwidth": "10 GB/s", "latency": "5 us"}]
    found = armillary.simulate(made, load_platform({"network": network}))
    sent = found.traffic()[:, :, 0].sum(1)
    assert sent == pytest.approx(4 * whole * (size - 1) / size, rel=1e-3)
    assert 0.9 * ticks(known) < found.total_ticks < 1.1 * ticks(known)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddp4", "fsdp4", "tp2"])
def test_kernels_take_as_long_as_there_are_samples(shared: Path, name: str) -> None:
    """The host's own time between them stays, so a step of four times the samples takes less than that as long."""
    known = recognise(read(shared, name))[0]
    made = extrapolate(known, {"batch": 4}).trace
    before, after = (
        sum(int(duration_ns(graph)[graph.ints("num_ops") > 0].sum()) for graph in trace.graphs)
        for trace in (known, made)
    )
    assert after == pytest.approx(4 * before, rel=0.1)
    assert 1.5 * ticks(known) < ticks(made) < 4 * ticks(known)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "axis", "size"), [("ddp4", "dp", 4), ("fsdp4", "dp", 4), ("tp2", "tp", 2)])
def test_one_rank_stands_for_all(shared: Path, name: str, axis: str, size: int) -> None:
    trace = read(shared, name)
    known, _ = recognise_one(trace.graphs[0], 0, size, axes={axis: size})
    made = extrapolate(known, {axis: 64}).trace
    every = extrapolate(recognise(trace)[0], {axis: 64}).trace
    assert made.n_ranks == every.n_ranks == 64
    for what in ("num_ops", "comm_size"):
        assert totals(made)[what] == pytest.approx(totals(every)[what], rel=1e-3)


def test_pp_is_recognised_but_not_remade(shared: Path) -> None:
    known, axes = recognise(read(shared, "pp2"))
    assert [(each.role, each.size) for each in axes] == [("pp", 2)]
    with pytest.raises(InputError, match="expected"):
        extrapolate(known, {"pp": 4})
