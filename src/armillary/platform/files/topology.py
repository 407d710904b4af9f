"""Topologies from edge lists (CSV, YAML), networkx graphs and GraphML files.

An edge list has the columns ``from``, ``to``, ``bandwidth`` and ``latency``, with units, and if needed
``buffer``, ``kind`` and ``way`` (``both``, the default, or ``one``). The nodes ``npu 0``, ``npu 1``, … (or
``npu0``, ``gpu0``, …) are NPUs, by rank; all others are switches. A YAML file has a list ``links`` of mappings
with these keys, may list the names of the NPUs in rank order under ``npus``, and may say ``forward: true``
where messages pass through NPUs on the way to others.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base import units
from armillary.base.csv_text import CsvRows
from armillary.base.document import Document, read_document, read_text
from armillary.base.errors import InputError, nearest, one_of
from armillary.base.hints import KeyPath, key_text, show
from armillary.base.units import format_count
from armillary.base.xml_text import check_xml
from armillary.platform.topology.graph import UNBOUNDED, Topology
from armillary.platform.topology.wiring import Wiring

if TYPE_CHECKING:
    import networkx  # type: ignore[import-untyped]

# "npu 0", "npu0", "GPU-0": what exporters of graphs write.
_NPU = re.compile(r"(?:npu|gpu)[ _-]?(\d{1,9})", re.IGNORECASE)
# The first four are required, see `_known`.
_KEYS = ("from", "to", "bandwidth", "latency", "buffer", "kind", "way")
SUFFIXES = (".csv", ".yaml", ".yml", ".graphml", ".topo", ".txt")

MOST_KINDS = 256
"""Kinds of links in one graph, such as ``nvlink``: a machine has a few."""

Edge = tuple[str, str, float, float, int, str]
"""Tail, head, bytes per ns, ns, bytes, kind: one way."""


def read_graph(path: str | Path) -> Topology:
    """Return the topology of a .csv, .yaml or .graphml file, htsim's .topo, or a .txt of ASTRA-sim's ns-3 back end.

    Raises:
        InputError: The file is missing or malformed; names the line, the key and what was expected.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: got suffix '{suffix}', expected {one_of(SUFFIXES)} for a graph")
    if suffix == ".graphml":
        return _read_graphml(path)
    if suffix == ".topo":
        from armillary.platform.files.htsim_topology import read_htsim

        return read_htsim(path)
    if suffix == ".txt":
        from armillary.platform.files.ns3_topology import read_ns3

        return read_ns3(path)[0]
    if suffix == ".csv":
        # skipinitialspace: people align columns after the comma.
        rows = CsvRows(path, read_text(path, "edge list").splitlines(), skipinitialspace=True)
        header = next(rows, [])
        _known(header, f"{path}:1")
        return edges(path.stem, _edges((f"{path}:{rows.line}", row) for row in rows.named(header)))
    document = read_document(path, "edge list", "yaml")
    document.check_keys(("links", "npus", "forward"))
    document.require("links", "a list of {from, to, bandwidth, latency}")
    return listed(document, (), document.data, path.stem)


def listed(document: Document, at: KeyPath, data: Mapping[str, Any], name: str) -> Topology:
    """Return the topology of the keys links, npus and forward of the mapping `data`, which stands at `at`.

    Raises:
        InputError: They are malformed, or as `edges` says.
    """
    links = data["links"]
    if not isinstance(links, list) or not all(isinstance(link, dict) for link in links):
        document.reject((*at, "links"), links, "a list of mappings")

    def place(position: int) -> str:
        here = (*at, "links", position)
        # What is in no file has no lines.
        return document.where(here) if document.path else f"{document.name}: {key_text(here)}"

    for position, link in enumerate(links):
        _known(link, place(position))
    npus, forward = data.get("npus"), data.get("forward", False)
    # Equal names would be two ranks of one NPU.
    if npus is not None and (not isinstance(npus, list) or len(set(map(str, npus))) != len(npus)):
        document.reject((*at, "npus"), npus, "a list of different names")
    if not isinstance(forward, bool):
        document.reject((*at, "forward"), forward, "true or false")
    # A generator: positions are looked up only for the rows that are read.
    rows = ((place(position), link) for position, link in enumerate(links))
    return edges(name, _edges(rows), npus=npus and [str(name) for name in npus], forward=forward)


def edges(
    name: str, links: Iterable[Edge], *, npus: Sequence[str] | None = None, forward: bool = False
) -> Topology:
    """Return the topology of a list of one-way links between named nodes.

    Args:
        name: Of the topology.
        links: See `Edge`.
        npus: Names of the NPUs in rank order; None: by their names, see the module.
        forward: Messages may pass through NPUs.

    Raises:
        InputError: There is no NPU, a rank is missing, or a link has no bandwidth or leads to where it begins.
    """
    links = list(links)
    # Nodes exist by being mentioned; dict.fromkeys keeps the order of first mention, which numbers the
    # switches.
    names = dict.fromkeys(end for link in links for end in link[:2])
    ranked = list(npus) if npus is not None else _ranked(name, names)
    if missing := [npu for npu in ranked if npu not in names]:
        raise InputError(f"{name}: npus: '{missing[0]}' has no link{nearest(missing[0], names)}")
    own = set(ranked)
    switches = [node for node in names if node not in own]
    # NPUs first, in rank order, as `Topology` requires.
    number = {node: i for i, node in enumerate((*ranked, *switches))}
    for tail, head, bandwidth, *_ in links:
        # Routing could never use such a link, and shortest paths would count it.
        if tail == head:
            raise InputError(f"{name}: a link leads from '{tail}' to itself, expected two nodes")
        if not 0 < bandwidth < float("inf"):
            raise InputError(
                f"{name}: link '{tail}' → '{head}': got bandwidth {bandwidth:g}, expected more than 0"
            )
    wiring = Wiring(name, len(ranked))
    wiring.tier("switch", len(switches))
    # A kind at a time: `connect` takes one name for all of its links.
    of_kind: dict[str, list[Edge]] = {}
    for link in links:
        of_kind.setdefault(link[5], []).append(link)
    if len(of_kind) > MOST_KINDS:
        raise InputError(
            f"{name}: has {format_count(len(of_kind))} kinds of links, expected at most {MOST_KINDS}: tables and "
            "pictures have a line for each"
        )
    for kind, alike in of_kind.items():
        tails, heads, rates, delays, room, _ = zip(*alike, strict=True)
        a, b = ([number[node] for node in side] for side in (tails, heads))
        # Both directions are in the list already.
        wiring.connect(a, b, kind, rates, delays, buffer=room, one_way=True)
    return wiring.topology(forwards=forward, labels=tuple(number))


def from_networkx(graph: networkx.Graph, name: str = "graph", *, forward: bool = False) -> Topology:
    """Return the topology of a networkx graph; an undirected edge is a link each way.

    Nodes are NPUs if their attribute ``npu`` is their rank, or else by name as in an edge list. Edges have
    ``bandwidth`` and ``latency``, and may have ``buffer`` and ``kind``: numbers in bytes per ns (GB/s), ns and
    bytes, or text with a unit.

    Raises:
        InputError: An edge lacks a value, or as `edges` says.
    """
    # Nodes without the attribute are switches, or NPUs by name if no node has it.
    ranks = {str(node): data["npu"] for node, data in graph.nodes(data=True) if data.get("npu") is not None}
    for node, rank in ranks.items():
        if not isinstance(rank, Integral):
            raise InputError(
                f"{name}: node '{node}': npu: got {show(rank)}, expected its rank, a whole number"
            )
    if ranks and sorted(ranks.values()) != list(range(len(ranks))):
        raise InputError(
            f"{name}: got NPU ranks {show(sorted(ranks.values()))}, expected 0 to {len(ranks) - 1}"
        )
    links: list[Edge] = []
    for tail, head, data in graph.edges(data=True):
        where = f"{name}: edge '{tail}' → '{head}'"
        edge = _edge(where, {"from": tail, "to": head} | data)
        links.append(edge)
        # An undirected edge is a link each way, with equal rates.
        if not graph.is_directed():
            links.append((edge[1], edge[0], *edge[2:]))
    return edges(name, links, npus=sorted(ranks, key=ranks.__getitem__) if ranks else None, forward=forward)


def to_networkx(topology: Topology) -> networkx.MultiDiGraph:
    """Return a topology as a networkx graph with the names and attributes that `from_networkx` reads."""
    graph = _networkx().MultiDiGraph()
    for node in range(topology.nodes):
        rank = {"npu": node} if node < topology.npus else {}
        graph.add_node(topology.node_name(node), **rank)
    # Links that are down have no bandwidth, which `from_networkx` would refuse.
    for link in np.flatnonzero(topology.bandwidth > 0).tolist():
        graph.add_edge(
            topology.node_name(int(topology.tail[link])),
            topology.node_name(int(topology.head[link])),
            bandwidth=float(topology.bandwidth[link]),
            latency=float(topology.latency[link]),
            buffer=int(topology.buffer[link]),
            kind=topology.kinds[topology.kind[link]],
        )
    return graph


def _networkx() -> Any:
    try:
        import networkx
    except ImportError as error:
        raise InputError(
            "graphs of networkx and GraphML files need networkx: pip install armillary[graph]"
        ) from error
    return networkx


def _read_graphml(path: Path) -> Topology:
    library = _networkx()
    # For its errors: a file that is missing or not text.
    check_xml(read_text(path, "GraphML file"), path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = library.read_graphml(path)
    # What networkx raises for broken files differs by version, and so does what it warns of.
    except Exception as error:
        raise InputError(f"{path}: not valid GraphML: {error}") from None
    return from_networkx(graph, path.stem)


def _known(keys: Iterable[str], where: str) -> None:
    keys = list(keys)
    for key in keys:
        if key not in _KEYS:
            raise InputError(
                f"{where}: unknown key '{key}'{nearest(str(key), _KEYS)}; known keys: {', '.join(_KEYS)}"
            )
    for key in _KEYS[:4]:
        # Bandwidth and latency, too: a link without them has no time.
        if key not in keys:
            raise InputError(f"{where}: missing key '{key}'; known keys: {', '.join(_KEYS)}")


def _edges(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterable[Edge]:
    for where, row in rows:
        edge = _edge(where, row)
        yield edge
        # None: a row of a CSV file that ends early.
        way = row.get("way") or "both"
        if way not in ("both", "one"):
            raise InputError(f"{where}: way: got {show(way)}, expected one of both, one")
        if way == "both":
            yield (edge[1], edge[0], *edge[2:])


def _edge(where: str, row: Mapping[str, Any]) -> Edge:
    """Return a link of a row; a number has no unit in a networkx graph only."""

    def read(key: str, parse: Callable[[object], float], default: float | None = None) -> float:
        value = row.get(key)
        if value is None or value == "":
            if default is not None:
                return default
            raise InputError(f"{where}: missing key '{key}'")
        # Only the place of a networkx edge holds "edge '", see `from_networkx`; there, numbers are ns and
        # bytes per ns.
        if isinstance(value, int | float) and not isinstance(value, bool) and where.count("edge '"):
            if not 0 <= value < 2**63:
                raise InputError(f"{where}: {key}: got {value}, expected 0 or more")
            return value
        try:
            return parse(value)
        except ValueError as error:
            raise InputError(f"{where}: {key}: {error}") from None

    for end in ("from", "to"):
        if row.get(end) in (None, ""):
            raise InputError(f"{where}: missing key '{end}'")
    bandwidth = read("bandwidth", units.parse_bandwidth)
    if not 0 < bandwidth < float("inf"):
        raise InputError(
            f"{where}: bandwidth: got {show(row['bandwidth'])}, expected more than 0, e.g. '400 GB/s'; a link that is "
            "down is one of the topology's failures"
        )
    return (
        str(row["from"]),
        str(row["to"]),
        bandwidth,
        read("latency", units.parse_time),
        int(read("buffer", units.parse_bytes, UNBOUNDED)),
        str(row.get("kind") or "link"),
    )


def _ranked(name: str, names: Iterable[str]) -> list[str]:
    ranks: dict[int, str] = {}
    for node in names:
        match = _NPU.fullmatch(node)
        # setdefault returns who has the rank already: itself, or another.
        if match and (other := ranks.setdefault(int(match[1]), node)) != node:
            raise InputError(f"{name}: '{other}' and '{node}' have the same rank")
    if not ranks:
        raise InputError(f"{name}: no node is an NPU, expected names like 'npu 0' or a list npus")
    # Ranks without a gap: len(ranks) of them, 0 included.
    for rank in range(len(ranks)):
        if rank not in ranks:
            raise InputError(f"{name}: has {len(ranks)} NPUs but none of rank {rank}")
    return [ranks[rank] for rank in range(len(ranks))]
