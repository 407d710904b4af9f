"""What happens first within a tick: runs of ASTRA-sim whose ticks hang on it, and what the fast path knows of it.

Ticks are from recorded runs of that program (groups mdsmall and themis of the oracle); the ids name them.
"""

from __future__ import annotations

from typing import Any

import pytest

import armillary
from armillary.engine.astra_sim import settled
from armillary.trace import CollectiveType, GraphBuilder, Trace

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
TREES = [
    32420, 34098, 33512, 34098, 34098, 35776, 35190, 35776, 33512, 35190, 34604, 35190, 34098, 35776, 35190, 35776,
]  # fmt: skip
Machine = tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]


def machine(
    topology: list[str],
    sizes: list[int],
    bandwidth: list[float],
    algorithms: list[str],
    *cli: str,
    **system: Any,
) -> Machine:
    """A machine of the recorded runs; latencies and policies are the same in all of them."""
    network = {
        "topology": topology,
        "npus_count": sizes,
        "bandwidth": bandwidth,
        "latency": [500.0] * len(sizes),
    }
    keys = {
        "scheduling-policy": "LIFO", "endpoint-delay": 10, "collective-optimization": "localBWAware",
        **{f"{kind}-implementation": algorithms for kind in KINDS}, **system,
    }  # fmt: skip
    return network, keys, cli


RUNS: dict[str, tuple[Machine, list[int], list[int]]] = {
    "mdsmall/R4R4R4/all_reduce/dbt/64K/sp16/ac4/localBWAware": (
        machine(
            ["Ring"] * 3, [4] * 3, [50.0] * 3, ["doubleBinaryTree"] * 3,
            **{"active-chunks-per-dimension": 4, "preferred-dataset-splits": 16, "local-mem-bw": 1600},
        ), [1 << 16], TREES * 4,
    ),
    "sched/W2D/all_reduce/LIFO/RG/offlineGreedy/sp64/ac4": (
        machine(
            ["Switch"] * 2, [32, 16], [250.0] * 2, ["halvingDoubling"] * 2,
            **{
                "active-chunks-per-dimension": 4, "preferred-dataset-splits": 64, "local-mem-bw": 1600,
                "intra-dimension-scheduling": "RG", "inter-dimension-scheduling": "offlineGreedy",
            },
        ), [1 << 26], ([257069] * 16 + [257113] * 16) * 16,
    ),
    "t/themis/474": (
        machine(
            ["Ring", "FullyConnected", "Switch"], [4, 4, 2], [200.0, 100.0, 50.0],
            ["ring", "direct", "halvingDoubling"], "--num-queues-per-dim=2",
            **{
                "active-chunks-per-dimension": 2, "preferred-dataset-splits": 16, "local-mem-bw": 2039,
                "intra-dimension-scheduling": "RG", "inter-dimension-scheduling": "offlineGreedy",
            },
        ), [1 << 26, 50331648], [550365] * 32,
    ),
}  # fmt: skip
"""Run -> machine, bytes of its all-reduces, and the finish tick of every rank."""


def run(machine: Machine, sizes: list[int], **options: Any) -> armillary.Timeline:
    network, system, cli = machine
    b = GraphBuilder()
    last: list[int] = []
    for size in sizes:
        last = [b.collective("c", CollectiveType.ALL_REDUCE, size, after=last)]
    npus = 1
    for size in network["npus_count"]:
        npus *= size
    return armillary.astra_sim.simulate(Trace.replicate(b.graph(), npus), system, network, cli=cli, **options)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("fold", [True, False])
def test_ticks_that_hang_on_the_order_within_a_tick(name: str, fold: bool) -> None:
    how, sizes, expected = RUNS[name]
    assert run(how, sizes, fold=fold).finish_ticks.tolist() == expected


def test_a_run_in_doubt_that_is_too_large_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settled, "MOST_EVENTS", 100)
    for how, sizes, expected in RUNS.values():
        timeline = run(how, sizes)
        assert timeline.n_ranks == len(expected)
        assert any("messages=True" in warning for warning in timeline.info["warnings"])


def test_a_memory_serves_ranks_in_the_order_in_which_their_messages_came() -> None:
    """Rank 2 gets its message first, as rank 1 was the first to compute; so it is first at the memory, not rank 0."""
    builders = [GraphBuilder() for _ in range(4)]
    first = builders[1].compute("first", duration_micros=1)
    builders[1].send(2, 1000, after=[first])
    got = builders[2].recv(1, 1000)
    first = builders[3].compute("second", duration_micros=1)
    builders[3].send(0, 1000, after=[first])
    also = builders[0].recv(3, 1000)
    builders[2].memory_load("load", 1000, ctrl_after=[got])
    builders[0].memory_load("load", 1000, ctrl_after=[also])
    trace = Trace.from_ranks([b.graph() for b in builders])
    network = {"topology": ["FullyConnected"], "npus_count": [4], "bandwidth": [50.0], "latency": [500.0]}
    memory = {"memory-type": "MEMORY_POOL", "remote-mem-latency": 100, "remote-mem-bw": 50}
    system = machine([], [], [], ["ring"], **{"preferred-dataset-splits": 1})[1]
    ends = armillary.astra_sim.simulate(trace, system, network, memory).finish_ticks.tolist()
    assert ends[0] - ends[2] == 120
