"""A network that was drawn on the page: nested dimensions, or a graph; what may be said of it, and what it looks like.

Keys by which a platform file names other files are none of them: a page that somebody got to ask must not find out
what is in those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from armillary.base.document import Document
from armillary.base.errors import InputError, nearest
from armillary.base.hints import show
from armillary.platform.files.preset import is_preset, read_preset
from armillary.platform.files.topology_schema import KINDS, read_topology
from armillary.platform.topology.failures import degraded
from armillary.platform.topology.graph import UNBOUNDED, Topology
from armillary.platform.topology.layout import draw
from armillary.platform.topology.sketch import Panel

DIMENSION = ("name", "topology", "size", "shape", "bandwidth", "per", "latency")
"""What a drawn dimension says."""
MOST_DIMENSIONS = 8
MOST_NAME = 200
"""Characters of a name."""
MOST_LINKS = 1024
"""Links that are drawn one by one: 512 devices take seconds to minutes a step, and an address holds no more."""
GRAPHS = tuple(kind for kind in KINDS if kind not in ("file", "infragraph"))
_OF_FILES = ("table",)


def graph_keys(kind: str) -> list[str]:
    """Return the keys that a drawn graph of a kind may have."""
    return [key for key in KINDS[kind].model_fields if key not in _OF_FILES]


def check_network(document: Document) -> list[dict[str, Any]] | None:
    """Return the dimensions that were drawn; what their values are, the reader of platform files checks."""
    given = document.data.get("network")
    return None if given is None else _dimensions(document, ("network",), given)


def _dimensions(document: Document, at: tuple[str, ...], given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_DIMENSIONS:
        document.reject(at, given, f"a list of 1 to {MOST_DIMENSIONS} dimensions")
    for place, each in enumerate(given):
        if not isinstance(each, dict):
            document.reject((*at, place), each, f"a mapping with the keys {', '.join(DIMENSION)}")
        for key, value in each.items():
            if key not in DIMENSION:
                raise document.error((*at, place, key), f"unknown key{nearest(str(key), DIMENSION)}")
            if not isinstance(value, str | int | float | list) or len(str(value)) > MOST_NAME:
                document.reject((*at, place, key), value, f"a value of at most {MOST_NAME} characters")
    return [dict(each) for each in given]


def check_topology(document: Document) -> dict[str, Any] | None:
    """Return the graph that was drawn; what its values are, the reader of platform files checks."""
    given = document.data.get("topology")
    if given is None:
        return None
    if document.data.get("network") is not None:
        raise document.error(("topology",), "expected a network or a topology, not both")
    if not isinstance(given, dict):
        document.reject(("topology",), given, "a mapping with a kind")
    kind = document.choice(("topology", "kind"), given.get("kind"), GRAPHS)
    known = graph_keys(kind)
    for key, value in given.items():
        if key not in known:
            raise document.error(
                ("topology", key), f"unknown key{nearest(str(key), known)}; known keys: {', '.join(known)}"
            )
        if isinstance(value, list) and len(value) > MOST_LINKS:
            raise document.error(
                ("topology", key), f"got {len(value):,} entries, expected at most {MOST_LINKS:,} here"
            )
    if kind == "dimensions":
        _dimensions(document, ("topology", "network"), given.get("network"))
    return dict(given)


def machine_with(preset: str, topology: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a platform file holds of a machine with the devices of a preset and a graph as its network."""
    known = read_preset(preset)
    base = known.document.data["platform"]
    held = {key: base[key] for key in ("npu", "compute") if key in base}
    software = {"software": known.software} if known.software else {}
    return {**software, "platform": {**held, "topology": dict(topology)}}


def picture(data: Mapping[str, Any], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return what a graph looks like, and its links one by one where they are few enough to be drawn so.

    Args:
        data: ``topology``, or the name of a preset that has one as ``machine``.
        tell: As of every answer; nothing is told.
    """
    document = Document("question", dict(data))
    document.check_keys(("machine", "topology"))
    given = check_topology(document)
    if given is None:
        given = _of_preset(document)
    held = Document("platform file", {"platform": {"topology": given}})
    network = read_topology(held, ("platform", "topology"), given)
    topology = degraded(network.topology, network.failures)
    return {
        "npus": topology.npus,
        "nodes": topology.nodes,
        "links": topology.links,
        "panels": [_panel(panel) for panel in draw(topology)],
        "edges": _edges(network.topology),
    }


def _of_preset(document: Document) -> dict[str, Any]:
    name = document.require("machine")
    if isinstance(name, str) and len(name) <= MOST_NAME and is_preset(name):
        found = read_preset(name).document.data["platform"].get("topology")
        if found is not None:
            return dict(found)
    raise InputError(f"machine {show(name)}: expected a preset whose network is a graph, or a topology")


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "title": panel.title,
        "notes": panel.notes,
        "marks": [[*mark.at, mark.sort, mark.label, mark.tip] for mark in panel.marks],
        "lines": [
            [*line.start, *line.control, *line.end, line.kind, line.width, line.dashed, line.tip]
            for line in panel.lines
        ],
    }


def _edges(topology: Topology) -> dict[str, Any] | None:
    """Return the same graph as ``kind: edges``, None if it has too many links for that, or planes."""
    if topology.links > 2 * MOST_LINKS or topology.planes > 1:
        return None
    links = list(_both_ways(topology))
    if len(links) > MOST_LINKS:
        return None
    forward = bool(topology.forwards[: topology.npus].any())
    return {"kind": "edges", "links": links, **({"forward": True} if forward else {})}


def _both_ways(topology: Topology) -> Iterator[dict[str, Any]]:
    """Yield the links, one entry for what leads as fast in both directions."""
    found = [
        (
            int(topology.tail[link]), int(topology.head[link]), float(topology.bandwidth[link]),
            float(topology.latency[link]), int(topology.buffer[link]), topology.kinds[topology.kind[link]],
        )
        for link in range(topology.links)
    ]  # fmt: skip
    left = Counter(found)
    for tail, head, *rest in found:
        one, back = (tail, head, *rest), (head, tail, *rest)
        if not left[one]:
            continue
        left[one] -= 1
        both = left[back] > 0
        left[back] -= both
        bandwidth, latency, buffer, kind = rest
        yield {
            "from": topology.node_name(tail),
            "to": topology.node_name(head),
            "bandwidth": f"{bandwidth:.12g} GB/s",
            "latency": f"{latency / 1000:.12g} us" if latency >= 1000 else f"{latency:.12g} ns",
            **({"buffer": f"{buffer} B"} if buffer < UNBOUNDED else {}),
            **({"kind": kind} if kind != "link" else {}),
            **({} if both else {"way": "one"}),
        }


def graph_kinds() -> dict[str, Any]:
    """Return the keys of each kind of graph that are single values or sides, for fields of a page."""
    found = {}
    for kind in GRAPHS:
        if kind in ("edges", "dimensions"):
            continue
        schema = KINDS[kind].model_json_schema()
        needed = schema.get("required", [])
        fields = [
            {"key": key, "help": schema["properties"][key].get("description", ""), "needed": key in needed}
            for key in graph_keys(kind)
            if key not in ("kind", "failures", "assumed", "in_network", "seed")
        ]
        # What every kind may have is declared first, and is asked last.
        general = [each for each in fields if each["key"] in ("buffer", "routing")]
        own = sorted((each for each in fields if each not in general), key=lambda each: not each["needed"])
        found[kind] = [*own, *general]
    return found
