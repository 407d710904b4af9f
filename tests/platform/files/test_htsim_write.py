"""Fat trees of graphs as topologies of htsim: what is written reads as the graph; other graphs are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.platform.files.htsim_topology import read_htsim
from armillary.platform.files.htsim_write import write_htsim
from armillary.platform.files.infragraph import read_infragraph
from armillary.platform.files.network_convert import convert_network
from armillary.platform.topology import dragonfly, fat_tree, rail_optimised
from armillary.platform.topology.graph import Topology
from tests.platform.files.test_infragraph import CLOS


def rows(topology: Topology) -> list[tuple[object, ...]]:
    columns = (topology.tail, topology.head, topology.bandwidth, topology.latency, topology.buffer)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@st.composite
def topologies(draw: st.DrawFn) -> str:
    """Return a `.topo` of two or three tiers."""
    tiers = draw(st.integers(2, 3))
    ports, tors, middle = (draw(st.integers(least, 4)) for least in (2, 1, 1))
    pods, each = (draw(st.integers(least, 3)) if tiers == 3 else 1 for least in (2, 1))
    bundle = [1, draw(st.integers(1, 3)), draw(st.integers(1, 3))]
    down = (ports, tors * bundle[1], pods * bundle[2])
    up = (middle * bundle[1], each * bundle[2])
    lines = [f"Nodes {pods * tors * ports}", f"Tiers {tiers}", f"Podsize {tors * ports}"]
    for at in range(tiers):
        speed, latency, switch, room = (draw(st.integers(least, 900)) for least in (1, 0, 0, 1))
        lines += [
            f"Tier {at}",
            f"Downlink_speed_Gbps {speed}",
            f"Radix_Down {down[at]}",
            f"Bundle {bundle[at]}",
        ]
        lines += [f"Radix_Up {up[at]}"] if at < tiers - 1 else []
        lines += [f"Downlink_Latency_ns {latency}", f"Switch_Latency_ns {switch}", f"Queue_Down {room}"]
        lines += [f"Queue_Up {room}"] if at < tiers - 1 else []
    return "\n".join(lines) + "\n"


@given(topologies())
@settings(deadline=None)
def test_what_is_written_is_the_graph(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("topo")
    (folder / "first.topo").write_text(text)
    first = read_htsim(folder / "first.topo")
    (folder / "second.topo").write_text(write_htsim(first)[0])
    assert rows(read_htsim(folder / "second.topo")) == rows(first)


def test_switches_of_a_host_stay_out_and_its_nics_join_links(tmp_path: Path) -> None:
    text, lost = write_htsim(read_infragraph(CLOS).topology)
    assert lost == ["links within hosts", "names of nodes"]
    (tmp_path / "clos.topo").write_text(text)
    found = read_htsim(tmp_path / "clos.topo")
    # PCIe to the NIC, 300 ns, and Ethernet to the leaf, 600 ns and 400 Gb/s.
    assert found.npus == 16 and (found.bandwidth[0], found.latency[0]) == (50.0, 900.0)
    assert [tier.count for tier in found.tiers] == [16, 2, 2]


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (dragonfly(2, 4, 2, 12.5, 300.0), "1 tiers of switches"),
        (rail_optimised(4, 8, 450.0, 500.0, 50.0, 600.0, spines=2), "ranks of a switch are not consecutive"),
        (fat_tree(4, 0.7, 500.0), "htsim has whole Gb/s, and a link has 5.6 Gb/s"),
        (fat_tree(4, 50.0, 0.5), "htsim has whole ns"),
    ],
    ids=("dragonfly", "rails", "rate", "latency"),
)
def test_other_graphs_are_refused(graph: Topology, why: str) -> None:
    with pytest.raises(InputError, match=why):
        write_htsim(graph)


def test_a_star_is_no_tree_of_two_tiers() -> None:
    with pytest.raises(InputError, match="1 tiers of switches, expected 2 or 3"):
        convert_network("hgx-h100", "htsim")
