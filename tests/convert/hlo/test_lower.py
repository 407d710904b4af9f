"""What becomes a node, what it waits for, and who takes part."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.convert import Converted, front_end, report
from armillary.trace import CollectiveType, NodeType

Convert = Callable[..., Converted]
Nodes = Callable[..., dict[str, dict[str, Any]]]

FLAT = "channel_id=1, use_global_device_ids=true"
SIZE = 8 * 4
P0 = "%x = f32[8] parameter(0)"


def test_nodes_are_what_takes_time_and_free_instructions_pass_dependencies_on(
    lines: Convert, nodes: Nodes
) -> None:
    found = nodes(
        lines(
            P0,
            "%a = f32[8] add(%x, %x)",
            "%t = (f32[8], f32[8]) tuple(%x, %a)",
            "%g = f32[8] get-tuple-element(%t), index=0",
            "%h = f32[8] get-tuple-element(%t), index=1",
            "%b = f32[2,4] bitcast(%h)",
            "%m = f32[8] multiply(%g, %g)",
            "ROOT %n = f32[2,4] negate(%b)",
        )
    )
    assert {name: node["after"] for name, node in found.items()} == {"a": [], "m": [], "n": ["a"]}
    assert (found["a"]["num_ops"], found["a"]["tensor_size"]) == (8, 2 * SIZE)
    assert {node["type"] for node in found.values()} == {NodeType.COMP_NODE}


@pytest.mark.parametrize(
    ("line", "kind", "size"),
    [
        ("%c = f32[8] all-reduce(%x), {}, to_apply=%sum", CollectiveType.ALL_REDUCE, SIZE),
        ("%c = f32[32] all-gather(%x), {}, dimensions={{0}}", CollectiveType.ALL_GATHER, SIZE),
        ("%c = f32[2] reduce-scatter(%x), {}, dimensions={{0}}, to_apply=%sum", CollectiveType.REDUCE_SCATTER, SIZE),
        ("%c = f32[8] all-to-all(%x), {}, dimensions={{0}}", CollectiveType.ALL_TO_ALL, SIZE),
        ("%c = (f32[8], f32[8]) all-to-all(%x, %x), {}", CollectiveType.ALL_TO_ALL, 2 * SIZE),
        ("%c = f32[8] collective-broadcast(%x), {}", CollectiveType.BROADCAST, SIZE),
        ("%c = f32[8] all-reduce-start(%x), {}, to_apply=%sum", CollectiveType.ALL_REDUCE, SIZE),
        ("%c = (f32[8], f32[32]) all-gather-start(%x), {}, dimensions={{0}}", CollectiveType.ALL_GATHER, SIZE),
    ],
)  # fmt: skip
def test_collectives(lines: Convert, nodes: Nodes, line: str, kind: CollectiveType, size: int) -> None:
    body = line.format(f"replica_groups={{{{0,1,2,3}},{{4,5,6,7}}}}, {FLAT}")
    done = ["%d = f32[8] all-reduce-done(%c)"] if "-start" in line else []
    found = lines(P0, "%a = f32[8] negate(%x)", body.replace("(%x", "(%a"), *done, partitions=8)
    for rank in range(8):
        node = nodes(found, rank)["c"]
        assert (node["type"], node["comm_type"]) == (NodeType.COMM_COLL_NODE, kind)
        assert (node["comm_size"], node["after"], node["pg_name"]) == (size, ["a"], str(1 + rank // 4))
    assert found.groups == {1: (0, 1, 2, 3), 2: (4, 5, 6, 7)}
    assert [found.trace.rank_graph[rank] for rank in range(8)] == [0] * 4 + [1] * 4


def test_a_collective_of_all_ranks_names_no_group_and_all_ranks_share_a_graph(
    lines: Convert, nodes: Nodes
) -> None:
    found = lines(P0, "%c = f32[8] all-reduce(%x), replica_groups={}, to_apply=%sum", replicas=4)
    assert (len(found.trace.graphs), found.groups, "pg_name" in nodes(found)["c"]) == (1, {}, False)


def test_ranks_in_no_group_copy_and_ranks_no_one_broadcasts_to_write_zeros(
    lines: Convert, nodes: Nodes
) -> None:
    reduce = "%c = f32[8] all-reduce(%x), replica_groups={{0},{1,2}}, to_apply=%sum"
    found = lines(P0, reduce, replicas=3)
    assert [nodes(found, rank)["c"]["type"] for rank in range(3)] == [
        NodeType.COMP_NODE, NodeType.COMM_COLL_NODE, NodeType.COMM_COLL_NODE,
    ]  # fmt: skip
    assert nodes(found, 0)["c"]["tensor_size"] == 2 * SIZE
    found = lines(P0, "%c = f32[8] collective-broadcast(%x), replica_groups={{2,1}}", replicas=3)
    assert (nodes(found, 0)["c"]["tensor_size"], found.groups) == (SIZE, {1: (2, 1)})


def test_a_permutation_is_matched_messages_zeros_and_copies(lines: Convert, nodes: Nodes) -> None:
    permute = "%c = f32[8] collective-permute(%x), channel_id=1, source_target_pairs={{0,1},{1,2},{3,3}}"
    found = lines(P0, permute, "%n = f32[8] negate(%c)", permute.replace("%c", "%d"), partitions=4)
    sends: dict[Any, int] = {}
    for rank in range(4):
        graph = nodes(found, rank)
        for name, node in graph.items():
            if node["type"] in (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE):
                end = (node["comm_src"], node["comm_dst"], node["comm_tag"], node["comm_size"], name[0])
                sends[end] = sends.get(end, 0) + (1 if node["type"] == NodeType.COMM_SEND_NODE else -1)
                assert rank == node["comm_src" if node["type"] == NodeType.COMM_SEND_NODE else "comm_dst"]
    assert len(sends) == 4
    assert not any(sends.values())
    assert sorted((source, target) for source, target, _, _, name in sends if name == "c") == [(0, 1), (1, 2)]
    assert (nodes(found, 0)["c 4"]["tensor_size"], nodes(found, 3)["c"]["tensor_size"]) == (SIZE, 2 * SIZE)
    assert nodes(found, 1)["n"]["after"] == ["c", "c"]
    assert nodes(found, 2)["n"]["after"] == ["c"]


def test_equal_messages_of_many_ranks_are_patched_into_the_same_graph(lines: Convert, nodes: Nodes) -> None:
    ring = ",".join(f"{{{i},{(i + 1) % 8}}}" for i in range(8))
    permute = f"collective-permute(%x), channel_id=1, source_target_pairs={{{ring}}}"
    groups = "replica_groups=[4,2]<=[8]"
    found = lines(
        P0, f"%p = f32[8] {permute}", f"%c = f32[8] all-reduce(%p), {groups}, {FLAT}, to_apply=%sum", partitions=8
    )  # fmt: skip
    assert len(found.trace.graphs) == 8
    for rank in range(8):
        send, recv, reduce = (nodes(found, rank)[name] for name in ("p", "p 6", "c"))
        assert (send["comm_src"], send["comm_dst"]) == (rank, (rank + 1) % 8)
        assert (recv["comm_src"], recv["comm_dst"]) == ((rank - 1) % 8, rank)
        assert rank in found.groups[int(reduce["pg_name"])]


BODY = """
%body (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  %s = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %v = f32[8] get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %j = s32[] add(%i, %one)
  %w = f32[8] all-reduce(%v), replica_groups={}, to_apply=%sum
  ROOT %r = (s32[], f32[8]) tuple(%j, %w)
}

%more (t: (s32[], f32[8])) -> pred[] {
  %t = (s32[], f32[8]) parameter(0)
  %k = s32[] get-tuple-element(%t), index=0
  %limit = s32[] constant(LIMIT)
  ROOT %less = pred[] compare(%k, %limit), direction=LT
}
"""


def loop(
    lines: Convert, limit: str = "5", config: str = "", start: str = "constant(0)", **options: Any
) -> Any:
    before = BODY.replace("constant(LIMIT)", limit if "(" in limit else f"constant({limit})")
    return lines(
        P0,
        f"%zero = s32[] {start}",
        "%init = (s32[], f32[8]) tuple(%zero, %x)",
        f"%while = (s32[], f32[8]) while(%init), condition=%more, body=%body{config}",
        "ROOT %last = f32[8] get-tuple-element(%while), index=1",
        before=before,
        replicas=2,
        **options,
    )


def counts(found: Any, name: str) -> list[int]:
    graph = found.trace.graph(0)
    return [int(graph.ids[at]) for at, other in enumerate(graph.names()) if other == name]


@pytest.mark.parametrize(
    ("limit", "config", "start", "trips"),
    [
        ("5", "", "constant(0)", 5),
        ("5", "", "constant(3)", 2),
        ("5", "", "constant(9)", 0),
        ("5", ', backend_config={"known_trip_count":{"n":"7"}}', "constant(0)", 7),
        ("5", ', backend_config="{\\"known_trip_count\\":{\\"n\\":\\"3\\"}}"', "constant(0)", 3),
        ("1000", "", "constant(0)", 1000),
    ],
)
def test_loops_are_unrolled(lines: Convert, limit: str, config: str, start: str, trips: int) -> None:
    found = loop(lines, limit, config, start)
    assert found.warnings == ()
    reduces = counts(found, "w")
    assert len(reduces) == trips
    graph = found.trace.graph(0)
    assert graph.n_nodes == 2 * trips
    after = [graph.data_deps[a:b].tolist() for a, b in zip(graph.data_ptr, graph.data_ptr[1:], strict=False)]
    chain = [after[graph.ids.tolist().index(ident)] for ident in reduces]
    assert chain == [[] if not at else [reduces[at - 1]] for at in range(trips)]


def test_a_loop_longer_than_the_limit_is_its_body_with_all_costs(lines: Convert, nodes: Nodes) -> None:
    found = loop(lines, "1000", unroll=500)
    assert counts(found, "w") == [1]
    assert (nodes(found)["w"]["comm_size"], nodes(found)["j"]["num_ops"]) == (1000 * SIZE, 1000)
    (warning,) = found.warnings
    assert re.search(r"m.hlo:\d+:3: 'while' runs 1000 times: its body stands here once", warning)


def test_a_loop_that_depends_on_data_is_assumed_and_waits_for_its_condition(
    lines: Convert, nodes: Nodes
) -> None:
    found = loop(lines, start="parameter(1)", trips=3)
    (warning,) = found.warnings
    assert "the module does not say how often 'while' runs, 3 is assumed" in warning
    assert (len(counts(found, "w")), len(counts(found, "less"))) == (3, 3)
    assert nodes(found)["w"]["ctrl"] == ["less"]


def test_an_endless_loop_is_given_up(lines: Convert) -> None:
    found = loop(lines, "-1", start="constant(-9)", config="", trips=2)
    assert len(counts(found, "w")) == 8  # -9 … -2 are below -1
    wrong = loop(lines, limit="get-tuple-element(%t), index=0", trips=2)
    assert len(counts(wrong, "w")) == 0  # never below itself


BRANCHES = """
%heavy (a1: f32[8]) -> f32[8] {
  %a1 = f32[8] parameter(0)
  ROOT %exp = f32[8] exponential(%a1)
}

%light (a2: f32[8]) -> f32[8] {
  ROOT %a2 = f32[8] parameter(0)
}
"""


@pytest.mark.parametrize(
    ("predicate", "branches", "ran"),
    [
        ("pred[] parameter(1)", "true_computation=%light, false_computation=%heavy", True),
        ("pred[] constant(true)", "true_computation=%light, false_computation=%heavy", False),
        ("pred[] constant(false)", "true_computation=%light, false_computation=%heavy", True),
        ("s32[] constant(0)", "branch_computations={%heavy, %light}", True),
        ("s32[] constant(1)", "branch_computations={%heavy, %light}", False),
        ("s32[] constant(7)", "branch_computations={%heavy, %light}", False),
    ],
)
def test_branches(lines: Convert, nodes: Nodes, predicate: str, branches: str, ran: bool) -> None:
    conditional = f"%c = f32[8] conditional(%p, %x, %x), {branches}"
    found = lines(P0, f"%p = {predicate}", conditional, "%n = f32[8] negate(%c)", before=BRANCHES)
    assert ("exp" in nodes(found)) == ran
    assert nodes(found)["n"]["after"] == (["exp"] if ran else [])
    assert len(found.warnings) == ("parameter" in predicate)


ASYNC = """
%wrapped (b1: f32[8]) -> f32[2] {
  %b1 = f32[8] parameter(0)
  ROOT %rs = f32[2] reduce-scatter(%b1), replica_groups={}, dimensions={0}, to_apply=%sum
}
"""
OVERLAP = (
    P0,
    "%a = f32[8] negate(%x)",
    "%start = ((f32[8]), f32[2], u32[]) async-start(%a), calls=%wrapped",
    "%b = f32[8] negate(%x)",
    "%update = ((f32[8]), f32[2], u32[]) async-update(%start)",
    "%done = f32[2] async-done(%update)",
    "%c = f32[2] negate(%done)",
    "%d = f32[8] negate(%x)",
)


def test_asynchronous_collectives_overlap_what_does_not_wait_for_them(lines: Convert, nodes: Nodes) -> None:
    found = nodes(lines(*OVERLAP, before=ASYNC, replicas=4))
    assert {name: node["after"] for name, node in found.items()} == {
        "a": [], "rs": ["a"], "b": [], "c": ["rs"], "d": [],
    }  # fmt: skip


def test_in_order_only_what_is_asynchronous_overlaps(lines: Convert, nodes: Nodes) -> None:
    found = nodes(lines(*OVERLAP, before=ASYNC, replicas=4, in_order=True))
    assert {name: node["after"] + node["ctrl"] for name, node in found.items()} == {
        "a": [], "rs": ["a"], "b": ["a"], "c": ["rs", "b"], "d": ["c"],
    }  # fmt: skip


def test_send_and_recv_between_devices_match_and_those_to_the_host_take_no_time(
    lines: Convert, nodes: Nodes
) -> None:
    pairs = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2}}"}'
    found = lines(
        P0,
        "%token = token[] after-all()",
        f"%r = (f32[8], u32[], token[]) recv(%token), channel_id=4294967296, {pairs}",
        f"%s = (f32[8], u32[], token[]) send(%x, %token), channel_id=4294967296, {pairs}",
        "%rd = (f32[8], token[]) recv-done(%r), channel_id=4294967296",
        "%got = f32[8] get-tuple-element(%rd), index=0",
        "%n = f32[8] negate(%got)",
        "%out = token[] outfeed(%x, %token)",
        partitions=3,
    )
    comm = report(found)["comm"]
    assert comm == {"SEND": {"count": 2, "bytes": 64}, "RECV": {"count": 2, "bytes": 64}}
    assert nodes(found, 1)["s"]["comm_tag"] == nodes(found, 1)["r"]["comm_tag"]
    assert nodes(found, 1)["n"]["after"] == ["r"]
    assert ["outfeed" in warning for warning in found.warnings] == [True]


def test_nothing_becomes_of_nothing(lines: Convert) -> None:
    empty = lines("%x = f32[0] parameter(0)", "%c = f32[0] all-reduce(%x), to_apply=%sum", replicas=2)
    assert empty.trace.graph(0).n_nodes == 0


def test_unknown_operations_are_named_once(lines: Convert, nodes: Nodes) -> None:
    call = 'custom-call(%x), custom_call_target="mine"'
    found = lines(P0, f"%a = f32[8] {call}", f"%b = f32[8] {call}", "%c = f32[8] frobnicate(%x)")
    assert [warning.partition(": ")[2] for warning in found.warnings] == [
        f"the operations of '{what}' are not known and count as 0"
        for what in ("custom-call mine", "frobnicate")
    ]
    assert nodes(found)["b"]["tensor_size"] == 2 * SIZE


def test_control_predecessors_are_waited_for(lines: Convert, nodes: Nodes) -> None:
    found = nodes(lines(P0, "%a = f32[8] negate(%x)", "%b = f32[8] negate(%x), control-predecessors={%a}"))
    assert found["b"]["ctrl"] == ["a"]


@pytest.mark.parametrize(("options", "ranks"), [({}, 4), ({"ranks": 8}, 8), ({"ranks": 2}, 2)])
def test_ranks_are_partitions_times_replicas(lines: Convert, options: dict[str, int], ranks: int) -> None:
    line = "%c = f32[8] all-reduce(%x), channel_id=1, to_apply=%sum"
    assert lines(P0, line, partitions=2, replicas=2, **options).trace.n_ranks == ranks


@pytest.mark.parametrize(
    ("body", "options", "message"),
    [
        ([P0], {"ranks": 3}, "--ranks is 3, expected a multiple of the module's 2 partitions"),
        ([P0], {"ranks": 0}, "--ranks is 0"),
        ([P0], {"unroll": -1}, "--unroll is -1, expected at least 0"),
        (["%x = f32[8] parameter(1)"], {}, "m.hlo:9:1: 'main' has parameters [1], not 1"),
        ([P0, "%g = f32[8] get-tuple-element(%x), index=a"], {}, "index=a of 1 operands"),
        ([P0, "%t = (f32[8]) tuple(%x)", "%g = f32[8] get-tuple-element(%t), index=1"], {}, "index=1 of a tuple of 1"),
        ([P0, "%c = f32[8] all-reduce(%x), replica_groups={{0}}, to_apply=%sum"], {"ranks": 4}, "has no 1, expected"),
        ([P0, "%c = f32[8] conditional(%x, %x)"], {}, "0 branches and 2 operands"),
        ([P0, "%c = f32[8] while(%x), body=%sum"], {}, "'while' names no computation, expected condition="),
        (["%x = f32[999999999999999,999999999999999] parameter(0)",
          "%c = f32[8] negate(%x)"], {}, "'c' is more than 2^63 operations or bytes"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(
    lines: Convert, body: list[str], options: dict[str, int], message: str
) -> None:
    with pytest.raises(InputError) as error:
        lines(*body, partitions=2, **options)
    assert message in str(error.value)


def test_calls_that_double_at_every_level_are_refused(lines: Convert) -> None:
    levels = ["%f0 {\n  %p = f32[8] parameter(0)\n  ROOT %n = f32[8] negate(%p)\n}\n"]
    for level in range(1, 40):
        call = f"f32[8] call(%p), to_apply=%f{level - 1}"
        levels.append(f"%f{level} {{\n  %p = f32[8] parameter(0)\n  %a = {call}\n  ROOT %b = {call}\n}}\n")
    with pytest.raises(InputError, match="more than 2e"):
        lines(P0, "%c = f32[8] call(%x), to_apply=%f39", before="".join(levels))


def test_several_files_are_refused(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="2 files, expected one HLO module"):
        front_end("hlo").convert([tmp_path / "a", tmp_path / "b"])
