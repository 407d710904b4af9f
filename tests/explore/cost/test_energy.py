"""Energies and what follows from them, by hand; use of a timeline against sums over every rank."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary import simulate
from armillary.base.errors import InputError
from armillary.cli import main
from armillary.explore.cost import Costs, Use, energy, measures_of, use_of
from armillary.explore.cost.use import crossing
from armillary.platform import Dimension, Platform
from armillary.platform.kernels import Compute
from armillary.platform.memory import LocalMemory
from armillary.platform.model import Collectives, Npu
from armillary.platform.network import Port
from armillary.trace import GraphBuilder, NodeType, Trace

MACHINE = Platform(
    (
        Dimension("node", "FullyConnected", 4, 1.0, 0.0, Port(100.0, 100.0)),
        Dimension("pod", "Switch", 8, 1.0, 0.0, Port(10.0, 10.0)),
    )
)
USE = Use(2.0, 32, 48.0, {"bf16": 1e15, "fp32": 1e12}, 1e12, (4e9, 1e9))


def test_energy_by_time() -> None:
    costs = Costs.model_validate(
        {
            "npu": {"price": "1 kUSD", "busy": "700 W", "idle": "100 W"},
            "host": {"npus": 4, "power": "1 kW"},
            "links": {"pod": {"moved": "10 pJ", "power": "2 W"}, "node": {"link": "1 USD"}},
            "years": 1,
            "utilisation": "50 %",
            "electricity": "0.1 USD",
            "pue": 1.25,
        }
    )
    found = energy(USE, MACHINE, costs)
    busy, idle, hosts, pod = 48 * 700, (64 - 48) * 100, 8 * 1000 * 2, 1e9 * 10e-12 + 32 * 10 * 2 * 2
    assert found.total == pytest.approx(1.25 * (busy + idle + hosts + pod))
    assert found.power == pytest.approx(found.total / 2)
    assert found.missing == ("dimension node (links.node.moved, .power)",)
    measures = measures_of(USE, MACHINE, costs, tokens=1000, run_tokens=1e6)
    bought = 32 * 1000 + 32 * 100
    hourly = bought / (8766 * 0.5) + found.power / 1000 * 0.1
    assert measures == pytest.approx(
        {
            "price": bought,
            "energy": found.total,
            "power": found.power,
            "price_per_hour": hourly,
            "energy_per_token": found.total / 1000,
            "cost_per_token": hourly * 2 / 3600 / 1000,
            "run_time": 2000,
            "npu_years": 32 * 2000 / 3600 / 8766,
            "run_cost": hourly * 2000 / 3600,
            "run_energy": found.total * 1000,
        }
    )


def test_energy_by_operations() -> None:
    given = {
        "npu": {"flop": {"bf16": "1 pJ", "fp32": "10 pJ"}, "idle": "50 W"},
        "memory": {"access": "30 pJ"},
    }
    found = energy(USE, MACHINE, Costs.model_validate(given))
    assert found.total == pytest.approx(1e15 * 1e-12 + 1e12 * 10e-12 + 64 * 50 + 1e12 * 30e-12)
    with pytest.raises(InputError, match=r"npu.flop: missing key 'fp32'"):
        energy(USE, MACHINE, Costs.model_validate({"npu": {"flop": {"bf16": "1 pJ"}}}))


def test_what_is_not_said_is_no_measure() -> None:
    assert measures_of(None, MACHINE, Costs()) == {}
    assert measures_of(USE, MACHINE, None, tokens=10, run_tokens=20).keys() == {"run_time", "npu_years"}
    rent = measures_of(USE, MACHINE, Costs.model_validate({"npu": {"rent": "2 USD"}}), tokens=10)
    assert rent == pytest.approx({"price_per_hour": 64, "cost_per_token": 64 * 2 / 3600 / 10})


def step() -> Trace:
    """Two kernels that overlap on two streams, an all-reduce, and a kernel in another precision."""
    builder = GraphBuilder()
    for stream in (0, 1):
        kernel = [("is_cpu_op", "bool", False), ("num_ops", "int64", 10**6 * (stream + 1))]
        builder.add(
            f"a{stream}",
            NodeType.COMP_NODE,
            [*kernel, ("tensor_size", "uint64", 1000), ("stream", "int64", stream)],
        )
    first = builder.all_reduce("sum", 32 * 10**6)
    kernel = [("is_cpu_op", "bool", False), ("num_ops", "int64", 10**6), ("precision", "string", "fp8")]
    builder.add("b", NodeType.COMP_NODE, kernel, after=[first])
    return Trace.replicate(builder.graph("step"), ranks=32)


def test_use_is_the_sum_over_all_ranks() -> None:
    platform = replace(
        MACHINE,
        npu=Npu(peak=1e12, memory=LocalMemory(1000.0)),
        compute=Compute(model="roofline"),
        collectives=Collectives(chunks=4),
    )
    use, each = (use_of(simulate(step(), platform, fold=fold)) for fold in (True, False))
    assert use.moved == pytest.approx(each.moved) and use.busy == pytest.approx(each.busy)
    assert use.flops == {"bf16": 96e6, "fp8": 32e6}
    assert use.memory == 64e3
    # An all-reduce of D: 2 D 3/4 in the node, then 2 D/4 7/8 between nodes.
    d = 32e6
    assert use.moved == pytest.approx((32 * 2 * d * 3 / 4, 32 * 2 * d / 4 * 7 / 8), rel=1e-4)
    assert use.seconds * 32 == pytest.approx(use.busy + use.idle)
    timeline = simulate(step(), platform)
    spans = [timeline.spans(cls) for cls in range(len(timeline.finish))]
    reference = 0
    for cls, (start, end) in enumerate(spans):
        kernels = timeline.table(cls).kind == 1
        ticks: set[int] = set()
        for begin, stop in zip(start[kernels].tolist(), end[kernels].tolist(), strict=True):
            ticks |= set(range(begin, stop))
        reference += len(ticks) * int((timeline.rank_class == cls).sum())
    assert use.busy == pytest.approx(reference / 1e9)


def test_messages_count_in_every_dimension_that_they_cross() -> None:
    assert (
        crossing(0, 3, [4, 8]) == [0] and crossing(0, 8, [4, 8]) == [1] and crossing(1, 6, [4, 8]) == [0, 1]
    )
    graphs = []
    for rank in range(32):
        builder = GraphBuilder(rank=rank)
        if rank == 0:
            builder.send(5, 1000)
        elif rank == 5:
            builder.recv(0, 1000)
        graphs.append(builder.graph(f"g{rank}"))
    assert use_of(simulate(Trace.from_ranks(graphs), MACHINE)).moved == (1000.0, 1000.0)


def test_command(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        "workload: {generate: {model: llama-3-8b, batch: 8, sequence: 1024}}\n"
        "platform:\n  preset: hgx-h100\n  compute: {efficiency: 50 %}\n"
    )
    run = CliRunner().invoke(
        main,
        ["plan", "cost", str(study), "--costs", "h100", "--tokens", "1T", "--json", str(tmp_path / "o.json")],
    )
    assert run.exit_code == 0, run.output
    assert "NPUs" in run.output and "8 x $27,500.00" in run.output and "run_cost" in run.output
    assert "preset h100: 7 of 15 numbers are unverified" in run.output
    saved = json.loads((tmp_path / "o.json").read_text())
    assert saved["measures"]["price"]["value"] == pytest.approx(1.1 * (8 * 27500 + 50000))
    bad = CliRunner().invoke(main, ["plan", "cost", str(study), "--costs", "h100", "--tokens", "many"])
    assert bad.exit_code == 2
