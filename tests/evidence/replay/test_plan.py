from __future__ import annotations

from collections.abc import Callable

import pytest

from armillary.base.errors import InputError
from armillary.evidence.replay.plan import plan_of
from armillary.trace import CollectiveType, GraphBuilder, Trace

Build = Callable[[GraphBuilder, int], object]


def ranks(build: Build, n: int = 2) -> Trace:
    graphs = []
    for rank in range(n):
        builder = GraphBuilder(rank=rank)
        build(builder, rank)
        graphs.append(builder.graph())
    return Trace.from_ranks(graphs)


def test_groups_members_and_pairs_are_known_to_all(trace: Trace) -> None:
    plan = plan_of(trace)
    assert plan.shared.groups == {1: (0, 1), 2: (2, 3)}
    assert plan.shared.pairs == ((0, 1), (1, 0), (2, 3), (3, 2))
    assert plan.shared.tags == (0, 2**31 - 1)
    # The all-reduce, five collectives of the world, five of each pair, two messages in each pair.
    assert len(plan.instances) == 1 + 5 + 2 * 5 + 2 * 2
    for instance in plan.instances:
        assert sorted(rank for rank, _ in instance.nodes) == sorted(instance.operation.members)


def test_equal_ranks_are_planned_from_one_graph() -> None:
    builder = GraphBuilder()
    builder.all_reduce("sum", 64)
    plan = plan_of(Trace.replicate(builder.graph(), 3))
    assert [rank.graph for rank in plan.ranks] == [plan.ranks[0].graph] * 3
    assert plan.ranks[0].graph is plan.ranks[2].graph


def test_the_order_in_a_group_is_that_of_the_ids_as_far_as_dependencies_allow() -> None:
    builder = GraphBuilder()
    builder.nodes = []
    late, early, _ = (builder.all_reduce(name, 8) for name in ("late", "early", "last"))
    builder.wait_for(late, after=early)
    plan = plan_of(Trace.replicate(builder.graph(), 2))
    assert late == 0
    assert plan.ranks[0].turn == {1: 0, 0: 1, 2: 2}


def test_the_root_is_a_rank_and_by_default_the_first_member() -> None:
    def build(builder: GraphBuilder, rank: int) -> None:
        builder.collective("first", CollectiveType.BROADCAST, 8)
        builder.collective("named", CollectiveType.BROADCAST, 8)
        builder.nodes[-1].attrs.append(("comm_root", "int32", 1))

    plan = plan_of(ranks(build))
    assert [operation.root for operation in plan.ranks[0].operations.values()] == [0, 1]


def test_each_member_of_an_uneven_all_to_all_knows_what_it_gets() -> None:
    def build(builder: GraphBuilder, rank: int) -> None:
        builder.all_to_all("routed", 10)
        builder.nodes[-1].attrs.append(("comm_splits", "int64_list", [rank, 10 - rank]))

    plan = plan_of(ranks(build))
    assert [rank.operations[0].received for rank in plan.ranks] == [(0, 1), (10, 9)]


MISMATCHES: dict[str, tuple[Build, str]] = {
    "size": (
        lambda b, rank: b.all_reduce("sum", 8 + rank),
        "rank 1: node 0 'sum' of rank 1 is all-reduce of 9 bytes, but what it meets is all-reduce of 8 bytes",
    ),
    "kind": (
        lambda b, rank: b.all_reduce("x", 8) if rank else b.all_gather("x", 8),
        "is all-reduce of 8 bytes, but what it meets is all-gather of 8 bytes",
    ),
    "count": (
        lambda b, rank: [b.all_reduce("sum", 8) for _ in range(1 + rank)],
        "node 1 'sum' of rank 1 is all-reduce of 8 bytes, which rank 0 never joins",
    ),
    "message size": (
        lambda b, rank: b.recv(0, 8) if rank else b.send(1, 9),
        "is recv of 8 bytes, but what it meets is send of 9 bytes",
    ),
    "message tag": (
        lambda b, rank: b.recv(0, 8, tag=1) if rank else b.send(1, 8, tag=2),
        "is send of 8 bytes, which rank 1 never joins",
    ),
    "nobody there": (lambda b, rank: b.send(2, 8), "has comm_dst 2; expected another rank from 0 to 1"),
    "itself": (
        lambda b, rank: b.add("odd", 5, [("comm_size", "int64", 8), ("comm_dst", "int32", rank)]),
        "has comm_dst 0; expected another rank from 0 to 1",
    ),
    "no such group": (lambda b, rank: b.all_reduce("sum", 8, group=7), "has pg_name '7'"),
    "not a member": (
        lambda b, rank: (
            b.metadata("", """['[{"pg_name": "1", "ranks": [0]}]']"""),
            b.all_reduce("sum", 8, group=1),
        ),
        "of rank 1 is a collective of group 1, [0]; expected one that the rank belongs to",
    ),
    "no collective": (lambda b, rank: b.add("odd", 7, [("comm_type", "int64", 12)]), "has comm_type 12"),
    "negative": (lambda b, rank: b.add("odd", 7, [("comm_size", "int64", -1)]), "has comm_size -1"),
    "negative work": (lambda b, rank: b.add("odd", 4, [("num_ops", "int64", -1)]), "has num_ops -1"),
    "no root": (
        lambda b, rank: b.add("odd", 7, [("comm_type", "int64", 5), ("comm_root", "int32", 9)]),
        "has comm_root 9",
    ),
    "too few splits": (
        lambda b, rank: b.add("odd", 7, [("comm_type", "int64", 6), ("comm_splits", "int64_list", [1])]),
        "comm_splits has 1 entries; expected 2",
    ),
    "cycle": (lambda b, rank: b.wait_for(b.compute("odd"), after=0), "dependency cycle of 1 node"),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_what_would_hang_or_fail_is_refused_before_it_runs(case: str) -> None:
    build, message = MISMATCHES[case]
    with pytest.raises(InputError) as error:
        plan_of(ranks(build))
    assert message in str(error.value)
