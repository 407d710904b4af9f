"""Real PyTorch runs: they are recognised, and what becomes of them is sane."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_runs import totals

import armillary
from armillary.convert import front_end
from armillary.errors import InputError
from armillary.platform import load_platform
from armillary.trace import Trace
from armillary.trace.totals import duration_ns
from armillary.workload.extrapolation import extrapolate, recognise


def read(shared: Path, name: str) -> Trace:
    return front_end("pytorch").convert([shared / "traces/torch_cpu" / name]).trace


def ticks(trace: Trace, bandwidth: str = "10 GB/s") -> int:
    network = [{"topology": "Switch", "size": trace.n_ranks, "bandwidth": bandwidth, "latency": "5 us"}]
    return armillary.simulate(trace, load_platform({"network": network})).total_ticks


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
    # What is not divided stays: the steps from 2 to 4 and from 4 to 8 ranks are as 2 to 1.
    assert work[0] - work[1] == pytest.approx(2 * (work[1] - work[2]), rel=0.01)


def test_pp_is_recognised_but_not_remade(shared: Path) -> None:
    known, axes = recognise(read(shared, "pp2"))
    assert [(each.role, each.size) for each in axes] == [("pp", 2)]
    with pytest.raises(InputError, match="expected"):
        extrapolate(known, {"pp": 4})
