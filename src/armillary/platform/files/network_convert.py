"""Networks from one file format to another: study, InfraGraph, GraphML, ASTRA-sim, its ns-3 back end."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from armillary.base.counts import check_count
from armillary.base.errors import InputError
from armillary.base.text import xml_document
from armillary.platform.files.astra_sim import read_dimensions
from armillary.platform.files.astra_sim_keys import NETWORK_KEYS
from armillary.platform.files.htsim_write import write_htsim
from armillary.platform.files.infragraph_parts import MOST_PARTS
from armillary.platform.files.infragraph_write import infragraph_of
from armillary.platform.files.native import load_platform, platform_document
from armillary.platform.files.network_graph import load_network
from armillary.platform.files.ns3_topology import write_ns3
from armillary.platform.files.topology import SUFFIXES, read_graph, to_networkx
from armillary.platform.network import TOPOLOGIES, Dimension, port
from armillary.platform.topology.graph import UNBOUNDED, Topology
from armillary.platform.topology.grids import from_dimensions
from armillary.platform.topology.network import Network
from armillary.platform.topology.recognise import recognised

FormatName = Literal["study", "infragraph", "graphml", "astra-sim", "ns3", "htsim"]
FORMATS: tuple[FormatName, ...] = ("study", "infragraph", "graphml", "astra-sim", "ns3", "htsim")


@dataclass(frozen=True)
class Written:
    """A network as a file: its text, what was assumed for it, and what of the machine it does not say."""

    text: str
    assumed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Described:
    dimensions: tuple[Dimension, ...]
    network: Network | None
    rest: tuple[str, ...] = ()

    @property
    def graph(self) -> Topology:
        return self.network.topology if self.network else from_dimensions(self.dimensions)


def convert_network(machine: str | Path, to: FormatName) -> Written:
    """Return the network of a machine in another format.

    Args:
        machine: A study or platform file, a preset, an InfraGraph, an edge list, GraphML, ASTRA-sim's network file, or
            a topology of htsim or of its ns-3 back end.
        to: ``study`` (a platform file), ``infragraph``, ``graphml``, ``astra-sim`` (its analytical network file),
            ``ns3`` (the physical topology of its ns-3 back end) or ``htsim`` (a ``.topo`` of its HTSim back end).

    Raises:
        InputError: The file is missing or malformed, or the format cannot say what it describes.
    """
    if to not in FORMATS:
        raise InputError(f"format: got '{to}', expected one of {', '.join(FORMATS)}")
    found = _read(machine)
    assumed = found.network.assumed if found.network else ()
    if to == "astra-sim":
        text, lost = _astra_sim(found, str(machine))
    elif to == "study":
        text, lost = _study(found)
    elif to in ("ns3", "htsim"):
        text, lost = (write_ns3 if to == "ns3" else write_htsim)(found.graph)
        lost += _of_network(found.network) if found.network else []
    else:
        text, lost = _graphml(found.graph) if to == "graphml" else _infragraph(found.graph)
        if found.network:
            lost = [*lost, *_of_network(found.network)]
        if not found.network or found.network.topology.forwards[: found.network.topology.npus].any():
            # A switch joins NPUs of one dimension; to change it, an NPU passes the message on.
            lost = [*lost, "that NPUs pass on messages for others"] if len(found.dimensions) != 1 else lost
    return Written(text, assumed, (*found.rest, *lost))


def convert_graph(topology: Topology, to: Literal["astra-sim", "ns3", "htsim"], name: str) -> Written:
    """Return a graph as a network file of ASTRA-sim; `name` is what errors call it.

    Raises:
        InputError: The format cannot say what it is.
    """
    if to in ("ns3", "htsim"):
        text, lost = (write_ns3 if to == "ns3" else write_htsim)(topology)
    else:
        text, lost = _astra_sim(_Described((), Network(topology, "ecmp")), name)
    return Written(text, (), tuple(lost))


def _read(machine: str | Path) -> _Described:
    path = Path(machine)
    if path.suffix.lower() in SUFFIXES and path.suffix.lower() not in (".yaml", ".yml"):
        return _Described((), Network(read_graph(path), "ecmp"))
    document = platform_document(machine)
    data: Any = document.data
    if all(key in data for key in NETWORK_KEYS):
        return _Described(read_dimensions(machine, []), None)
    if "links" in data and path.suffix.lower() in SUFFIXES and "network" not in data:
        return _Described((), Network(read_graph(path), "ecmp"))
    keys = data.get("platform", data)
    # What is not of the network stays behind, by its names.
    rest = (
        [key for key in keys if key not in ("network", "topology", "preset")]
        if isinstance(keys, dict)
        else []
    )
    rest += [key for key in data if "platform" in data and key not in ("platform", "profile", "time_unit")]
    if (isinstance(keys, dict) and "preset" in keys) or (document.path is None and "preset" in data):
        rest.append("all but the network of the preset")
    network = load_network(machine)
    if network is not None:
        return _Described(network.topology.dimensions, network, tuple(rest))
    return _Described(load_platform(machine).dimensions, None, tuple(rest))


def _of_network(network: Network) -> list[str]:
    lost = []
    if network.failures:
        lost.append("failures")
    if network.in_network:
        lost.append("what switches do with data")
    if network.routing not in ("ecmp", "dimension-order", "widest"):
        lost.append(f"routing {network.routing}")
    return lost


def _infragraph(topology: Topology) -> tuple[str, list[str]]:
    data, lost = infragraph_of(topology)
    return yaml.safe_dump(data, sort_keys=False, width=110), lost


def _graphml(topology: Topology) -> tuple[str, list[str]]:
    graph = to_networkx(topology)
    import networkx  # type: ignore[import-untyped]

    stream = io.BytesIO()
    networkx.write_graphml(graph, stream)
    lost = ["which NPUs share a host"] if topology.host else []
    return xml_document(stream.getvalue().decode()) + "\n", lost


def _study(found: _Described) -> tuple[str, list[str]]:
    """Return a platform file: dimensions as such, a graph as its list of links."""
    if found.dimensions and (not found.network or found.network.topology.dimensions):
        return _dumped({"network": [_keys(each) for each in found.dimensions]}), []
    assert found.network is not None
    topology, name = found.network.topology, found.network.topology.node_name
    check_count(topology.links, MOST_PARTS, f"{topology.called}: links", "a smaller machine")
    rows, done = [], set()
    columns = (
        topology.tail,
        topology.head,
        topology.kind,
        topology.latency,
        topology.bandwidth,
        topology.buffer,
    )
    listed = list(zip(*(column.tolist() for column in columns), strict=True))
    both = (
        {row for row in listed if (row[1], row[0], *row[2:]) in set(listed)}
        if len(set(listed)) == len(listed)
        else set()
    )
    for tail, head, kind, latency, rate, room in listed:
        if rate <= 0 or (head, tail, kind, latency, rate, room) in done:
            continue
        row = {
            "from": name(tail), "to": name(head), "bandwidth": _text(rate, "GB/s"), "latency": _text(latency, "ns"),
            "kind": topology.kinds[kind],
        }  # fmt: skip
        if room < UNBOUNDED:
            row["buffer"] = f"{room} B"
        if (tail, head, kind, latency, rate, room) in both:
            done.add((tail, head, kind, latency, rate, room))
        else:
            row["way"] = "one"
        rows.append(row)
    graph: dict[str, Any] = {
        "kind": "edges",
        "npus": [name(npu) for npu in range(topology.npus)],
        "links": rows,
    }
    if topology.forwards[: topology.npus].any():
        graph["forward"] = True
    if found.network.routing != "ecmp":
        graph["routing"] = found.network.routing
    keys: dict[str, Any] = {"topology": graph}
    if 1 < topology.host < topology.npus:
        keys["collectives"] = {"hierarchy": [topology.host, topology.npus // topology.host]}
    lost = [text for text in _of_network(found.network) if not text.startswith("routing")]
    return _dumped(keys), lost


def _keys(dimension: Dimension) -> dict[str, Any]:
    keys: dict[str, Any] = {"name": dimension.name, "topology": dimension.topology, "size": dimension.size}
    both = port(dimension)
    whole = port(replace(dimension, port=None))
    if both == whole:
        keys |= {"bandwidth": _text(dimension.bandwidth, "GB/s"), "per": "link"}
    elif both.out == both.into:
        keys |= {"bandwidth": _text(both.out, "GB/s"), "per": "npu"}
    else:
        keys |= {"bandwidth": {"up": _text(both.out, "GB/s"), "down": _text(both.into, "GB/s")}, "per": "npu"}
    keys["latency"] = _text(dimension.latency, "ns")
    if (work := dimension.in_network) is not None:
        keys["in_network"] = {"latency": _text(work.latency, "ns")}
        if work.rate:
            keys["in_network"]["rate"] = _text(work.rate, "GB/s")
        if work.operations:
            keys["in_network"]["operations"] = work.operations
    return keys


def _astra_sim(found: _Described, name: str) -> tuple[str, list[str]]:
    dimensions = found.dimensions or recognised(found.graph)
    if not dimensions:
        raise InputError(
            f"{name}: a graph that is no nesting of up to three Rings, FullyConnected and Switches of alike links in "
            "order of rank; ASTRA-sim's network files know no other"
        )
    columns: dict[str, list[Any]] = {key: [] for key in NETWORK_KEYS}
    lost = []
    for each in dimensions:
        topology = TOPOLOGIES[each.topology].astra_sim
        if not topology:
            raise InputError(
                f"{name}: dimension {each.name}: {each.topology}, which ASTRA-sim's network files do not know"
            )
        both = port(each)
        if both.out != both.into:
            raise InputError(
                f"{name}: dimension {each.name}: bandwidths differ by direction, which ASTRA-sim's network files "
                "cannot say"
            )
        # GiB/s of one link, as that program counts.
        for key, value in zip(
            NETWORK_KEYS, (topology, each.size, each.bandwidth * 10**9 / 2**30, each.latency), strict=True
        ):
            columns[key].append(value)
        if each.in_network is not None:
            lost.append(f"in_network of {each.name}")
    return yaml.safe_dump(columns, sort_keys=False, default_flow_style=None, width=110), lost


def _text(value: float, unit: str) -> str:
    """Return a quantity that reads as this very number."""
    # Readers take exponents of two digits: less than 1e-99 ns is no time.
    return f"{value if value >= 1e-99 else 0.0!r} {unit}"


def _dumped(data: dict[str, Any]) -> str:
    # Escaped: names may hold what turns the direction of text.
    return yaml.safe_dump(data, sort_keys=False, width=110)
