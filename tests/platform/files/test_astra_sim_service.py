"""Configurations of ASTRA-sim-service: files and flags that run as those by hand; what does not fit is named."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from armillary.base.errors import InputError
from armillary.platform.files.astra_sim_service import read_service
from tests.platform.files.test_infragraph import ALONE, CLOS, changed

Part = dict[str, Any]
RING = [{"topology": "RING", "npus_count": 8, "bandwidth": 50, "latency": 500}]
SYSTEM = {
    "scheduling_policy": "LIFO", "endpoint_delay": 10, "active_chunks_per_dimension": 1,
    "preferred_dataset_splits": 4, "collective_optimization": "localBWAware", "local_mem_bw": 50, "overhead": 3,
    "gap": None, **{f"all_{kind}_implementation": ["ring"] for kind in ("reduce", "gather", "to_all")},
    "reduce_scatter_implementation": ["ring"],
}  # fmt: skip
STAR = {
    "total_nodes": 9, "total_switches": 1, "total_links": 8, "switch_ids": [8],
    "connections": [
        {"source_index": i, "destination_index": 8, "bandwidth": "100Gbps", "latency": "0.005ms", "error_rate": "0"}
        for i in range(8)
    ],
}  # fmt: skip


def tier(speed: int, **radix: int | None) -> Part:
    return {"downlink_speed_gbps": speed, "downlink_latency_ns": 1000, **radix}


TREE = {
    "nodes": 8, "tiers": 3, "podsize": 4, "tier_0": tier(200, radix_down=2, radix_up=2, bundle=None),
    "tier_1": tier(200, radix_down=2, radix_up=4, bundle=1), "tier_2": tier(100, radix_down=4, bundle=2),
}  # fmt: skip
BACK_ENDS: dict[str, Part] = {
    "analytical_congestion_aware": {"topology": {"choice": "network", "network": RING}},
    "analytical_congestion_unaware": {"topology": {"choice": "infragraph"}},
    "ns3": {
        "network": {"packet_payload_size": 8192, "link_down": [0, 0, 0]},
        "topology": {"choice": "nc_topology", "nc_topology": STAR},
        "logical_topology": {"logical_dimensions": [8]},
    },
    "htsim": {
        "htsim_protocol": {"choice": "tcp", "tcp": {"sub": "1", "tcp_protocol": "UNCOUPLED"}},
        "topology": {"network_topology_configuration": {
            "network": RING, "htsim_topology": {"choice": "fat_tree", "fat_tree": TREE},
        }},
    },
}  # fmt: skip


def configuration(back_end: str, **more: Any) -> Part:
    return copy.deepcopy({
        "common_config": {
            "workload": "et/step", "system": SYSTEM, "cmd_parameters": {"rendezvous_protocol": False},
            "communicator_group": [{"identifier": "1", "npu_list": [0, 1]}],
        },
        "network_backend": {"choice": back_end, back_end: BACK_ENDS[back_end]}, **more,
    })  # fmt: skip


def test_files_have_the_names_of_astra_sim() -> None:
    made = read_service(configuration("analytical_congestion_aware"))
    system = json.loads(made.files["system.json"])
    assert system["preferred-dataset-splits"] == 4 and system["o"] == 3 and "g" not in system
    assert yaml.safe_load(made.files["network.yml"]) == {
        "topology": ["Ring"], "npus_count": [8], "bandwidth": [50.0], "latency": [500.0],
    }  # fmt: skip
    assert json.loads(made.files["groups.json"]) == {"1": [0, 1]}
    assert made.flags["rendezvous-protocol"] == "false" and made.command == ["--network-model=congestion"]


def test_an_infragraph_is_the_tree_of_htsim() -> None:
    config = configuration("htsim", infragraph=CLOS)
    config["network_backend"]["htsim"]["topology"] = {"choice": "infragraph"}
    made = read_service(config)
    assert made.files["tree.topo"].startswith("Nodes 16\nTiers 2\nPodsize 16\n")
    assert yaml.safe_load(made.files["network.yml"])["npus_count"] == [16]
    assert made.options[:5] == ["--htsim_opts", "-topo", "tree.topo", "-nodes", "16"]


def test_an_infragraph_is_the_network_of_the_back_end() -> None:
    graph = {"infrastructure": ALONE, "annotations": {"device_specifications": [{"radix_up": 2}]}}
    made = read_service(configuration("analytical_congestion_unaware", infragraph=graph))
    network = yaml.safe_load(made.files["network.yml"])
    # Four links of 112.5 GB/s, in GiB/s.
    assert network["topology"] == ["Switch"] and network["bandwidth"] == pytest.approx([450e9 / 2**30])
    assert made.warnings == ["InfraGraph: annotations: without effect: radix_up"]
    clos = configuration("ns3", infragraph={"infrastructure": CLOS})
    clos["network_backend"]["ns3"] |= {"topology": {"choice": "INFRAGRAPH"}, "logical_topology": {}}
    made = read_service(clos)
    # Sixteen NPUs; NICs and switches are switches there.
    assert made.files["topology.txt"].splitlines()[0] == "38 22 52"
    assert json.loads(made.files["logical.json"]) == {"logical-dims": ["16"]}


def backend(name: str, change: Callable[[Part], Any]) -> Callable[[Part], Any]:
    return lambda config: change(config["network_backend"][name])


@pytest.mark.parametrize(
    ("back_end", "change", "words"),
    [
        ("ns3", lambda config: config["network_backend"].update(choice="ns4"), "choice: got 'ns4', expected one of"),
        ("ns3", lambda config: config["network_backend"].update(choice="htsim"), "a back end that is described: ns3"),
        ("ns3", lambda config: config["common_config"].pop("workload"), "workload: none, expected the prefix"),
        ("ns3", lambda config: config["common_config"]["system"].update(endpoint_dely=1), "mean 'endpoint_delay'"),
        ("ns3", lambda config: config["common_config"].update(sytem={}), "sytem: unknown key .did you mean 'system'"),
        ("ns3", backend("ns3", lambda each: each["network"].update(cc_mod=1)), "did you mean 'cc_mode'"),
        ("ns3", backend("ns3", lambda each: each["network"].update(rate_ai="1\nCC_MODE 1")), "words of one line"),
        ("ns3", backend("ns3", lambda each: each["topology"]["nc_topology"].update(total_links=9)), "9, expected 8"),
        ("ns3", backend("ns3", lambda each: each["logical_topology"].update(logical_dimensions=[9])), "at most 8"),
        ("ns3", backend("ns3", lambda each: each.update(topology={"choice": "infragraph"})), "chooses the infragraph"),
        ("ns3", backend("ns3", lambda each: each["topology"].pop("nc_topology")), "nc_topology: missing, and chosen"),
        ("analytical_congestion_aware", backend("analytical_congestion_aware",
            lambda each: each["topology"]["network"][0].update(topology="torus")), "got 'torus', expected one of"),
        ("htsim", backend("htsim", lambda each: each.update(topology={"choice": "infragraph"})), "chooses"),
        ("htsim", backend("htsim", lambda each: each["topology"]["network_topology_configuration"]["htsim_topology"][
            "fat_tree"]["tier_0"].update(radix=2)), "unknown key"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(back_end: str, change: Callable[[Part], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_service(changed(configuration(back_end), change))
