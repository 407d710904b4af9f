"""Differences between two traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.trace import columns as c
from armillary.trace._encode import encode
from armillary.trace.columns import I64, STRING, type_name
from armillary.trace.graph import Graph, distinct, duration_ns, exact_sum, locate
from armillary.trace.json_layout import node_to_dict, plain
from armillary.trace.match import Codes, match, occurrence, text_codes
from armillary.trace.node import Node, node_at
from armillary.trace.structure import owners
from armillary.trace.trace import Trace

EXAMPLES = 3
_ATTRIBUTE = "attribute "
_SPARE = 64
"""Added to the kind of an attribute with a doc string, whose value is then a code."""


def diff(one: Trace, two: Trace) -> dict[str, Any]:
    """Return how `two` differs from `one`, as plain JSON values.

    Keys: same, ranks (of both) and graphs: for each pair of distinct graphs that some ranks run in the one and the
    other trace, the result of `diff_graphs` and these ranks.
    """
    ranks = min(one.n_ranks, two.n_ranks)
    # Ranks that run the same two graphs differ alike: each pair of graphs is compared once.
    key = one.rank_graph[:ranks].astype(np.int64) * len(two.graphs) + two.rank_graph[:ranks]
    pairs, of_pair = np.unique(key, return_inverse=True)
    order = np.argsort(of_pair, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(of_pair, minlength=len(pairs)))[:-1])
    graphs = []
    for pair, part in zip(pairs.tolist(), parts, strict=True):
        first, second = divmod(pair, len(two.graphs))
        graphs.append({"ranks": part.tolist(), **diff_graphs(one.graphs[first], two.graphs[second])})
    same = one.n_ranks == two.n_ranks and all(graph["same"] for graph in graphs)
    return {"same": same, "ranks": [one.n_ranks, two.n_ranks], "graphs": graphs}


def diff_graphs(one: Graph, two: Graph) -> dict[str, Any]:
    """Return how one graph differs from another, as plain JSON values; the order of nodes does not count.

    Keys: same, sources, nodes, time_ns, bytes (sent or reduced), flops (each of both), and where they are not
    the same matched (nodes by id and by name), added and removed (count, types, examples) and changed: by field
    or attribute the count and examples with the values before and after.
    """
    facts: dict[str, Any] = {
        "same": True,
        "sources": [one.source, two.source],
        "nodes": [one.n_nodes, two.n_nodes],
        "time_ns": [exact_sum(duration_ns(graph)) for graph in (one, two)],
        "bytes": [exact_sum(graph.ints("comm_size")) for graph in (one, two)],
        "flops": [exact_sum(graph.ints("num_ops")) for graph in (one, two)],
    }
    # Equal bytes decide the common case without matching nodes.
    if one is two or encode(one) == encode(two):
        return facts
    codes: Codes = {}
    partner, counts = match(one, two, codes)
    mine = np.flatnonzero(partner >= 0)
    pairs = Pairs(one, two, mine, partner[mine], codes)
    absent = np.ones(two.n_nodes, dtype=np.bool_)
    absent[pairs.theirs] = False
    facts["matched"] = counts
    facts["removed"] = _listed(one, np.flatnonzero(partner < 0))
    facts["added"] = _listed(two, np.flatnonzero(absent))
    facts["changed"] = {
        field: {"count": len(at), "examples": [_example(pairs, field, i) for i in at[:EXAMPLES].tolist()]}
        for field, at in _changes(pairs)
        if len(at)
    }
    heads = {"version": (one.version, two.version), "metadata": (one.metadata, two.metadata)}
    for field, (before, after) in heads.items():
        if before != after:
            example = {"before": _plain(before), "after": _plain(after)}
            facts["changed"][f"file {field}"] = {"count": 1, "examples": [example]}
    facts["same"] = not (facts["removed"]["count"] or facts["added"]["count"] or facts["changed"])
    return facts


@dataclass(frozen=True)
class Pairs:
    """Partners: positions `mine` in `one` and `theirs` in `two`."""

    one: Graph
    two: Graph
    mine: I64
    theirs: I64
    codes: Codes


def _plain(value: Any) -> Any:
    return [[name, kind, plain(item)] for name, kind, item in value] if isinstance(value, list) else value


def _listed(graph: Graph, at: I64) -> dict[str, Any]:
    types = Counter(graph.types[at].tolist())
    examples = [{"id": int(graph.ids[i]), "name": graph.name(i)} for i in at[:EXAMPLES].tolist()]
    return {
        "count": len(at),
        "types": {type_name(number): count for number, count in sorted(types.items())},
        "examples": examples,
    }


def _example(pairs: Pairs, field: str, at: int) -> dict[str, Any]:
    """Return one change with the values before and after, and their kinds if the values look alike."""
    one, two = int(pairs.mine[at]), int(pairs.theirs[at])
    nodes = [node_to_dict(node_at(graph, i)) for graph, i in ((pairs.one, one), (pairs.two, two))]
    # `node_to_dict` leaves defaults out, but an example shows both values.
    defaults = node_to_dict(Node()) | {
        "ctrl_deps": [],
        "data_deps": [],
        "start_micros": 0,
        "duration_micros": 0,
    }
    before, after = (node.get(field, defaults.get(field)) for node in nodes)
    if field.startswith(_ATTRIBUTE):
        name = field.removeprefix(_ATTRIBUTE)
        found = [[rest for key, *rest in node["attrs"] if key == name] for node in nodes]
        before, after = (rest[0][1] if rest else None for rest in found)
        # Equal values that differ in kind or doc string: show these as well.
        if before == after:
            before, after = (" ".join(map(str, rest[0])) if rest else None for rest in found)
    return {"id": int(pairs.one.ids[one]), "name": pairs.one.name(one), "before": before, "after": after}


def _changes(pairs: Pairs) -> Iterator[tuple[str, I64]]:
    """Yield every field or attribute, and the pairs (indices) that differ in it."""
    one, two, mine, theirs = pairs.one, pairs.two, pairs.mine, pairs.theirs
    for field in ("ids", "types", "start_micros", "duration_micros"):
        differ = getattr(one, field)[mine] != getattr(two, field)[theirs]
        yield field.removesuffix("s") if field in ("ids", "types") else field, np.flatnonzero(differ)
    names = [
        text_codes(g, g.columns.rows[c.NAME_AT, g.first : g.first + g.n_nodes][at], pairs.codes)
        for g, at in ((one, mine), (two, theirs))
    ]
    yield "name", np.flatnonzero(names[0] != names[1])
    yield "ctrl_deps", _changed_dependencies(pairs, "ctrl")
    yield "data_deps", _changed_dependencies(pairs, "data")
    sides = [_io(g, pairs.codes)[:, at] for g, at in ((one, mine), (two, theirs))]
    for side, field in enumerate(("inputs", "outputs")):
        part = slice(3 * side, 3 * side + 3)
        yield field, np.flatnonzero(np.any(sides[0][part] != sides[1][part], axis=0))
    yield from _changed_attributes(pairs)


def _io(graph: Graph, codes: Codes) -> I64:
    """Return (6, nodes) codes of values, shapes, types of inputs and outputs, -1 where absent."""
    result = np.full((6, graph.n_nodes), -1, dtype=np.int64)
    low, high = np.searchsorted(graph.columns.io[0], (graph.first, graph.first + graph.n_nodes))
    frame, side, *texts = graph.columns.io[:, low:high]
    for part, strings in enumerate(texts):
        result[3 * side + part, frame - graph.first] = text_codes(graph, strings, codes)
    return result


def _changed_dependencies(pairs: Pairs, kind: str) -> I64:
    """Return the pairs that do not wait for the same nodes; their order does not count."""
    one, two = pairs.one, pairs.two
    n, other = one.n_nodes, two.n_nodes
    back = np.arange(other) + n
    back[pairs.theirs] = pairs.mine
    # Both sides express a dependency as one token: the position in `one`, n + position in `two`
    # for a node without partner, or a number for an id that neither graph has.
    tokens = (np.arange(n), back)  # by position; then ids that neither has
    written = [getattr(graph, f"{kind}_deps") for graph in (one, two)]
    places = [[locate(graph.ids, deps) for graph in (one, two)] for deps in written]
    missing = np.unique(
        np.concatenate([deps[np.maximum(*at) < 0] for deps, at in zip(written, places, strict=True)])
    )
    span = n + other + len(missing) + 1
    keys = []
    for own, (graph, positions) in enumerate(((one, pairs.mine), (two, pairs.theirs))):
        pair_of = np.full(graph.n_nodes, -1, dtype=np.int64)
        pair_of[positions] = np.arange(len(positions))
        token = n + other + np.searchsorted(missing, written[own])
        # The own graph last: what it knows under that id overrides.
        for side in (1 - own, own):  # an absent id takes the node of the other graph
            found = places[own][side] >= 0
            token[found] = tokens[side][places[own][side][found]]
        owner = pair_of[owners(getattr(graph, f"{kind}_ptr"))]
        keys.append(distinct((owner * span + token)[owner >= 0]))
    # (pair, token) keys that only one side has; their pairs have changed.
    changed = np.setxor1d(keys[0], keys[1], assume_unique=True)
    return distinct(changed // span)


def _changed_attributes(pairs: Pairs) -> Iterator[tuple[str, I64]]:
    names: dict[str, int] = {}
    tables = [
        _attributes(graph, at, names, pairs.codes)
        for graph, at in ((pairs.one, pairs.mine), (pairs.two, pairs.theirs))
    ]
    # (pair, name, occurrence) as one integer: nodes may have an attribute several times.
    width = len(names) + 1
    deepest = max((int(table[1].max(initial=0)) for table in tables), default=0) + 1
    keys = [(table[0] * width + table[2]) * deepest + table[1] for table in tables]
    place = locate(keys[1].view(np.uint64), keys[0].view(np.uint64))
    back = locate(keys[0].view(np.uint64), keys[1].view(np.uint64))
    both = np.flatnonzero(place >= 0)
    differ = np.any(tables[0][3:, both] != tables[1][3:, place[both]], axis=0)
    changed = np.concatenate([keys[0][both[differ]], keys[0][place < 0], keys[1][back < 0]]) // deepest
    changed = distinct(np.sort(changed))
    name, at = changed % width, changed // width
    texts = list(names)
    for code in np.unique(name).tolist():
        yield _ATTRIBUTE + texts[code], at[name == code]


def _attributes(graph: Graph, positions: I64, names: dict[str, int], codes: Codes) -> I64:
    """Return (5, attributes): pair, number of earlier attributes of the same name, name, kind, value."""
    columns = graph.columns
    pair_of = np.full(graph.n_nodes, -1, dtype=np.int64)
    pair_of[positions] = np.arange(len(positions))
    pair = pair_of[owners(graph.attr_ptr)]
    keep = pair >= 0
    to = np.array([names.setdefault(name, len(names)) for name in columns.names], dtype=np.int64)
    name = to[graph.attr_name] if len(to) else graph.attr_name.astype(np.int64)
    kind, value = graph.attr_kind.astype(np.int64), graph.attr_value.copy()
    text = (kind & 1 == 1) & (kind >= STRING)
    value[text] = text_codes(graph, value[text], codes)
    lists = np.flatnonzero((kind > 0) & (kind & 1 == 0))
    for at in lists.tolist():
        low, high = columns.list_ptr[value[at] : value[at] + 2].tolist()
        items = columns.items[low:high]
        content: Any = tuple(columns.raws(items)) if kind[at] > STRING else (items.tobytes(),)
        value[at] = codes.setdefault(content, len(codes))
    low = int(columns.rows[c.ATTR_AT, graph.first])
    documented = np.flatnonzero((columns.docs[0] >= low) & (columns.docs[0] < low + len(kind)))
    for at, string in columns.docs[:, documented].T.tolist():
        content = (int(kind[at - low]), int(value[at - low]), columns.raw(string))
        # A doc string counts as part of the value; the spare bit keeps it apart from plain ones.
        kind[at - low], value[at - low] = kind[at - low] + _SPARE, codes.setdefault(content, len(codes))
    rows = np.stack([pair, pair, name, kind, value])[:, keep]
    rows[1] = occurrence(rows[0] * (len(names) + 1) + rows[2])
    return rows
