"""Collectives in switches, message by message: what they gain over a ring, and what holds them up."""

from __future__ import annotations

from typing import Any

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.engine.common.timeline import Timeline
from armillary.platform.files.native import load_platform
from armillary.report import bound
from armillary.trace import CollectiveType, GraphBuilder, Trace

WORK = {"rate": "100 GB/s", "latency": "200 ns", "operations": 16}
KINDS = {
    "all-reduce": CollectiveType.ALL_REDUCE,
    "reduce-scatter": CollectiveType.REDUCE_SCATTER,
    "all-gather": CollectiveType.ALL_GATHER,
}


def switch(n: int, **work: Any) -> dict[str, Any]:
    one = {"topology": "Switch", "size": n, "bandwidth": "100 GB/s", "latency": "500 ns"}
    return {"network": [one | {"in_network": WORK | work}]}


def leaf_spine(leaves: int, per_leaf: int, **more: Any) -> dict[str, Any]:
    graph = {"kind": "leaf-spine", "leaves": leaves, "spines": per_leaf, "npus_per_leaf": per_leaf}
    rest = {"bandwidth": "100 GB/s", "latency": "500 ns", "in_network": WORK}
    return {"topology": graph | rest | more}


def run(
    machine: dict[str, Any],
    algorithm: str,
    kind: str = "all-reduce",
    size: int = 500_000_000,
    model: str = "flow",
    groups: dict[int, list[int]] | None = None,
    **collectives: Any,
) -> Timeline:
    platform = load_platform(machine | {"collectives": {kind: algorithm} | collectives, "groups": groups})
    graphs = []
    for rank in range(platform.npus):
        b = GraphBuilder(rank=rank)
        mine = [number for number, ranks in (groups or {}).items() if rank in ranks] if groups else [None]
        for group in mine:
            b.collective("c", KINDS[kind], size, group=group)
        graphs.append(b.graph(f"rank {rank}"))
    timeline = armillary.simulate(Trace.from_ranks(graphs), platform, network_model=model)
    assert bound(timeline).ticks <= timeline.total_ticks
    return timeline


@pytest.mark.parametrize("model", ["congestion", "flow"])
@pytest.mark.parametrize("machine", [switch(4), switch(8), switch(16), switch(32), leaf_spine(4, 4)])
def test_a_large_all_reduce_gains_what_theory_says_over_a_ring(machine: dict[str, Any], model: str) -> None:
    """The ring moves 2 (n-1) / n · D through every port, switches D: within 2 %."""
    ring, ours = run(machine, "ring", model=model), run(machine, "in-switch", model=model)
    n = len(ring.rank_class)
    gain = 2 * (n - 1) / n
    assert ring.total_ticks / ours.total_ticks == pytest.approx(gain, rel=0.02)
    # The ring itself is as good as a ring can be, so that the gain is no weakness of it.
    assert ring.total_ticks == pytest.approx(gain * 5e6, rel=0.02)


@pytest.mark.parametrize(("kind", "share"), [("reduce-scatter", 7 / 8), ("all-gather", 7)])
@pytest.mark.parametrize("machine", [switch(8), leaf_spine(2, 4)])
def test_other_operations_fill_the_ports(machine: dict[str, Any], kind: str, share: float) -> None:
    timeline = run(machine, "in-switch", kind, 100_000_000)
    assert timeline.total_ticks == pytest.approx(share * 1e6, rel=0.02)


def test_analytical_and_messages_agree_on_one_switch() -> None:
    for kind in KINDS:
        quick, moved = (
            run(switch(8), "in-switch", kind, model=m).total_ticks for m in ("analytical", "flow")
        )
        assert moved == pytest.approx(quick, rel=0.01)
        assert moved >= quick - 1


@pytest.mark.parametrize("model", ["congestion", "flow", "packet"])
def test_each_link_carries_the_data_once(model: str) -> None:
    timeline = run(leaf_spine(2, 4), "in-switch", size=400_000, model=model, chunks=4)
    assert timeline.network is not None
    used = timeline.network.use.size[timeline.network.use.size > 0]
    # 8 NPUs and 2 leaves, up and down; packets have headers of 62 bytes per 4 KiB.
    assert len(used) == 2 * (8 + 2)
    assert (used >= 400_000).all()
    assert (used <= 400_000 * (1.04 if model == "packet" else 1.001)).all()


def test_a_switch_that_adds_slowly_sets_the_pace() -> None:
    fast, slow = (run(switch(8, rate=rate), "in-switch").total_ticks for rate in ("100 GB/s", "25 GB/s"))
    assert slow == pytest.approx(4 * fast, rel=0.02)
    # What is only multicast is not added.
    for rate in ("100 GB/s", "25 GB/s"):
        gathered = run(switch(8, rate=rate), "in-switch", "all-gather", 10_000_000).total_ticks
        assert gathered == pytest.approx(7e5, rel=0.02)


def test_latency_of_the_switch_is_paid() -> None:
    plain, late = (
        run(switch(4, latency=time), "in-switch", size=8, chunks=1).total_ticks for time in ("0 ns", "700 ns")
    )
    assert late - plain == 700


def test_operations_wait_for_a_switch_that_has_enough_to_do() -> None:
    pairs = {1: [0, 1], 2: [2, 3], 3: [4, 5]}
    alone = run(switch(6, operations=1), "in-switch", groups={1: [0, 1]}, chunks=1).total_ticks
    for operations, turns in ((1, 3), (2, 2), (3, 1)):
        together = run(switch(6, operations=operations), "in-switch", groups=pairs, chunks=1)
        assert together.total_ticks == pytest.approx(turns * alone, rel=0.001)


def test_waiting_operations_take_turns() -> None:
    pairs = {1: [0, 1], 2: [2, 3]}
    timeline = run(switch(4, operations=1), "in-switch", groups=pairs, chunks=8)
    finish = [int(timeline.finish[timeline.rank_class[rank]]) for rank in (0, 2)]
    assert max(finish) < 1.2 * min(finish)


def test_members_on_a_part_of_a_graph_use_the_nearest_switches() -> None:
    machine = leaf_spine(2, 4)
    timeline = run(machine, "in-switch", groups={1: [0, 1, 3], 2: [5, 6]}, size=1_000_000)
    assert timeline.network is not None
    topology = timeline.network.topology
    used = {topology.kinds[k] for k in topology.kind[timeline.network.use.size > 0].tolist()}
    assert used == {"npu-leaf"}
    across = run(machine, "in-switch", groups={1: [0, 1, 4]}, size=1_000_000)
    assert across.network is not None
    # Only leaf 0 has something to add below it; leaf 1 passes on.
    assert (across.network.use.size > 0).sum() == 2 * (3 + 2)


def test_several_switches_of_a_host_share_the_data() -> None:
    graph = {
        "kind": "rail-optimised", "hosts": 2, "npus_per_host": 4, "host_switches": 4, "host_bandwidth": "400 GB/s",
        "host_latency": "300 ns", "bandwidth": "50 GB/s", "latency": "500 ns", "in_network": {},
    }  # fmt: skip
    groups = {1: [0, 1, 2, 3]}
    timeline = run({"topology": graph}, "in-switch", groups=groups, size=400_000_000)
    assert timeline.total_ticks == pytest.approx(1e6, rel=0.02)


def test_a_tree_goes_round_what_is_down_from_the_start() -> None:
    down = [{"node": "spine 0"}]
    whole, broken = (
        run(leaf_spine(2, 4, failures=failures), "in-switch").total_ticks for failures in ([], down)
    )
    assert broken == whole


@pytest.mark.parametrize("model", ["analytical", "flow"])
def test_says_where_in_switch_cannot_be(model: str) -> None:
    plain = {"topology": "Switch", "size": 4, "bandwidth": "100 GB/s", "latency": "500 ns"}
    with pytest.raises(
        InputError, match=r"got in-switch, but this Switch has no in_network; expected one of ring"
    ):
        run({"network": [plain]}, "in-switch", model=model)
    with pytest.raises(
        InputError, match="got in-switch, but a Ring has no switch; expected one of ring, direct"
    ):
        run({"network": [plain | {"topology": "Ring"}]}, "in-switch", model=model)


def test_says_which_switches_do_not_help() -> None:
    only = leaf_spine(2, 4, in_network=WORK | {"switches": ["leaf"]})
    with pytest.raises(InputError, match="the nearest switches that join these NPUs have no in_network"):
        run(only, "in-switch")
    # Leaves that only pass on put the data of each NPU on their uplinks.
    spines = leaf_spine(2, 4, in_network=WORK | {"switches": ["spine"]})
    moved, less = (run(machine, "in-switch", size=10_000).network for machine in (spines, leaf_spine(2, 4)))
    assert moved is not None
    assert less is not None
    assert moved.use.size.sum() > 1.5 * less.use.size.sum()
    with pytest.raises(
        InputError, match="all-reduce in-switch: no switch with in_network joins npu 0 to npu 1"
    ):
        run(
            spines
            | {
                "topology": spines["topology"]
                | {
                    "in_network": {"switches": ["leaf 1", "spine"]},
                    "failures": [{"link": ["leaf 0", f"spine {s}"]} for s in range(4)],
                }
            },
            "in-switch",
            groups={1: [0, 1]},
        )


def test_auto_takes_it_where_it_can() -> None:
    assert run(switch(8), "auto").total_ticks == run(switch(8), "in-switch").total_ticks
    plain = switch(8)
    del plain["network"][0]["in_network"]
    assert run(plain, "auto").total_ticks > 1.5 * run(switch(8), "auto").total_ticks
    # Not unless asked for.
    assert run(switch(8), "natural").total_ticks == run(plain, "natural").total_ticks


def test_says_that_analytical_counts_no_operations() -> None:
    timeline = run(switch(4), "in-switch", model="analytical")
    assert any(
        "operations has no effect in network model analytical" in text for text in timeline.info["warnings"]
    )
