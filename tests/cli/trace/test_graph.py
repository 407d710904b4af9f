"""`armillary trace graph`."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.trace import Node, graph_of, write_graph


def test_files(inputs, call):
    for suffix in ("dot", "graphml", "html", "svg"):
        result = call(f"trace graph step.0.et -o step.{suffix}")
        assert result.exit_code == 0, result.output
        assert result.stderr == f"wrote step.{suffix}: 2 nodes, 1 edges\n"
        assert Path(f"step.{suffix}").exists()


def test_collapsed(inputs, call):
    result = call("trace graph step.0.et -o step.svg --max-nodes 1")
    assert result.stderr == "wrote step.svg: 2 nodes in 2 boxes by lanes, 1 edges\n"
    result = call("trace graph step.0.et -o step.dot --collapse names")
    assert "2 nodes in 2 boxes by names" in result.stderr


def test_absent_nodes_are_named(inputs, call):
    write_graph("odd.et", graph_of([Node(1, "a", 4, (), [5])]))
    assert "1 dependencies on absent nodes are left out" in call("trace graph odd.et -o odd.dot").stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("step.0.et -o step.doc", "suffix '.doc', expected"),
        ("step.0.et -o step.dot --collapse call", "collapse 'call': expected"),
        ("step.0.et -o step.dot --max-nodes 0", "--max-nodes"),
        ("none.et -o step.dot", "none.et: No such file"),
    ],
)
def test_bad_input(inputs, call, words, message):
    before = set(inputs.iterdir())
    result = call(f"trace graph {words}")
    assert result.exit_code == 2 and message in result.stderr
    assert set(inputs.iterdir()) == before
