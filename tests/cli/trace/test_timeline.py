"""`armillary trace timeline`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from armillary.trace import Node, NodeType, graph_of, write_graph


def processes(path):
    events = json.loads(Path(path).read_text())["traceEvents"]
    return {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}


def test_a_prefix(inputs, call):
    result = call("trace timeline step -o t.json")
    assert result.exit_code == 0, result.output
    assert processes("t.json") == {1: "rank 0 (+3 alike), as soon as dependencies allow"}
    assert (
        "warning: rank 0 (+3 alike), as soon as dependencies allow: no start times are recorded"
        in result.stderr
    )
    assert result.stderr.endswith("wrote t.json: 1 processes, 2 nodes, 20 µs\n")


def test_files_keep_their_ranks(inputs, call):
    write_graph("odd.et", graph_of([Node(1, "a", NodeType.COMP_NODE, (), (), 1_000_000, 2_000)]))
    result = call("trace timeline step.2.et odd.et -o t.json")
    assert processes("t.json") == {3: "rank 2, as soon as dependencies allow", 4: "rank 3"}
    assert result.stderr.endswith("wrote t.json: 2 processes, 3 nodes, 2 ms\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("step.0.et step -o t.json", "rank 0 is step.0.et already"),
        ("none -o t.json", "none: no trace file 'none.<rank>.et' in the folder"),
        ("step -o step.1.et/t.json", "step.1.et' is not a folder"),
    ],
)
def test_bad_input(inputs, call, words, message):
    result = call(f"trace timeline {words}")
    assert result.exit_code == 2 and message in result.stderr
    assert not Path("t.json").exists()
