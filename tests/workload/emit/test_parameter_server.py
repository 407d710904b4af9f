"""Parameter servers: bytes, checks, and how long it takes when one thing is the bottleneck."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.trace import NodeType, Trace
from armillary.trace.check_ranks import check_trace
from armillary.workload.emit.parameter_server import buckets, parameter_server_trace
from armillary.workload.layers.layer import Layer, Step
from armillary.workload.layers.nets.dlrm import dlrm_layers
from armillary.workload.layers.nets.resnet import resnet_layers
from armillary.workload.models import load_model
from armillary.workload.plan.schema import Plan
from tests.engine.physical.reference.evaluate import simulate_slowly


def machine(npus: int, **other: Any) -> Any:
    return armillary.load_platform(
        {
            "platform": {
                "network": [{"topology": "Switch", "size": npus, "bandwidth": "100 GB/s", "latency": "0 ns"}],
                "npu": {"peak": "1 TFLOP/s", "memory": {"bandwidth": "1000 TB/s"}, **other.pop("npu", {})},
                "compute": {"roofline": True},
                **other,
            }
        }
    )


def layer(name: str, elements: int, flops: int = 0) -> Layer:
    steps = (Step("product", flops, 8), Step("product backward", flops, 8), Step("product weight", flops, 8))
    return Layer(name, steps[:1], steps[1:2], steps[2:], {"dp+cp": elements})


def plan(workers: int, servers: int, *, microbatches: int = 1, **data: Any) -> Plan:
    iterations = data.pop("iterations", 1)
    return Plan.model_validate(
        {
            "ranks": workers + servers,
            "batch": workers * microbatches,
            "iterations": iterations,
            "numbers": {"compute": "fp32"},
            "data": {"sharding": "parameter-server", "servers": servers, **data},
        }
    )


def messages(trace: Trace, rank: int, kind: NodeType) -> list[int]:
    graph = trace.graph(rank)
    sizes: list[int] = graph.ints("comm_size", 0)[graph.types == kind].tolist()
    return sizes


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_resnet_is_checked_and_sends_its_gradients(asynchronous, overlap):
    model = load_model("resnet-50")
    given = Plan.model_validate(
        {
            "ranks": 7,
            "batch": 24,
            "microbatch": 2,
            "iterations": 3,
            "data": {
                "sharding": "parameter-server",
                "servers": 3,
                "bucket": "4 MiB",
                "asynchronous": asynchronous,
                "overlap": overlap,
            },
        }
    )
    layers = resnet_layers(model, Plan(ranks=1, batch=2, microbatch=2))
    trace = parameter_server_trace(layers, given)
    assert not check_trace(trace).all
    elements = sum(sum(each.parameters.values()) for each in layers)
    for worker in range(4):
        assert sum(messages(trace, worker, NodeType.COMM_SEND_NODE)) == 3 * elements * 4
        assert sum(messages(trace, worker, NodeType.COMM_RECV_NODE)) == 3 * elements * 2
    pushed = [sum(messages(trace, server, NodeType.COMM_RECV_NODE)) for server in (4, 5, 6)]
    assert sum(pushed) == 4 * 3 * elements * 4
    assert max(pushed) - min(pushed) <= 4 * 3 * 4
    operations = trace.graphs[0].ints("num_ops", 0)
    # A step of no operations counts as one.
    assert sum(operations[operations > 1]) == 3 * 3 * sum(each.flops for each in layers)
    result = armillary.simulate(trace, machine(7))
    alone = armillary.simulate(trace, machine(7), fold=False)
    assert result.finish_ticks.tolist() == alone.finish_ticks.tolist()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 200))
def test_buckets_hold_every_gradient_once(sizes, servers, bucket):
    layers = [layer(f"l{n}", size) for n, size in enumerate(sizes)]
    found = list(buckets(layers, plan(2, servers, bucket=f"{bucket} B")))
    assert sum(sum(each.parts) for each in found) == sum(sizes)
    for one, other in pairwise(found):
        assert other.layers.stop == one.layers.start
    for each in found:
        assert sum(each.parts) == sum(sizes[place] for place in each.layers)
        assert 4 * sum(each.parts) >= bucket or each is found[-1]
    loads = np.sum([each.parts for each in found], axis=0) if found else np.zeros(1)
    assert loads.max() - loads.min() <= 1


@pytest.mark.parametrize(("workers", "servers"), [(4, 1), (8, 2), (6, 4), (12, 4)])
def test_ports_of_servers_are_the_bottleneck(workers, servers):
    """All gradients go in, then all weights come out: 2 x workers x bytes / (servers x bandwidth)."""
    elements = 25_000_000
    given = plan(workers, servers, bucket="10 GB", iterations=3)
    result = armillary.simulate(
        parameter_server_trace([layer("only", elements)], given), machine(workers + servers)
    )
    expected = 3 * 2 * workers * 4 * elements / servers / 100  # bytes / (100 bytes per ns)
    assert expected <= result.total_ticks <= 1.002 * expected


def test_ports_of_workers_are_the_bottleneck():
    """With more servers than workers a worker's own port is what is full."""
    given = plan(2, 6, bucket="10 GB")
    result = armillary.simulate(parameter_server_trace([layer("only", 25_000_000)], given), machine(8))
    assert result.total_ticks == pytest.approx(2 * 100_000_000 / 100, rel=2e-3)


def finishes(asynchronous: bool, **other: Any) -> list[int]:
    """Return when each of four workers ends five iterations of 3 ms of compute and little communication."""
    given = plan(4, 1, iterations=5, asynchronous=asynchronous)
    layers = [layer(name, 1000, flops=500_000_000) for name in ("one", "two")]
    result = armillary.simulate(parameter_server_trace(layers, given), machine(5, **other))
    return [int(tick) for tick in result.finish_ticks[:4]]


def test_a_straggler_holds_up_nobody_else_without_synchronisation():
    slow = {"npu": {"speed": {2: 0.25}}}
    together, apart = finishes(False, **slow), finishes(True, **slow)
    assert min(together) > 0.9 * 5 * 4 * 3_000_000
    assert apart[2] == pytest.approx(5 * 4 * 3_000_000, rel=0.01)
    for worker in (0, 1, 3):
        assert apart[worker] == pytest.approx(5 * 3_000_000, rel=0.01)


def test_slowness_by_turns_costs_less_without_synchronisation():
    """Synchronous iterations take as long as the slowest worker of each; else everyone has a mean of his own."""
    shaky = {"jitter": {"sigma": "30 %", "seed": 1}}
    assert max(finishes(True, **shaky)) < max(finishes(False, **shaky))


@pytest.mark.parametrize("workers", [2, 8])
def test_updates_for_each_worker_cost_memory_traffic(workers):
    """A synchronous server adds up gradients and updates once, an asynchronous one updates once for each worker.

    Bytes per element, in fp32 with Adam: a sum takes 12, an update 32. Where the memory of servers is the bottleneck,
    that makes asynchronous training slower; with enough bandwidth nothing does.
    """

    def ticks(asynchronous: bool, bandwidth: str) -> int:
        given = plan(workers, 2, asynchronous=asynchronous, iterations=3, bucket="10 GB")
        trace = parameter_server_trace([layer("only", 2_000_000)], given)
        found = armillary.simulate(trace, machine(workers + 2, npu={"memory": {"bandwidth": bandwidth}}))
        return int(found.total_ticks)

    assert ticks(True, "1 GB/s") / ticks(False, "1 GB/s") == pytest.approx(
        32 * workers / (12 * workers + 32), rel=0.1
    )
    assert ticks(True, "1000 TB/s") <= ticks(False, "1000 TB/s")


def test_late_worker_is_served_last():
    late = finishes(True, stragglers={1: "40 ms"})
    assert late[1] == pytest.approx(40_000_000 + 15_000_000, rel=0.01)
    assert max(late[:1] + late[2:]) == pytest.approx(15_000_000, rel=0.01)


@settings(deadline=None, max_examples=15)
@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
    st.lists(st.integers(1, 5000), min_size=1, max_size=3),
    st.sampled_from([1, 2]),
)
def test_engine_and_reference_agree(workers, servers, asynchronous, sizes, microbatches):
    layers = [layer(f"l{n}", size) for n, size in enumerate(sizes)]
    given = plan(
        workers, servers, microbatches=microbatches, asynchronous=asynchronous, iterations=2, bucket="8 KB"
    )

    def fixed(step: Step) -> list[Any]:
        return [("duration_ns", "uint64", 50 + step.bytes // 7)]

    trace = parameter_server_trace(layers, given, compute=fixed)
    platform = machine(workers + servers)
    assert not check_trace(trace).all
    result = armillary.simulate(trace, platform)
    assert result.finish_ticks.tolist() == simulate_slowly(trace, platform)[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"sharding": "ddp"}}, "sharding 'ddp': expected 'parameter-server'"),
        ({"data": {"sharding": "parameter-server", "servers": 8}}, r"servers 8: expected fewer .* \(nearest: 7\)"),
        ({"parallel": {"tp": 2}}, "tp 2: expected 1"),
        ({"parallel": {"dp": 8}}, "dp 8: expected ranks 8 - servers 2 = 6 workers"),
        ({"batch": 13}, r"batch 13: expected a multiple of 6 workers x microbatch 1 \(nearest: 12\)"),
    ],
)  # fmt: skip
def test_refused(changes, message):
    given = {"ranks": 8, "batch": 12, "data": {"sharding": "parameter-server", "servers": 2}}
    with pytest.raises(InputError, match=message):
        parameter_server_trace([layer("only", 10)], Plan.model_validate(given | changes))


def test_layers_that_communicate_are_refused():
    given = Plan.model_validate(
        {"ranks": 4, "batch": 9, "data": {"sharding": "parameter-server", "servers": 1}}
    )
    layers = dlrm_layers(load_model("dlrm-libra"), given)
    with pytest.raises(InputError, match="step 'exchange' of layer 'embedding' communicates"):
        parameter_server_trace(layers, given)


def test_one_rank_cannot_hold_the_weights_of_others() -> None:
    with pytest.raises(InputError, match="got 1 rank, expected at least 2"):
        parameter_server_trace([layer("a", 64)], plan(1, 1).model_copy(update={"ranks": 1}))
