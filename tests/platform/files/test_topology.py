"""Edge lists, networkx graphs and GraphML."""

from __future__ import annotations

import sys
from pathlib import Path

import networkx
import pytest

from armillary.base.errors import InputError
from armillary.platform.topology import (
    Shortest,
    Topology,
    from_networkx,
    leaf_spine,
    read_graph,
    to_networkx,
)

CSV = """from,to,bandwidth,latency,buffer,way
npu 0,tor,50 GB/s,1 us,,
npu 1,tor,25 GB/s,1 us,64 KiB,both
npu 1,npu 0,1 GB/s,5 us,,one
"""
MANY_KINDS = "from,to,bandwidth,latency,kind\n" + "".join(
    f"npu 0,npu 1,50 GB/s,1 us,kind {i}\n" for i in range(257)
)
YAML = """
npus: [b, a]
forward: true
links:
  - {from: a, to: b, bandwidth: 2 GB/s, latency: 3 ns, kind: cable}
  - {from: b, to: c, bandwidth: 4 GB/s, latency: 3 ns, way: one}
"""


def rows(topology: Topology) -> set[tuple[str, float, float]]:
    values = zip(topology.bandwidth.tolist(), topology.latency.tolist(), strict=True)
    return {(topology.link_name(i), *pair) for i, pair in enumerate(values)}


def test_csv(tmp_path: Path) -> None:
    file = tmp_path / "net.csv"
    file.write_text(CSV)
    topology = read_graph(file)
    assert (topology.npus, topology.nodes, topology.name) == (2, 3, "net")
    assert rows(topology) == {
        ("npu 0 → tor", 50.0, 1000.0),
        ("tor → npu 0", 50.0, 1000.0),
        ("npu 1 → tor", 25.0, 1000.0),
        ("tor → npu 1", 25.0, 1000.0),
        ("npu 1 → npu 0", 1.0, 5000.0),
    }
    assert sorted(topology.buffer.tolist())[:2] == [65536, 65536]
    assert Shortest(topology).paths([0, 1], [1, 0]).hops.tolist() == [2, 1]


def test_yaml_lists_its_npus(tmp_path: Path) -> None:
    file = tmp_path / "net.yaml"
    file.write_text(YAML)
    topology = read_graph(file)
    assert topology.labels == ("b", "a", "c") and topology.npus == 2 and topology.forwards.all()
    assert rows(topology) == {("a → b", 2.0, 3.0), ("b → a", 2.0, 3.0), ("b → c", 4.0, 3.0)}
    assert set(topology.kinds) == {"cable", "link"}


def test_networkx_and_graphml_round_trip(tmp_path: Path) -> None:
    topology = leaf_spine(2, 2, 3, 12.5, 600.0, uplink=25.0, buffer=4096)
    graph = to_networkx(topology)
    file = tmp_path / "net.graphml"
    networkx.write_graphml(graph, file)
    for again in (from_networkx(graph), read_graph(file)):
        assert rows(again) == rows(topology) and again.npus == 6
        assert set(again.buffer.tolist()) == {4096} and set(again.kinds) == set(topology.kinds)


def test_an_undirected_edge_is_two_links_and_text_may_have_units() -> None:
    graph = networkx.Graph()
    graph.add_edge("gpu0", "gpu1", bandwidth="100 Gb/s", latency=7)
    assert rows(from_networkx(graph)) == {("gpu0 → gpu1", 12.5, 7.0), ("gpu1 → gpu0", 12.5, 7.0)}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    (
        ("a.doc", "", "a.doc: got suffix '.doc', expected one of .csv, .yaml, .yml, .graphml"),
        ("a.txt", "", "a.txt: ends too early, expected nodes, switches and links"),
        ("a.csv", "from,to,bandwidth\n", "a.csv:1: missing key 'latency'"),
        ("a.csv", "from,to,bandwidth,latncy\n", r"unknown key 'latncy' \(did you mean 'latency'\?\)"),
        ("a.csv", CSV.replace("25 GB/s", "25"), "a.csv:3: bandwidth: got '25', which has no unit"),
        ("a.csv", CSV.replace("one", "two"), "a.csv:4: way: got 'two', expected one of both, one"),
        ("a.csv", CSV.replace("25 GB/s", "0 GB/s"), "a.csv:3: bandwidth: got '0 GB/s', expected more than 0"),
        ("a.csv", CSV.replace("npu 1", "npu 2"), "has 2 NPUs but none of rank 1"),
        ("a.csv", CSV.replace("npu", "n"), "no node is an NPU, expected names like 'npu 0'"),
        ("a.csv", CSV.replace("npu 1,npu 0", "npu0,npu 1"), "'npu 0' and 'npu0' have the same rank"),
        ("a.csv", CSV.replace("npu 1,npu 0", "npu 1,npu 1"), "a link leads from 'npu 1' to itself"),
        ("a.csv", MANY_KINDS, "a: has 257 kinds of links, expected at most 256"),
        ("a.yaml", "links: 3", "got 3, expected a list of mappings"),
        ("a.yaml", "npus: [a]", "missing key 'links'"),
        ("a.yaml", YAML.replace("latency: 3 ns, way", "latency: fast, way"), "a.yaml:6: latency: got 'fast'"),
        ("a.yaml", YAML.replace("[b, a]", "[b, cc]"), "npus: 'cc' has no link"),
        ("a.yaml", YAML.replace("[b, a]", "[b, b]"), "expected a list of different names"),
        ("a.yaml", YAML.replace("true", "perhaps"), "expected true or false"),
        ("a.graphml", "<graphml>", "a.graphml:1: not XML"),
        ("a.graphml", "hello", "a.graphml:1: not XML"),
    ),
)
def test_errors_name_the_place(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_graph(tmp_path / name)


def test_missing_file_and_missing_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"no such file \(edge list\)"):
        read_graph(tmp_path / "no.csv")
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(InputError, match=r"need networkx: pip install armillary\[graph\]"):
        read_graph(tmp_path / "no.graphml")


def test_a_networkx_edge_must_say_its_bandwidth() -> None:
    graph = networkx.path_graph(2)
    networkx.set_node_attributes(graph, {0: 0, 1: 1}, "npu")
    with pytest.raises(InputError, match="graph: edge '0' → '1': missing key 'bandwidth'"):
        from_networkx(graph)
    networkx.set_node_attributes(graph, {0: 0, 1: 2}, "npu")
    with pytest.raises(InputError, match="expected 0 to 1"):
        from_networkx(graph)
