"""Templates against the same graph written node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from armillary.trace import Node, NodeType, graph_of, nodes_of
from armillary.trace.placing import GraphOfTemplates, graphs_of
from armillary.trace.templates import LABEL, Template

Spec = list[tuple[str, list[int], bool, bool]]
"""Name, nodes before it in the template, whether it hangs on the port, whether it has the label."""


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    found: Spec = []
    for index in range(draw(st.integers(1, 5))):
        before = draw(st.lists(st.integers(0, index - 1), max_size=3)) if index else []
        found.append((draw(st.sampled_from("ab")), before, draw(st.booleans()), draw(st.booleans())))
    return found


def _attributes(name: str, labelled: bool, label: int) -> list[tuple[str, str, object]]:
    sized: list[tuple[str, str, object]] = [("sizes", "int64_list", [len(name), 7]), ("text", "string", name)]
    return [*sized, ("label", "int32", label)] if labelled else sized


def _template(spec: Spec) -> Template:
    template = Template()
    for name, before, open_, labelled in spec:
        attributes = _attributes(name, labelled, LABEL)
        template.add(name, NodeType.COMP_NODE, attributes, before, ("in",) if open_ else ())
    return template


def _slowly(placed: Sequence[tuple[Spec, list[int], int]]) -> list[Node]:
    nodes: list[Node] = []
    for spec, parents, label in placed:
        base = len(nodes)
        for name, before, open_, labelled in spec:
            data = {base + each for each in before} | (set(parents) if open_ else set())
            node = Node(len(nodes), name, NodeType.COMP_NODE, (), sorted(data))
            node.attrs.extend(_attributes(name, labelled, label))
            nodes.append(node)
    return nodes


@given(st.lists(specs(), min_size=1, max_size=3), st.data())
def test_graph_of_templates_equals_the_nodes_one_by_one(kinds: list[Spec], data: st.DataObject) -> None:
    templates = [_template(spec) for spec in kinds]
    graph_of_templates = GraphOfTemplates("tiles")
    placed = []
    for _ in range(data.draw(st.integers(0, 6))):
        which = data.draw(st.integers(0, len(kinds) - 1))
        parents = (
            data.draw(st.lists(st.integers(0, max(graph_of_templates.n_nodes - 1, 0)), max_size=3))
            if placed
            else []
        )
        label = data.draw(st.integers(0, 9))
        assert graph_of_templates.place(
            templates[which], {"in": parents, "absent": parents}, {"label": label}
        ) == sum(len(spec) for spec, _, _ in placed)
        placed.append((kinds[which], parents, label))
    graph = graphs_of([graph_of_templates])[0]
    assert graph.version == graph_of([]).version
    assert nodes_of(graph) == nodes_of(graph_of(_slowly(placed)))
    slow = graph_of(_slowly(placed))
    # What is read from packed nodes is what the columns of all nodes say.
    for one, other in ((graph.types, slow.types), (graph.ids, slow.ids), (graph.parents()[0], slow.parents()[0]),
                       (graph.parents()[1], slow.parents()[1]), (graph.ints("label", 7), slow.ints("label", 7)),
                       (graph.has("label"), slow.has("label")), (graph.names(), slow.names())):  # fmt: skip
        assert list(one) == list(other)
    labelled = np.flatnonzero(slow.has("label"))
    for at in (labelled, labelled[::-1], np.arange(slow.n_nodes), labelled[:0]):
        for name in ("label", "absent"):
            assert slow.ints_at(at, name, 7).tolist() == slow.ints(name, 7)[at].tolist()
            assert graph.ints_at(at, name, 7).tolist() == graph.ints(name, 7)[at].tolist()
    for name, read in (("text", "strings"), ("sizes", "int_lists")):
        (codes, values), (codes_, values_) = (getattr(each, read)(name) for each in (graph, slow))
        assert (codes.tolist(), values) == (codes_.tolist(), values_)
    counts = Counter(graph.copies.tolist())
    assert graph.packed.times.tolist() == [counts[at] for at in range(graph.packed.n_nodes)]
