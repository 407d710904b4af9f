"""`armillary trace check`, `stats`, `diff` and `slice`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from armillary.trace import GraphBuilder, Trace, load_trace, read_graph, write_graph, write_trace

Call = Callable[[str], Result]


def write_pair(prefix: str, sizes: tuple[int, int] = (8, 8), group: int | None = None) -> None:
    graphs = []
    for size in sizes:
        b = GraphBuilder()
        work = b.compute("layer.1", duration_micros=3)
        b.all_reduce("sum", size, group=group, after=[work])
        graphs.append(b.graph())
    write_trace(prefix, Trace.from_ranks(graphs))


def test_check_compares_the_ranks_of_a_prefix(inputs: Path, call: Call) -> None:
    assert call("trace check step").stdout == "1 trace of 4 ranks: nothing wrong\nverdict: can be simulated\n"
    write_pair("bad", (8, 16))
    result = call("trace check bad")
    assert result.exit_code == 2
    first, verdict = result.stdout.splitlines()
    assert first.startswith(
        "bad: error: 1 group whose members differ in the size of a collective: all ranks: number 1"
    )
    assert verdict == "verdict: cannot be simulated: 1 error"


def test_check_takes_all_files_of_a_prefix_for_the_prefix(inputs: Path, call: Call) -> None:
    write_pair("bad", (8, 16))
    assert call("trace check bad.0.et bad.1.et").exit_code == 2
    alone = call("trace check bad.0.et")
    assert alone.exit_code == 0
    assert alone.stdout.endswith("verdict: can be simulated, as far as single files show\n")


def test_check_counts_equal_files_once_and_knows_groups(inputs: Path, call: Call) -> None:
    write_pair("grouped", group=3)
    result = call("trace check grouped --json -")
    facts = json.loads(result.stdout)
    assert (result.exit_code, facts["can_be_simulated"], facts["errors"]) == (2, False, 1)
    assert facts["inputs"] == [{"name": "grouped", "ranks": 2, "graphs": 1, "compared": True}]
    assert facts["findings"][0]["file"] == "grouped"
    Path("groups.json").write_text('{"3": [0, 1]}')
    assert call("trace check grouped --comm-groups groups.json").exit_code == 0
    Path("groups.json").write_text('{"3": [0, 5]}')
    assert "expected a rank from 0 to 1" in call("trace check grouped --comm-groups groups.json").stderr
    write_graph("zero.0.et", GraphBuilder().graph())
    write_graph("zero.1.et", GraphBuilder().graph())
    assert call("trace check zero").stdout.splitlines() == [
        "zero.0.et and 1 alike: warning: the graph has no nodes",
        "verdict: can be simulated, with 1 warning",
    ]


def test_stats_shows_units_and_bars(inputs: Path, call: Call) -> None:
    write_pair("pair")
    result = call("trace stats pair step.0.et")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("pair: 2 ranks, 1 distinct")
    assert any(line.split()[:4] == ["COMP_NODE", "2", "6", "µs"] and "█" * 20 in line for line in lines)
    assert any(line.startswith("layer.#") for line in lines)
    assert any(
        line.split() == ["ALL_REDUCE", "-", "2", "16", "B", "8", "B", "8", "B", "8", "B"] for line in lines
    )
    facts = json.loads(call("trace stats pair --top 1 --json -").stdout)
    assert (facts[0]["source"], len(facts[0]["operators"]), facts[0]["operators_in_all"]) == ("pair", 1, 2)


def test_diff_exits_with_1_where_something_differs(inputs: Path, call: Call) -> None:
    write_pair("one")
    write_pair("two", (8, 16))
    same = call("trace diff one one")
    assert (same.exit_code, same.stdout) == (0, "2 ranks the same, 0 different\n")
    result = call("trace diff one two")
    assert result.exit_code == 1
    assert "one.0.et -> two.1.et (rank 1)" in result.stdout
    assert any(
        line.split()[:6] == ["attribute", "comm_size", "1", "8", "B", "16"]
        for line in result.stdout.splitlines()
    )
    assert result.stdout.endswith("1 rank the same, 1 different\n")
    assert call("trace diff one.0.et two.0.et").stdout == "they are the same\n"
    assert json.loads(call("trace diff one step --json -").stdout)["ranks"] == [2, 4]
    assert call("trace diff one nothing").exit_code == 2


def test_slice_writes_files_that_check_accepts(inputs: Path, call: Call) -> None:
    result = call("trace slice step -o part --type all-reduce")
    assert result.exit_code == 0
    assert result.stderr == "wrote part.<rank>.et: 4 ranks, 4 of 8 nodes\n"
    assert call("trace check part").stdout.endswith("verdict: can be simulated\n")
    assert load_trace("part").graphs[0].names() == ["sum"]
    assert call("trace slice step.0.et -o one.json --name ork --from 0us --to +1us").exit_code == 0
    assert read_graph("one.json").names() == ["work"]


def test_slice_warns_of_collectives_that_are_cut_unevenly(inputs: Path, call: Call) -> None:
    graphs = []
    for rank in range(2):
        b = GraphBuilder(first_id=10 * rank)
        b.all_reduce("sum", 8)
        b.barrier("end")
        graphs.append(b.graph())
    write_trace("shifted", Trace.from_ranks(graphs))
    result = call("trace slice shifted -o part --nodes 0-10")
    assert result.exit_code == 0
    assert (
        "warning: 1 group where a member lacks collectives: all ranks: rank 0 runs 2, rank 1 1"
        in result.stderr
    )
    assert call("trace check part").exit_code == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--nodes 5-3", "--nodes 5-3: expected an id, or a range of ids such as 10-20"),
        ("--nodes x", "--nodes x: expected an id"),
        ("--from 3", "--from: got '3', which has no unit"),
        ("--around 77", "no node has id 77"),
        ("--name (", "name '(' is no regular expression"),
        ("--type vomp", "type 'vomp' is unknown"),
        ("--name nothing", "no node is selected"),
        ("--comm-groups missing.json", "missing.json: no such file"),
    ],
)
def test_slice_refuses_bad_options(options: str, message: str, inputs: Path, call: Call) -> None:
    result = call(f"trace slice step -o part {options}")
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(inputs.glob("part*"))


@pytest.mark.parametrize("command", ["check", "stats", "diff step", "slice -o x"])
def test_what_is_no_trace_is_one_clear_error(command: str, inputs: Path, call: Call) -> None:
    Path("text.et").write_text("no trace")
    for name in ("text.et", "absent", "absent.et", "."):
        result = call(f"trace {command} {name}")
        assert result.exit_code == 2, (name, result.output)
        assert name.strip(".") in result.stderr
        assert result.stderr.count("\n") == 1
