"""Memories of study files: presets, stages, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.platform import describe, load_platform
from armillary.platform.files.preset import _MEMORIES as FOLDER
from armillary.platform.files.preset import leaves, memory_names, read_document

NETWORK = [{"topology": "Switch", "size": 16, "bandwidth": "100 GB/s", "latency": "1 us"}]
STAGE = {"name": "groups", "per": "machine", "count": 4, "bandwidth": "10 GB/s"}


def machine(memory: Any, **more: Any) -> Any:
    return load_platform({"network": NETWORK, "remote_memory": memory, **more})


@pytest.mark.parametrize("name", memory_names())
def test_every_number_of_a_preset_says_where_it_is_from(name: str) -> None:
    data = read_document(FOLDER / f"{name}.yaml", "preset", "yaml").data
    numbers = {key for key, _ in leaves(data["memory"])}
    assert numbers == set(data["numbers"])
    assert all(entry.get("source") or entry.get("unverified") for entry in data["numbers"].values())
    platform = machine({"preset": name})
    assert platform.remote_memory.kind == "hierarchical"
    assert any("unverified" in text for text in platform.warnings)


def test_keys_beside_a_preset_change_it() -> None:
    memory = machine({"preset": "hiermem-base", "chunk": "64 KiB", "npus_per_node": 4}).remote_memory
    assert (memory.chunk, memory.npus_per_node, len(memory.stages)) == (65536, 4, 3)


@pytest.mark.parametrize("name", memory_names())
def test_any_preset_can_take_the_place_of_another_that_is_per_node(name: str) -> None:
    platform = machine({"preset": name, "npus_per_node": 4})
    unused = [text for text in platform.warnings if "npus_per_node 4 has no effect" in text]
    assert (platform.remote_memory.npus_per_node == 4) != bool(unused)
    assert all(name in text for text in unused)


def test_stages_over_a_preset_need_no_word_on_its_nodes() -> None:
    platform = machine({"preset": "nvme-offload", "stages": [STAGE]})
    assert platform.remote_memory.npus_per_node == 0
    with pytest.raises(InputError, match="npus_per_node"):
        machine({"preset": "cxl-pool", "npus_per_node": "many"})


def test_stages_are_read_and_described() -> None:
    both = {
        "name": "port",
        "per": "npu",
        "bandwidth": {"read": "4 GB/s", "write": "2 GB/s"},
        "latency": "3 us",
    }
    platform = machine({"kind": "hierarchical", "stages": [STAGE, both]})
    first, last = platform.remote_memory.stages
    assert (first.count, first.read, first.write, first.latency) == (4, 10.0, 10.0, 0.0)
    assert (last.count, last.read, last.write, last.latency) == (1, 4.0, 2.0, 3000.0)
    assert platform.remote_memory.chunk == 1 << 20
    assert describe(platform)["remote_memory"]["stages"][1]["write"] == 2.0


def test_local_memory_has_two_directions_and_a_latency() -> None:
    memory = {"bandwidth": "2 TB/s", "read": "1 TB/s", "latency": "500 ns", "capacity": "80 GB"}
    local = load_platform({"network": NETWORK, "npu": {"memory": memory}}).npu.memory
    assert (local.rate(store=False), local.rate(store=True)) == (1000.0, 2000.0)
    assert (local.bandwidth, local.latency, local.capacity) == (2000.0, 500.0, 80 * 10**9)


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        ({"preset": "cxl-pol"}, "cxl-pool"),
        ({"bandwidth": "1 GB/s", "latency": "1 us"}, "missing key 'kind'"),
        ({"kind": "pool", "latency": "1 us"}, "missing key 'bandwidth'"),
        ({"kind": "hierarchical"}, "expected stages"),
        ({"kind": "hierarchical", "stages": [STAGE], "latency": "1 us"}, "latency in them"),
        ({"kind": "hierarchical", "stages": [STAGE, STAGE]}, "a name of its own"),
        ({"kind": "hierarchical", "stages": [STAGE | {"per": "node"}]}, "expected npus_per_node"),
        ({"kind": "hierarchical", "stages": [STAGE], "npus_per_node": 4}, "and only there"),
        ({"kind": "hierarchical", "stages": [STAGE | {"per": "rack"}]}, "expected one of npu, node, machine"),
        ({"kind": "hierarchical", "stages": [STAGE | {"bandwith": "1 GB/s"}]}, "bandwidth"),
        (
            {"kind": "pool", "bandwidth": "1 GB/s", "latency": "0 ns", "chunk": "1 KiB"},
            "only with kind hierarchical",
        ),
    ],
)
def test_what_is_wrong_with_a_memory_is_named(memory: Any, said: str) -> None:
    with pytest.raises(InputError) as raised:
        machine(memory)
    assert said in str(raised.value)
    assert "remote_memory" in str(raised.value)


@pytest.mark.parametrize(
    "part",
    [
        {"remote_memory": {"kind": "hierarchical", "stages": [STAGE]}},
        {"npu": {"memory": {"bandwidth": "1 TB/s", "read": "2 TB/s"}}},
        {"npu": {"memory": {"bandwidth": "1 TB/s", "latency": "1 us"}}},
    ],
)
def test_astra_sim_has_none_of_it(part: Any, tmp_path: Any) -> None:
    from armillary.platform import astra_sim_view

    with pytest.raises(InputError, match="profile astra-sim does not model this"):
        astra_sim_view(load_platform({"network": NETWORK, **part}))
