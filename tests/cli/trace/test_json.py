"""`armillary trace json`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from armillary.trace import GraphBuilder, read_graph, write_graph


def test_there_and_back(inputs, call):
    assert call("trace json step.0.et -o step.json").exit_code == 0
    assert [node["name"] for node in json.loads(Path("step.json").read_text())["nodes"]] == ["work", "sum"]
    for name in ("back.et", "back.et.gz"):
        result = call(f"trace json step.json -o {name}")
        assert result.stderr == f"wrote {name}: 2 nodes\n"
    assert Path("back.et").read_bytes() == Path("step.0.et").read_bytes()
    assert Path("back.et.gz").read_bytes().startswith(b"\x1f\x8b")
    assert read_graph("back.et.gz").names() == ["work", "sum"]


def test_to_standard_output(inputs, call):
    result = call("trace json step.0.et")
    assert json.loads(result.stdout)["format"] == "armillary-trace-1"


@pytest.mark.parametrize("count", [0, 4096, 4097, 9000])
def test_pieces_join(inputs, call, count):
    b = GraphBuilder()
    for i in range(count):
        b.compute(f"op {i}", duration_micros=i)
    write_graph("many.et", b.graph())
    call("trace json many.et -o many.json")
    assert len(json.loads(Path("many.json").read_text())["nodes"]) == count
    call("trace json many.json -o again.et")
    assert Path("again.et").read_bytes() == Path("many.et").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trace json step.0.et -o step.txt", "--out step.txt: suffix '.txt', expected"),
        ("trace json none.et -o step.json", "none.et: No such file"),
        ("trace json step.0.et -o step.1.et/a.json", "step.1.et' is not a folder"),
        ("trace json study.yaml -o step.json", "study.yaml:"),
    ],
)
def test_bad_input(inputs, call, words, message):
    before = set(inputs.iterdir())
    result = call(words)
    assert result.exit_code == 2 and message in result.stderr and "Traceback" not in result.stderr
    assert set(inputs.iterdir()) == before
