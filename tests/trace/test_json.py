"""Traces as JSON."""

from __future__ import annotations

import json
import math

import pytest

from armillary.base.errors import InputError
from armillary.trace import Node, encode, graph_from_json, graph_from_nodes, graph_of, graph_to_json, nodes_of


def test_json_keeps_everything() -> None:
    bytes_node = Node(
        2**64 - 1, "ü", 99, [1], [2, 3], 4, 5, ("a", "", "c"), None, [("x", "bytes", b"\xff\x00")]
    )
    odd = Node(type=4)
    odd.attrs = [
        ("f", "double_list", [math.inf, -math.inf, 0.1]),
        ("n", "float", math.nan),
        ("u", "unset", None),
        ("e", "bool_list", []),
        ("d", "string_list", ["", "NaN"], "says what"),
        ("s", "string", "Infinity"),
    ]
    metadata = [("schema", "string", "s", "doc"), ("big", "uint64", 2**64 - 1)]
    graph = graph_of([bytes_node, odd], version="1.0.0", metadata=metadata)  # type: ignore[arg-type]
    text = graph_to_json(graph)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    again = graph_from_json(text)
    assert encode(again) == encode(graph)
    assert encode(graph_from_json(text.encode())) == encode(graph)


def test_the_layout_of_bare_nodes_and_its_defaults() -> None:
    graph = graph_from_nodes([{"id": 3, "type": "COMP_NODE", "attrs": [["is_cpu_op", "bool", False]]}, {}])
    assert [(n.id, n.type, n.name, n.duration_micros) for n in nodes_of(graph)] == [
        (3, 4, "", 0),
        (0, 0, "", 0),
    ]
    assert graph_from_json('[{"id": 3}]').ids.tolist() == [3]


WRONG = {
    "{": "not JSON",
    "[" * 100_000: "nested too deeply",
    "3": "expected an object with 'nodes', or a list of nodes",
    "{}": "'nodes' is None, expected a list",
    '{"nodes": 1}': "'nodes' is 1, expected a list",
    '{"format": "x", "nodes": []}': "format is 'x', expected 'armillary-trace-1'",
    '{"nods": []}': r"unknown key 'nods'.*did you mean 'nodes'",
    '{"nodes": [], "metadata": 3}': "attributes are 3",
    '{"nodes": [], "version": 3}': "name is 3",
    "[3]": "node number 0 is 3, expected an object",
    '[{"id": 4, "durations_micros": 1}]': r"node 4: unknown key .*did you mean 'duration_micros'",
    '[{"id": -4}]': "id is -4",
    '[{"id": 4, "type": "COMPNODE"}]': r"node 4: type is 'COMPNODE', .*did you mean 'COMP_NODE'",
    '[{"id": 4, "type": null}]': "node 4 '': type is None",
    '[{"id": 4, "data_deps": 3}]': "node 4: data_deps is 3, expected a list",
    '[{"id": 4, "data_deps": ["a"]}]': "node 4 '': data_deps is 'a'",
    '[{"id": 4, "inputs": "a"}]': "inputs is 'a', expected",
    '[{"id": 4, "attrs": [["x", "int64"]]}]': r"attribute \['x', 'int64'\], expected \[name, kind, value\]",
    '[{"id": 4, "attrs": [["x", "int", 1]]}]': "kind 'int', expected one of",
    '[{"id": 4, "attrs": [["x", 1, 1]]}]': "kind 1, expected one of",
    '[{"id": 4, "attrs": [[1, "int64", 1]]}]': "an attribute's name is 1",
    '[{"id": 4, "attrs": [["x", "int64", NaN]]}]': r"'x' \(int64\) is nan",
    '[{"id": 4, "attrs": [["x", "bytes", "?"]]}]': "expected base64",
    '[{"id": 4, "attrs": {"x": 1}}]': "attributes are",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_wrong_json_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=WRONG[text]) as caught:
        graph_from_json(text, "w.0.json")
    assert str(caught.value).startswith("w.0.json")
