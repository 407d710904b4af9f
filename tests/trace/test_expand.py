"""Groups and peers that follow from a grid, and the graphs that they stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.trace import (
    CollectiveType,
    Graph,
    GraphBuilder,
    NodeType,
    Trace,
    check_ranks,
    decode,
    encode,
    load_trace,
    nodes_of,
    write_trace,
)
from armillary.trace.axis_sets import AxisSets
from armillary.trace.check_ranks import check_trace
from armillary.trace.cut import cut
from armillary.trace.expand import expand, expand_for, rank_graph
from armillary.trace.grid import AXIS, RankGrid
from armillary.trace.stats import stats
from armillary.trace.write import groups_of, write_group_file

GRID = RankGrid(
    (2, 3, 4),
    {"tp": (0,), "dp": (1,), "pp": (2,), "all": (0, 1, 2)},
    {"pp.ends": ("pp", (0, 3)), "pp.every": ("pp", (0, 1, 2, 3))},
)


def along(builder: GraphBuilder, axis: str) -> None:
    """Let the last message go along an axis."""
    builder.nodes[-1].attrs.append((AXIS, "string", axis))


def pipeline(grid: RankGrid = GRID, stray: int = 0) -> Trace:
    """Stages along pp that reduce in tp and dp; `stray` is added to the size of what stage 1 sends."""
    graphs = []
    stages = grid.size("pp")
    for stage in range(stages):
        b = GraphBuilder()
        last = [b.compute("forward", duration_micros=3)]
        if stage:
            last = [b.recv(-1, 100 + stray * (stage == 2), axis="pp", after=last)]
        last = [b.all_reduce("activations", 1000, group="tp", after=last)]
        if stage + 1 < stages:
            b.send(1, 100, axis="pp", after=last)
        last = [b.all_reduce("gradients", 5000, group="dp", after=last)]
        if stage in (0, stages - 1):
            last = [b.all_reduce("embedding", 7, group="pp.ends", after=last)]
        b.all_reduce("norm", 4, after=last)
        graphs.append(b.graph(f"stage {stage}"))
    return Trace(tuple(graphs), grid.coordinate("pp").astype(np.int32), grid)


def attributes(graph: Graph) -> list[dict[str, Any]]:
    return [{name: value for name, _, value in node.attrs} for node in nodes_of(graph)]


def test_numbers_follow_from_the_order_of_use() -> None:
    axis_sets = AxisSets(pipeline())
    assert [(f.name, f.base, f.members.shape) for f in axis_sets.all] == [
        ("", 0, (1, 24)), ("tp", 1, (12, 2)), ("dp", 13, (8, 3)), ("pp.ends", 21, (6, 2)),
    ]  # fmt: skip
    assert axis_sets.members(1).tolist() == [0, 1]
    assert axis_sets.members(20).tolist() == [19, 21, 23]
    assert axis_sets.members(21).tolist() == [0, 18]
    assert axis_sets.number(3, 6) == -1
    assert axis_sets.find("tp+dp+pp") == axis_sets.find("all") == axis_sets.find("") == 0
    assert axis_sets.find("pp.every") == axis_sets.find("pp")


def test_a_rank_has_its_own_groups_and_peers_and_a_node_that_defines_them() -> None:
    graph = rank_graph(pipeline(), 7)  # stage 1, coordinates 1, 0, 1
    first, *rest = nodes_of(graph)
    assert (first.type, first.id, first.name) == (NodeType.METADATA_NODE, 6, "## process_group:init ##")
    assert first.inputs is not None
    assert json.loads(first.inputs[0][2:-2]) == [
        {"pg_name": "4", "ranks": [6, 7], "group_size": 2},
        {"pg_name": "16", "ranks": [7, 9, 11], "group_size": 3},
    ]
    assert [node.id for node in rest] == list(range(6))
    _, _, received, activations, sent, gradients, norm = attributes(graph)
    assert received == {"is_cpu_op": False, "comm_size": 100, "comm_src": 1, "comm_dst": 7, "comm_tag": 0}
    assert sent == {"is_cpu_op": False, "comm_size": 100, "comm_src": 7, "comm_dst": 13, "comm_tag": 0}
    assert (activations["pg_name"], gradients["pg_name"], "pg_name" in norm) == ("4", "16", False)


@st.composite
def any_graphs(draw: Any) -> tuple[Graph, RankGrid]:
    """A graph with communication of every sort, in a batch of its own or not."""
    grid = RankGrid((2, 1, 3), {"a": (0,), "one": (1,), "b": (2,), "ab": (2, 0)}, {"b.0": ("b", (0, 2))})
    b = GraphBuilder(first_id=draw(st.integers(0, 5)))
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["compute", "collective", "send", "recv", "absolute", "text"]))
        doc = draw(st.sampled_from(["", "why"]))
        if kind == "compute":
            b.compute("k", flops=draw(st.integers(0, 2**40)))
        elif kind == "collective":
            axis_set = draw(st.sampled_from([None, "a", "b", "a+b", "b+a", "ab", "one", "0"]))
            b.collective("c", draw(st.sampled_from(list(CollectiveType))), 8, group=axis_set)
        elif kind == "text":
            b.metadata("m", "['x']")
        else:
            message = b.recv if kind == "recv" else b.send
            if kind == "absolute":
                message(3, 9, draw(st.integers(0, 3)))
            else:
                axis = draw(st.sampled_from(["a", "b", "ab", "one"]))
                message(draw(st.integers(-4, 4)), 9, draw(st.integers(0, 3)), axis=axis)
        if doc and b.nodes[-1].attrs:
            at = draw(st.integers(0, len(b.nodes[-1].attrs) - 1))
            b.nodes[-1].attrs[at] = (*b.nodes[-1].attrs[at][:3], doc)
    graph = b.graph("g")
    if draw(st.booleans()):  # as read from files: the second graph of a batch
        from armillary.trace._decode import decode_many

        graph = decode_many([encode(graph), encode(graph)], ["g", "g"])[1]
    return graph, grid


@given(any_graphs(), st.integers(0, 5))
def test_substitution_in_columns_is_substitution_in_nodes(case: tuple[Graph, RankGrid], rank: int) -> None:
    graph, grid = case
    trace = Trace((graph,), np.zeros(6, np.int32), grid)
    axis_sets = AxisSets(trace)
    found = rank_graph(trace, rank)
    assert nodes_of(decode(encode(found), "x")) == nodes_of(found)
    defined = [node for node in nodes_of(found) if node.name == "## process_group:init ##"]
    rest = [node for node in nodes_of(found) if node.name != "## process_group:init ##"]
    used = set()
    for node, old in zip(rest, nodes_of(graph), strict=True):
        attrs = {name: value for name, _, value, *_ in old.attrs}
        axis = attrs.pop(AXIS, None)
        if node.type in (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE):
            mine, other = (
                ("comm_src", "comm_dst") if node.type == NodeType.COMM_SEND_NODE else ("comm_dst", "comm_src")
            )
            attrs[mine] = rank
            if axis:
                attrs[other] = int(grid.peers(np.array([rank]), axis, attrs[other])[0])
        if "pg_name" in attrs:
            number = axis_sets.number(axis_sets.find(attrs.pop("pg_name")), rank)
            if number:
                attrs["pg_name"] = str(number)
                used.add(number)
        assert {name: value for name, _, value, *_ in node.attrs} == attrs
        assert (node.id, node.name, node.type, node.inputs) == (old.id, old.name, old.type, old.inputs)
    assert bool(defined) == bool(used)
    if defined:
        assert defined[0].inputs is not None
        table = {int(g["pg_name"]): g["ranks"] for g in json.loads(defined[0].inputs[0][2:-2])}
        assert table == {number: axis_sets.members(number).tolist() for number in used}
        assert all(rank in ranks for ranks in table.values())
        assert defined[0].id not in {node.id for node in rest}


def test_written_files_are_the_expanded_graphs(tmp_path: Path) -> None:
    trace, counts = pipeline(), []
    write_trace(tmp_path / "t", trace, progress=counts.append)
    assert counts == list(range(1, 25))
    for rank, graph in enumerate(expand(trace).graphs):
        assert (tmp_path / f"t.{rank}.et").read_bytes() == encode(graph)
    read = load_trace(tmp_path / "t")
    assert check_trace(read).all == []
    write_group_file(tmp_path / "groups.json", trace)
    table = json.loads((tmp_path / "groups.json").read_text())
    assert table == {str(number): ranks for number, ranks in groups_of(read).items()}
    assert len(table) == 12 + 8 + 6


def test_the_rules_are_checked_as_their_ranks_are() -> None:
    assert check_trace(pipeline()).all == []
    assert check_trace(pipeline(stray=1)).all != []


def test_a_smaller_grid_is_wrong_where_the_whole_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"tp": 3, "cp": 4, "dp": 3, "pp": 4}
    axes = {name: (mesh_dim,) for mesh_dim, name in enumerate(sizes)}
    grid = RankGrid(tuple(sizes.values()), axes, {"pp.ends": ("pp", (0, 3))})
    fine, wrong = pipeline(grid), pipeline(grid, stray=1)
    assert cut(fine)[0].grid == RankGrid((2, 2, 2, 4), axes, grid.subsets)
    whole = check_trace(wrong).ranks
    monkeypatch.setattr(check_ranks, "FEW_NODES", 100)
    few = check_trace(wrong).ranks
    assert [f.severity for f in few] == [f.severity for f in whole] == ["error"]
    assert whole[0].message.startswith("36 messages that the receiver awaits with another size")
    start = "in a grid with ranks left out (2 of 3, 2 of 4, 2 of 3): 8 messages that the receiver awaits"
    assert few[0].message.startswith(start)
    assert check_trace(fine).all == []
    monkeypatch.setattr(check_ranks, "MOST_NODES", 100)
    assert [f.severity for f in check_trace(wrong).ranks] == ["warning"]


def test_nothing_is_cut_along_messages_classes_splits_and_absolute_peers() -> None:
    grid = RankGrid((4, 4, 4, 4), {"a": (0,), "b": (1,), "c": (2,), "d": (3,)})
    ring = GraphBuilder()
    ring.send(1, 10)
    along(ring, "a")
    ring.all_to_all("t", 10, group="b")
    ring.nodes[-1].attrs.append(("comm_splits", "int64_list", [1, 2, 3, 4]))
    other = GraphBuilder()
    graphs = (ring.graph(), other.graph())
    classes = (grid.coordinate("c") == 2).astype(np.int32)
    smaller = cut(Trace(graphs, classes, grid))[0]
    assert smaller.grid is not None
    assert smaller.grid.sizes == (4, 4, 4, 2)
    other.send(3, 10)
    whole = cut(Trace((ring.graph(), other.graph()), classes, grid))[0]
    assert whole.grid == grid


def test_statistics_count_all_ranks() -> None:
    found = stats(pipeline())
    assert found["ranks"] == 24
    assert found["all"]["nodes"] == pipeline().total_nodes
    assert {row["group"] for row in found["communication"]} == {"", "tp", "dp", "pp.ends"}


def test_errors_name_the_node_and_the_nearest_axis() -> None:
    b = GraphBuilder()
    b.all_reduce("a", 8, group="tq")
    with pytest.raises(InputError, match=r"node 0 'a'.*no such axis.*did you mean 'tp'"):
        expand(Trace((b.graph(),), np.zeros(24, np.int32), GRID))
    b = GraphBuilder()
    b.send(1, 8, name="s")
    along(b, "dq")
    with pytest.raises(InputError, match=r"node 0 's'.*comm_axis.*did you mean 'dp'"):
        expand(Trace((b.graph(),), np.zeros(24, np.int32), GRID))
    b = GraphBuilder()
    b.all_reduce("a", 8, group="pp.ends")
    with pytest.raises(InputError, match=r"node 0 'a': rank 6 is in no group 'pp.ends'"):
        expand(Trace((b.graph(),), np.zeros(24, np.int32), GRID))
    with pytest.raises(InputError, match="the grid has 24 ranks; expected 23"):
        Trace((b.graph(),), np.zeros(23, np.int32), GRID)
    with pytest.raises(InputError, match="profile astra-sim needs every rank on its own: 24 ranks"):
        expand_for(pipeline(), "profile astra-sim", most=100)
    with pytest.raises(InputError, match=r"coordinates \[0, 4\] of axis 'pp'; expected some of 0 to 3"):
        RankGrid((4,), {"pp": (0,)}, {"ends": ("pp", (0, 4))}).members("ends")
