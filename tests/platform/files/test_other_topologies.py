"""Topologies and configurations of htsim and of ASTRA-sim's ns-3 back end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.platform import load_platform
from armillary.platform.files.htsim_topology import read_htsim
from armillary.platform.files.ns3_config import read_ns3_machine
from armillary.platform.files.ns3_topology import parse_delay, parse_rate, read_ns3
from armillary.platform.topology import Shortest, Topology, fat_tree, load_network, read_graph

THREE = """# three tiers of switches
Nodes 8
Tiers 3
Podsize 4
Tier 0
downlink_speed_gbps 200
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Queue_Up 9000
Tier 1
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 4
Downlink_Latency_ns 1000
Tier 2
Downlink_speed_Gbps 100   # two cables each
Radix_Down 4
Bundle 2
Downlink_Latency_ns 1000
Switch_Latency_ns 300
"""
STAR = "5 1 4\n4\n0 4 400Gbps 0.0005ms 0\n1 4 400Gbps 0.5us 0 2 4 400Gbps 500ns 0\n3 4 50GB/s 0.0000005s 0.0 // last\n"
CONFIG = """ENABLE_QCN 1
PACKET_PAYLOAD_SIZE 1000
TOPOLOGY_FILE star.txt
FCT_OUTPUT_FILE fct.txt
CC_MODE 12
BUFFER_SIZE 32
KMAX_MAP 2 100000000000 800 400000000000 2400
KMIN_MAP 2 100000000000 200 400000000000 800
PMAX_MAP 2 100000000000 0.2 400000000000 0.2
"""
SYSTEM: dict[str, Any] = {
    "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1, "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring"], "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"], "all-to-all-implementation": ["ring"],
    "collective-optimization": "localBWAware", "local-mem-bw": 1600,
}  # fmt: skip


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def links(topology: Topology) -> dict[str, tuple[float, float]]:
    return {
        topology.link_name(i): (float(topology.bandwidth[i]), float(topology.latency[i]))
        for i in range(topology.links)
    }


def test_a_tree_of_three_tiers(tmp_path: Path) -> None:
    topology = read_graph(written(tmp_path, "eight.topo", THREE))
    assert [(tier.name, tier.count) for tier in topology.tiers] == [
        ("npu", 8),
        ("tor", 4),
        ("aggregation", 4),
        ("core", 4),
    ]
    # Each pod has two cables to each core.
    assert topology.links == 2 * (8 + 8 + 16)
    assert links(topology)["aggregation 0 → core 0"] == (12.5, 1300.0)
    assert links(topology)["core 0 → aggregation 0"] == (12.5, 1000.0)
    assert topology.buffer[topology.between(8, 12)] == 9000
    assert Shortest(topology).paths([0, 0, 0], [1, 2, 7]).hops.tolist() == [2, 4, 6]
    assert links(read_htsim(tmp_path / "eight.topo", nic=12.5))["npu 0 → tor 0"] == (12.5, 1000.0)


def test_a_topology_of_another_tool_is_a_machine_by_itself(tmp_path: Path) -> None:
    (tmp_path / "three.topo").write_text(THREE)
    assert load_platform(tmp_path / "three.topo").npus == 8
    (tmp_path / "three.topo").write_text(THREE.replace("200", "200.5"))
    with pytest.raises(InputError, match=r"three.topo:6: got 'downlink_speed_gbps 200.5'"):
        load_platform(tmp_path / "three.topo")


def test_a_full_tree_is_that_of_its_builder(tmp_path: Path) -> None:
    tier = "Downlink_speed_Gbps 400\nDownlink_Latency_ns 500\nRadix_Down {}\n"
    text = "Nodes 16\nTiers 3\nPodsize 4\n" + "".join(
        f"Tier {at}\n{tier.format(down)}{up}"
        for at, (down, up) in enumerate([(2, "Radix_Up 2\n"), (2, "Radix_Up 2\n"), (4, "")])
    )
    assert sorted(links(read_graph(written(tmp_path, "k4.topo", text))).values()) == sorted(
        links(fat_tree(4, 50.0, 500.0)).values()
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Tiers 3", "Tiers 2", "got 2 and 3 of them"),
        ("Podsize 4", "Podsize 3", "Nodes 8 is no multiple of Podsize, 3"),
        ("Radix_Down 4", "Radix_Down 5", "Radix_Down of tier 2: got 5, expected 4, the pods"),
        ("Bundle 2", "Bundel 2", "unknown key 'Bundel' .did you mean 'bundle'"),
        ("Tier 1", "Tier 2", "eight.topo:11: got tier 2, expected tier 1"),
        ("Nodes 8", "Nodes eight", "eight.topo:2: got 'Nodes eight', expected a key and a whole number"),
        ("Radix_Up 4\n", "", "tier 1: missing key 'Radix_up'"),
    ],
)  # fmt: skip
def test_what_is_no_tree(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_htsim(written(tmp_path, "eight.topo", THREE.replace(old, new)))


def test_a_star_of_ns3(tmp_path: Path) -> None:
    path = written(tmp_path, "star.txt", STAR)
    topology, notes = read_ns3(path)
    assert (topology.npus, topology.labels[4], notes) == (4, "switch 4", [])
    assert set(links(topology).values()) == {(50.0, 500.0)} and not topology.forwards[0]
    assert [text for text in read_ns3(path, 2)[1] if "2 links of hosts without a rank" in text]
    (tmp_path / "m.yaml").write_text("topology: {kind: file, file: star.txt}\n")
    network = load_network(tmp_path / "m.yaml")
    assert network is not None and network.topology.npus == 4


@given(st.integers(1, 10**6), st.sampled_from(["Gbps", "Mbps", "Gb/s", "kbps", "bps"]))
def test_rates_of_ns3(number: int, unit: str) -> None:
    scale = {"G": 1e9, "M": 1e6, "k": 1e3, "b": 1.0}[unit[0]]
    assert parse_rate(f"{number}{unit}") == pytest.approx(number * scale / 8e9)
    assert parse_delay(f"{number}us") == number * 1e3


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("5 1 4", "5 1 5", "ends before its 1 switches and 5 links"),
        ("5 1 4", "5 1 3", "star.txt:5: got '3' after the last link"),
        ("400Gbps 500ns", "400Gbit 500ns", "star.txt:4: got '400Gbit', expected a rate"),
        ("0.5us", "0.5 us", "expected a time"),
        ("0 4 400", "4 4 400", "to itself, expected two"),
        ("0 4 400", "9 4 400", "a node: got '9', expected a whole number from 0 to 4"),
        ("5 1 4", "5 1 99999999", "ends before"),
    ],
)  # fmt: skip
def test_what_is_no_topology_of_ns3(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_ns3(written(tmp_path, "star.txt", STAR.replace(old, new, 1)))


def machine(folder: Path, config: str = CONFIG, dims: object = ("4",)) -> Any:
    written(folder, "star.txt", STAR)
    return read_ns3_machine(SYSTEM, written(folder, "config.txt", config), {"logical-dims": list(dims)})  # type: ignore[call-overload]


def test_a_configuration_of_ns3(tmp_path: Path) -> None:
    found = machine(tmp_path)
    platform = found.platform
    assert platform.packets.options == {
        "mtu": 1000, "header": 48, "kmin": 800_000, "kmax": 2_400_000, "pmax": 0.2, "buffer": 8 << 20,
    }  # fmt: skip
    assert [d.size for d in platform.dimensions] == [4] and platform.network_model.name == "packet"
    assert any("FCT_OUTPUT_FILE: not written" in text for text in platform.warnings)
    # Two links there and back, 1000 bytes at 50 bytes per ns on each; the product with the rate.
    assert found.heading.splitlines()[1:] == [
        "There are 4 npus: 4,",
        "QP is enabled ",
        "maxRtt=2040 maxBdp=102000",
    ]
    assert machine(tmp_path, CONFIG.replace("MODE 12", "MODE 1")).platform.packets.options["dcqcn"] is True
    for mode, control in (("3", "hpcc"), ("7", "timely")):
        packets = machine(tmp_path, CONFIG.replace("MODE 12", f"MODE {mode}")).platform.packets
        assert packets.protocol == "rdma" and packets.options == {
            "mtu": 1000, "header": 48, "buffer": 8 << 20, "control": control, "full": "pause",
        }  # fmt: skip
    dctcp = machine(tmp_path, CONFIG.replace("MODE 12", "MODE 8")).platform.warnings
    assert any("CC_MODE 8 is DCTCP, which is not simulated" in text for text in dctcp)
    odd = machine(tmp_path, CONFIG.replace("CC_MODE", "CC_MOD")).platform.warnings
    assert any("config.txt:5: unknown key 'CC_MOD' has no effect" in text for text in odd)
    assert [d.size for d in machine(tmp_path, dims=("2", "2")).platform.dimensions] == [2, 2]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", "HAS_WIN is 1 by default: windows do not limit senders"),
        ("HAS_WIN 1\nVAR_WIN 1\n", "HAS_WIN 1, VAR_WIN 1: windows"),
        ("HAS_WIN 0\nVAR_WIN 1\n", ""),
        (
            "CC_MODE 1\nHAS_WIN 0\nRP_TIMER 900\nRATE_AI 50Mb/s\n",
            "RP_TIMER, RATE_AI have no effect: DCQCN runs",
        ),
        ("HAS_WIN 0\nRP_TIMER 900\nRATE_AI 50Mb/s\n", ""),  # of a rate control that does not run
        ("CC_MODE 3\nU_TARGET 0.9\nRATE_AI 50Mb/s\n", "U_TARGET, RATE_AI have no effect: HPCC runs"),
        ("CC_MODE 7\nHAS_WIN 0\nMIN_RATE 1Mb/s\n", "MIN_RATE has no effect: TIMELY runs"),
        ("HAS_WIN 0\nNIC_TOTAL_PAUSE_TIME 5\n", "NIC_TOTAL_PAUSE_TIME 5 has no effect"),
        ("HAS_WIN 0\nL2_ACK_INTERVAL 1\nACK_HIGH_PRIO 0\nRATE_BOUND 1\n", ""),
    ],
)
def test_keys_that_change_times_in_ns3_only(tmp_path: Path, more: str, words: str) -> None:
    plain = set(machine(tmp_path, CONFIG + "HAS_WIN 0\n").platform.warnings)
    found = [text for text in machine(tmp_path, CONFIG + more).platform.warnings if text not in plain]
    assert [words in text for text in found] == [True] * bool(words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("TOPOLOGY_FILE star.txt\n", "", "missing key 'TOPOLOGY_FILE'"),
        ("star.txt", "stra.txt", "stra.txt: no such file"),
        ("KMIN_MAP 2 100000000000 200 400000000000 800", "KMIN_MAP 1 1e11 200", "no entry for links of 400 Gb/s"),
        ("KMIN_MAP 2", "KMIN_MAP 3", "KMIN_MAP: expected how many"),
        ("400000000000 800", "400000000000 nan", "KMIN_MAP: expected how many"),
        ("SIZE 1000", "SIZE 0", "PACKET_PAYLOAD_SIZE: got 0"),
    ],
)  # fmt: skip
def test_what_is_no_configuration_of_ns3(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        machine(tmp_path, CONFIG.replace(old, new, 1))


def test_a_tree_that_is_too_large(tmp_path: Path) -> None:
    tier = "Tier {}\nDownlink_speed_Gbps 400\nDownlink_Latency_ns 500\nRadix_Down {}\nRadix_Up 2\n"
    text = (
        "Nodes 80000000000\nTiers 2\nPodsize 80000000000\n" + tier.format(0, 2) + tier.format(1, 40000000000)
    )
    with pytest.raises(InputError, match="expected at most"):
        read_htsim(written(tmp_path, "large.topo", text))


@pytest.mark.parametrize("dims", [[], ["4", 0], ["x"], ["8"], [True]])
def test_what_are_no_logical_dimensions(tmp_path: Path, dims: list[object]) -> None:
    with pytest.raises(InputError, match=r"logical|expected 8 hosts"):
        machine(tmp_path, dims=dims)


@given(st.text(alphabet="0123456789 \nGbps.", max_size=60))
@settings(deadline=None, max_examples=40)
def test_any_text_is_a_topology_or_a_clear_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = written(tmp_path_factory.mktemp("any"), "any.txt", text)
    try:
        assert np.isfinite(read_ns3(path)[0].latency).all()
    except InputError as error:
        assert "any.txt" in str(error)
