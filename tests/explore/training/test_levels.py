"""Graphs by their levels: what links give them, and how far off a step is from one whose messages move."""

from __future__ import annotations

from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.base.units import parse_bandwidth
from armillary.compute.machine import machine_of
from armillary.explore.training.levels import by_levels, leveled, places_of, takes_levels, unshared
from armillary.explore.training.software import software_on
from armillary.explore.training.train import of_plan, predicted
from armillary.studio.drawn import machine_with
from armillary.studio.question import read_question
from armillary.workload.models.hugging_face import from_hugging_face
from armillary.workload.plan.request import keys_of
from armillary.workload.plan.schema import Plan

LINKS = {"bandwidth": "50 GB/s", "latency": "500 ns"}
RAILS = {
    "kind": "rail-optimised", "hosts": 4, "npus_per_host": 8, "spines": 0, "host_bandwidth": "450 GB/s",
    "host_latency": "1 us", "routing": "rail", **LINKS,
}  # fmt: skip
CONFIG = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 2048, "num_attention_heads": 16,
    "vocab_size": 32000, "intermediate_size": 8192, "max_position_embeddings": 1024,
}  # fmt: skip


def levels(graph: dict[str, Any]) -> list[tuple[int, float]]:
    """Return (size, GB/s) of each level."""
    held = by_levels(machine_of(machine_with("dgx-h100", graph)))["platform"]["network"]
    return [(each["size"], parse_bandwidth(each["bandwidth"])) for each in held]


def test_a_level_has_what_its_links_give_when_all_its_groups_send() -> None:
    assert levels(RAILS) == [(8, 450.0), (4, 50.0)]
    star = [{"from": f"npu {npu}", "to": "switch", **LINKS} for npu in range(4)]
    assert levels({"kind": "edges", "links": star}) == [(4, 50.0)]
    # One round of two crosses the slow link: two devices, each a third of what it sends in all.
    halves = [{"from": f"npu {npu}", "to": f"leaf {npu // 2}", **LINKS} for npu in range(4)]
    slow = {"from": "leaf 0", "to": "leaf 1", "bandwidth": "10 GB/s", "latency": "1 us"}
    ((size, rate),) = levels({"kind": "edges", "links": [*halves, slow]})
    assert (size, rate) == (4, 15.0)
    # What was built from dimensions has these.
    assert levels({"kind": "hypercube", "order": 3, **LINKS}) == [(2, 50.0)] * 3


def test_a_step_on_rails_is_that_of_messages() -> None:
    model = from_hugging_face(CONFIG)
    machine = machine_of(machine_with("dgx-h100", RAILS))
    near = machine_of(by_levels(machine))
    # What a software adds to collectives is left out where messages move: here, too.
    kernels = software_on("megatron-core", machine)
    for plan in ({}, {"parallel": {"tp": 8}}, {"parallel": {"pp": 2}}):
        exact = predicted(model, machine, {"batch": 64, "sequence": 512, **plan}, "megatron-core")
        quick = of_plan(model, near, kernels, keys_of(exact.plan))
        assert quick.step_time_s == pytest.approx(exact.step_time_s, rel=0.02), plan
    assert near.assumptions[0].startswith("approximate: the graph of 32 devices")


def test_a_graph_is_taken_by_its_size_unless_it_is_asked_otherwise() -> None:
    few, many = (machine_of(machine_with("dgx-h100", {**RAILS, "hosts": hosts})) for hosts in (4, 5))
    assert [takes_levels("", each) for each in (few, many)] == [False, True]
    assert takes_levels("levels", few) and not takes_levels("messages", many)
    with pytest.raises(InputError, match=r"graph: got 'both', expected one of messages, levels"):
        read_question({"model": "llama-2-7b", "machine": "dgx-h100", "graph": "both", "plan": {}})


def test_what_would_take_minutes_is_refused_at_once() -> None:
    with pytest.raises(InputError, match=r"topology: routes of 15,360 devices .* take about \d+ s, expected"):
        by_levels(machine_of("hpn-7"))


TREE = {"kind": "fat-tree", "k": 4, **LINKS}
SPINES = {"kind": "leaf-spine", "leaves": 4, "spines": 4, "npus_per_leaf": 4, **LINKS}
GROUPS = {"kind": "dragonfly", "npus_per_router": 2, "routers": 4, "global_links": 1, "groups": 4, **LINKS}
EXPERTS = {
    "model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 1024, "num_attention_heads": 16,
    "num_key_value_heads": 8, "vocab_size": 32000, "intermediate_size": 3584, "max_position_embeddings": 1024,
    "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("graph", [TREE, SPINES, GROUPS, RAILS], ids=lambda graph: graph["kind"])
def test_levels_cut_for_a_plan_are_near_messages(graph: dict[str, Any]) -> None:
    """No further off than 2 % above and 12 % below: collectives of different axes meet on links of messages only."""
    machine = machine_of(machine_with("dgx-h100", graph))
    kernels = software_on("megatron-core", machine)
    for config, axes in (
        (CONFIG, {}),
        (CONFIG, {"tp": 4}),
        (CONFIG, {"tp": 2, "pp": 2}),
        (EXPERTS, {"ep": 8}),
    ):
        model = from_hugging_face(config)
        given = {"batch": 64, "sequence": 512, "parallel": axes}
        exact = predicted(model, machine, given, "megatron-core")
        near = of_plan(model, leveled(machine, exact.plan), kernels, keys_of(exact.plan))
        assert -0.12 < near.step_time_s / exact.step_time_s - 1 < 0.02, axes


def test_pieces_of_a_level_are_the_axes_of_the_plan() -> None:
    """Groups of two under a switch have all of their links, those across share uplinks."""
    machine = machine_of(machine_with("dgx-h100", TREE))
    whole = leveled(machine)
    plan = Plan.model_validate({"ranks": 16, "batch": 16, "parallel": {"tp": 2, "pp": 2}})
    found = leveled(machine, plan)
    assert [level.size for level in whole.platform.dimensions] == [16]
    assert [level.size for level in found.platform.dimensions] == [2, 4, 2]
    assert found.platform.dimensions[0].bandwidth == 50.0 > found.platform.dimensions[1].bandwidth
    assert (
        found.name == machine.name
        and places_of(found.platform.dimensions, whole.platform.dimensions) == [0] * 3
    )
    assert {level.bandwidth for level in unshared(machine).platform.dimensions} == {50.0}
    odd = Plan.model_validate({"ranks": 16, "batch": 16, "parallel": {"tp": 16}})
    assert [level.size for level in leveled(machine, odd).platform.dimensions] == [16]
