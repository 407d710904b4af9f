"""Networks through other formats and back: the same machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.platform import load_platform
from armillary.platform.files.infragraph_write import infragraph_of
from armillary.platform.files.native import platform_of
from armillary.platform.files.ns3_topology import read_ns3, write_ns3
from armillary.platform.model import ports
from armillary.platform.network import Dimension
from armillary.platform.topology import (
    Topology,
    convert_network,
    distances,
    dragonfly,
    edges,
    fat_tree,
    from_dimensions,
    load_network,
    rail_optimised,
    read_graph,
    read_infragraph,
)
from armillary.platform.topology.recognise import recognised

RATES, DELAYS = st.floats(0.5, 1000), st.just(0.0) | st.floats(1e-9, 5000)


def rows(topology: Topology) -> list[tuple[Any, ...]]:
    columns = (topology.tail, topology.head, topology.bandwidth, topology.latency)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@st.composite
def graphs(draw: st.DrawFn) -> Topology:
    """Return a graph whose links are alike both ways and where no switch leads nowhere."""
    npus, switches = draw(st.integers(2, 7)), draw(st.integers(0, 4))
    names = [*(f"npu {i}" for i in range(npus)), *(f"s{i}" for i in range(switches))]
    pairs = set()
    for at, name in enumerate(names):
        # Two links keep a switch from leading nowhere; what else there is.
        others = [other for other in names if other != name]
        least = min(1 + (at >= npus), len(others))
        for other in draw(st.sets(st.sampled_from(others), min_size=least, max_size=3)):
            pairs.add((name, other) if at < names.index(other) else (other, name))
    values = [(draw(RATES), draw(DELAYS), draw(st.sampled_from(["cable", "up link"]))) for _ in pairs]
    return edges(
        "random",
        [
            (tail, head, rate, delay, 2**63 - 1, kind)
            for (a, b), (rate, delay, kind) in zip(sorted(pairs), values, strict=True)
            for tail, head in ((a, b), (b, a))
        ],
    )


@given(graphs())
@settings(deadline=None, max_examples=60)
def test_a_graph_is_the_same_after_infragraph(graph: Topology) -> None:
    data, lost = infragraph_of(graph)
    back = read_infragraph(data)
    assert (back.topology.npus, rows(back.topology)) == (graph.npus, rows(graph))
    assert not [text for text in back.assumed if "link" in text] and lost == ["names of nodes"]


@given(graphs())
@settings(deadline=None, max_examples=40)
def test_a_graph_is_the_same_after_ns3(tmp_path_factory: pytest.TempPathFactory, graph: Topology) -> None:
    file = tmp_path_factory.mktemp("ns3") / "random.txt"
    try:
        text, _ = write_ns3(graph)
    except InputError as error:
        # Hosts pass nothing on there.
        assert "over other NPUs only" in str(error)
        inner = replace(graph, forwards=np.arange(graph.nodes) >= graph.npus)
        assert any(distances(inner, npu)[0] < 0 for npu in range(1, graph.npus))
        return
    file.write_text(text)
    back, _ = read_ns3(file)
    assert back.npus == graph.npus
    for found, given_row in zip(rows(back), rows(graph), strict=True):
        # Bits per second and ps, rounded.
        assert found == pytest.approx(given_row, abs=1e-3)


@given(graphs())
@settings(deadline=None, max_examples=6)
def test_a_graph_is_the_same_after_graphml_and_a_study(
    tmp_path_factory: pytest.TempPathFactory, graph: Topology
) -> None:
    folder = tmp_path_factory.mktemp("graphs")
    (folder / "first.yaml").write_text(yaml.safe_dump(infragraph_of(graph)[0]))
    (folder / "second.graphml").write_text(convert_network(folder / "first.yaml", "graphml").text)
    (folder / "third.yaml").write_text(convert_network(folder / "second.graphml", "study").text)
    network = load_network(folder / "third.yaml")
    assert network is not None
    assert rows(read_graph(folder / "second.graphml")) == rows(network.topology) == rows(graph)


def test_names_in_graphml_command_no_terminal_and_are_xml(tmp_path: Path) -> None:
    name = "sp\x1b[31mine\x9b<&"
    pair = [
        {"from": f"npu{npu}", "to": name, "bandwidth": "50 GB/s", "latency": "1 us", "kind": name}
        for npu in (0, 1)
    ]
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({"links": pair, "npus": ["npu0", "npu1"]}))
    text = convert_network(tmp_path / "a.yaml", "graphml").text
    assert not {"\x1b", "\x9b"} & set(text)
    (tmp_path / "b.graphml").write_text(text)
    assert rows(read_graph(tmp_path / "b.graphml")) == rows(read_graph(tmp_path / "a.yaml"))


@pytest.mark.parametrize(
    "graph",
    [
        fat_tree(4, 50.0, 500.0), dragonfly(2, 4, 2, 12.5, 300.0),
        rail_optimised(4, 8, 450.0, 500.0, 50.0, 600.0, spines=2),
    ],
    ids=lambda graph: str(graph.name),
)  # fmt: skip
def test_built_graphs_keep_hosts_and_sorts(graph: Topology) -> None:
    back = read_infragraph(infragraph_of(graph)[0]).topology
    assert (back.host, rows(back)) == (graph.host, rows(graph))
    assert {back.kinds[k] for k in back.kind} == {graph.kinds[k] for k in graph.kind}


KINDS = st.sampled_from(["Ring", "FullyConnected", "Switch"])
SHAPES = st.lists(st.tuples(KINDS, st.integers(2, 5), RATES, DELAYS), min_size=1, max_size=3)


@given(SHAPES)
@settings(deadline=None, max_examples=40)
def test_dimensions_are_recognised_in_their_graph(shapes: list[tuple[str, int, float, float]]) -> None:
    dimensions = tuple(Dimension(f"d{i}", *shape) for i, shape in enumerate(shapes))
    graph = from_dimensions(dimensions)
    # As if it had been read from a file that knows no dimensions.
    plain = edges("read", [
        (graph.node_name(int(t)), graph.node_name(int(h)), float(b), float(d), 2**63 - 1, "link")
        for t, h, b, d in zip(graph.tail, graph.head, graph.bandwidth, graph.latency, strict=True)
    ])  # fmt: skip
    found = recognised(plain)
    assert found and rows(from_dimensions(found)) == rows(graph)


@given(SHAPES)
@settings(deadline=None, max_examples=15)
def test_dimensions_are_the_same_after_astra_sim_and_a_study(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[tuple[str, int, float, float]]
) -> None:
    folder = tmp_path_factory.mktemp("dimensions")
    names = ("topology", "npus_count", "bandwidth", "latency")
    columns = dict(zip(names, map(list, zip(*shapes, strict=True)), strict=True))
    (folder / "network.yml").write_text(yaml.safe_dump(columns))
    (folder / "study.yaml").write_text(convert_network(folder / "network.yml", "study").text)
    (folder / "again.yml").write_text(convert_network(folder / "study.yaml", "astra-sim").text)
    again = yaml.safe_load((folder / "again.yml").read_text())
    assert again == columns | {"bandwidth": pytest.approx(columns["bandwidth"], rel=1e-15)}
    machine = load_platform(folder / "study.yaml")
    assert [port.out for port in ports(machine)] == [
        pytest.approx(d.bandwidth * {"Ring": 2, "Switch": 1}.get(d.topology, d.size - 1))
        for d in machine.dimensions
    ]


def test_what_a_format_cannot_say_is_named(tmp_path: Path) -> None:
    keys = {
        "topology": {"kind": "leaf-spine", "leaves": 2, "spines": 2, "npus_per_leaf": 2, "bandwidth": "50 GB/s",
                     "latency": "500 ns", "buffer": "1 MiB", "failures": [{"node": "spine 0", "at": "1 ms"}]},
        "npu": {"peak": "1 TFLOP/s"},
    }  # fmt: skip
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(keys))
    assert convert_network(tmp_path / "m.yaml", "infragraph").lost == (
        "npu",
        "buffers at the ends of links",
        "failures",
    )
    assert "buffer: 1048576 B" in convert_network(tmp_path / "m.yaml", "study").text
    with pytest.raises(InputError, match="a graph that is no nesting of up to three Rings"):
        convert_network(tmp_path / "m.yaml", "astra-sim")
    one_way = edges("g", [("npu 0", "npu 1", 1.0, 1.0, 9, "a"), ("npu 1", "npu 0", 2.0, 1.0, 9, "a")])
    with pytest.raises(InputError, match="npu 0 → npu 1 differs from the way back"):
        infragraph_of(one_way)


@pytest.mark.slow
def test_the_package_of_infragraph_takes_what_is_written(tmp_path: Path) -> None:
    pytest.importorskip("infragraph")
    from infragraph import Infrastructure  # type: ignore[import-not-found]
    from infragraph.infragraph_service import InfraGraphService  # type: ignore[import-not-found]

    for graph in (fat_tree(4, 50.0, 500.0), rail_optimised(4, 8, 450.0, 500.0, 50.0, 600.0, spines=2)):
        infrastructure, service = Infrastructure(), InfraGraphService()
        infrastructure.deserialize(yaml.safe_dump(infragraph_of(graph)[0]))
        service.set_graph(infrastructure)
        theirs = service.get_networkx_graph()
        assert (theirs.number_of_nodes(), theirs.number_of_edges()) == (graph.nodes, graph.links // 2)


def test_what_is_written_has_the_keys_that_infragraph_requires() -> None:
    for device in infragraph_of(fat_tree(4, 50.0, 500.0))[0]["devices"]:
        assert {"name", "components", "links", "edges"} <= device.keys()


def test_a_preset_becomes_astra_sims_file() -> None:
    found = yaml.safe_load(convert_network("hgx-h100", "astra-sim").text)
    (dimension,) = platform_of("hgx-h100").dimensions
    assert found["topology"] == ["Switch"] and np.isclose(
        found["bandwidth"][0] * 2**30 / 1e9, dimension.bandwidth
    )
