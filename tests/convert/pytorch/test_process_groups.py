"""Which ranks take part: groups named, told by size only, guessed, merged over ranks, and partly absent."""

from __future__ import annotations

from typing import Any

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.convert import report
from armillary.convert.converted import Converted
from armillary.convert.pytorch.job import convert_job
from armillary.lab.extrapolation import ranks_named_by, recognise_one
from armillary.platform.model import Platform, recorded_machine
from armillary.platform.network import Dimension
from armillary.trace import Graph
from armillary.trace.trace import recorded_rank, recorded_world
from tests.convert.pytorch.recording import Recording, tensor

PG = "<Object>"
T, U = tensor(1, 1000), tensor(2, 500)


def group(name: str, ranks: list[int], desc: str = "", size: int | None = None) -> dict[str, Any]:
    """Return what a rank tells of a group."""
    return {"pg_name": name, "pg_desc": desc, "ranks": ranks, "group_size": size or len(ranks)}


def rank(
    number: int, world: int, groups: list[dict[str, Any]], *ops: tuple[Any, ...], said: bool = True
) -> Recording:
    """Return one rank that does the given operators (name, inputs, outputs, around) one after the other."""
    rec = Recording(rank=number if said else None, world=world, groups=groups)
    for at, (name, inputs, outputs, *around) in enumerate(ops):
        if around:
            rec.op(around[0], 1000 * at + 1, 1000 * at + 800)
        rec.op(name, 1000 * at + 100, 1000 * at + 600, inputs=inputs, outputs=outputs)
    return rec


def job(*ranks: Recording) -> Converted:
    """Return the job, which must simulate to its end on the machine it was recorded on."""
    converted = convert_job([rec.linked() for rec in ranks])
    armillary.simulate(converted.trace, recorded_machine(converted.trace.n_ranks))
    return converted


def groups_of(converted: Converted, at: int = 0) -> list[tuple[int, ...] | None]:
    """Return the ranks of each communication of one rank; None for all."""
    graph = converted.trace.graph(at)
    names = [{key: value for key, _, value in graph.attrs(p)} for p in communicates(graph)]
    return [converted.groups[int(name["pg_name"])] if "pg_name" in name else None for name in names]


def communicates(graph: Graph) -> list[int]:
    """Return the positions of the communication nodes."""
    return [p for p in range(graph.n_nodes) if graph.types[p] in (5, 6, 7)]


def functional(name: str) -> tuple[Any, ...]:
    return "_c10d_functional::all_reduce", (T, "sum", name), (T,)


def test_names_are_those_of_each_rank() -> None:
    """Two pairs, and rank 2 calls its own what rank 0 calls its own."""
    ranks = [
        rank(r, 4, [group("0", [], "default_pg", 4), group("1", pair)], functional("1"), functional("0"))
        for r, pair in enumerate(([0, 1], [0, 1], [2, 3], [2, 3]))
    ]
    converted = job(*ranks)
    assert converted.groups == {1: (0, 1), 2: (2, 3)}
    assert [groups_of(converted, r) for r in range(4)] == [
        [(0, 1), None],
        [(0, 1), None],
        [(2, 3), None],
        [(2, 3), None],
    ]
    assert converted.warnings == ()


def test_no_ranks_mean_all() -> None:
    converted = job(*(rank(r, 2, [group("0", [], "default_pg", 2)], functional("0")) for r in range(2)))
    assert converted.groups == {}
    assert groups_of(converted) == [None]


def test_groups_of_the_device_trace() -> None:
    recs = [rank(r, 4, [], functional("5")) for r in range(4)]
    traces = [rec.linked() for rec in recs]
    for r, linked in enumerate(traces):
        linked.device.distributed["pg_config"] = [group("5", [0, 2] if r % 2 == 0 else [1, 3])]
    assert convert_job(traces).groups == {1: (0, 2), 2: (1, 3)}


def test_start_and_stride_of_schema_1_1() -> None:
    recs = []
    for r in range(4):
        rec = Recording("1.1.0-chakra.0.0.4", rank=r, world=4)
        said = {"pg_name": "9", "pg_size": 2, "global_rank_start": r % 2, "global_rank_stride": 2}
        extra = {"collective_name": "allreduce", "dtype": "Float", "in_msg_nelems": 1000, **said}
        rec.op("record_param_comms", 0, 10, inputs=([T], 1, ["9", ""], 0, "allreduce"), extra=extra)
        recs.append(rec)
    converted = job(*recs)
    assert [groups_of(converted, r) for r in range(4)] == [[(0, 2)], [(1, 3)], [(0, 2)], [(1, 3)]]


def all_gather(members: int) -> tuple[Any, ...]:
    return "c10d::_allgather_base_", (tensor(3, 500 * members), U, PG, False, -1), ()


def test_guessed_by_the_size_of_an_all_gather() -> None:
    recs = [
        rank(
            r,
            4,
            [group("0", [], "default_pg", 4), group("1", [r - r % 2, r - r % 2 + 1])],
            all_gather(2),
            all_gather(4),
        )
        for r in range(4)
    ]
    converted = job(*recs)
    assert [groups_of(converted, r) for r in (0, 3)] == [[(0, 1), None], [(2, 3), None]]
    assert converted.warnings == (), "only one group has that size"


def mesh(r: int) -> list[dict[str, Any]]:
    """Return the groups of a rank in a 2 x 2 mesh: columns shard data, rows shard tensors."""
    dp, tp = [r % 2, r % 2 + 2], [r - r % 2, r - r % 2 + 1]
    return [group("0", [], "default_pg", 4), group("1", dp, "mesh_dp"), group("2", tp, "mesh_tp")]


def test_fsdp_in_a_mesh_gathers_over_the_data_dimension() -> None:
    recs = [
        rank(r, 4, mesh(r), (*all_gather(2), "FSDP::all_gather"), functional("2"))
        for r in range(4)
    ]  # fmt: skip
    converted = job(*recs)
    assert [groups_of(converted, r) for r in range(4)] == [
        [(0, 2), (0, 1)],
        [(1, 3), (0, 1)],
        [(0, 2), (2, 3)],
        [(1, 3), (2, 3)],
    ]
    assert converted.warnings[0] == (
        "rank 0: 1 collectives do not say their process group; the likeliest of that size, '1' (mesh_dp), is assumed"
    )


def test_of_two_groups_the_unnamed_one_is_likelier() -> None:
    groups = [group("1", [0, 1], "a"), group("2", [1, 0], "b")]
    recs = [rank(r, 2, groups, functional("1"), all_gather(2)) for r in range(2)]
    assert groups_of(job(*recs)) == [None, (1, 0)]


def test_all_ranks_where_nothing_is_known() -> None:
    recs = [rank(r, 3, [], ("c10d::allreduce_", ([T], PG), ())) for r in range(3)]
    converted = job(*recs)
    assert groups_of(converted) == [None]
    assert converted.groups == {}


def test_groups_keep_the_ranks_of_the_job_where_some_are_absent() -> None:
    recs = [
        rank(r, 8, [group("1", [0, 2, 5, 7]), group("2", [1, 5])], functional("1"), functional("2"))
        for r in (2, 5)
    ]
    converted = job(*recs)
    assert converted.trace.n_ranks == 2
    assert groups_of(converted, 0) == [(0, 2, 5, 7), (1, 5)]
    assert [recorded_rank(graph) for graph in converted.trace.graphs] == [2, 5]
    assert {recorded_world(graph) for graph in converted.trace.graphs} == {8}
    assert "2 of 8 ranks are given (rank 2, 5)" in converted.warnings[0]


def test_a_part_of_the_ranks_is_replayed_and_no_machine_takes_it() -> None:
    recs = [rank(r, 8, [group("1", [0, 2, 5, 7])], functional("1")) for r in (2, 5)]
    trace = job(*recs).trace
    assert armillary.simulate(trace, recorded_machine(2)).total_ticks > 0
    for npus in (2, 8):
        machine = Platform((Dimension("network", "Switch", npus, bandwidth=10.0, latency=1000.0),))
        with pytest.raises(InputError, match=r"2 of the 8 ranks of its run .*--from-one-rank"):
            armillary.simulate(trace, machine)


def test_all_ranks_can_do_what_one_did() -> None:
    converted = job(rank(5, 8, [group("1", [4, 5, 6, 7])], functional("1")))
    graph = converted.trace.graph(0)
    whole, _ = recognise_one(graph, 5, ranks_named_by(graph))
    assert whole.n_ranks == 8
    machine = Platform((Dimension("network", "Switch", 8, bandwidth=10.0, latency=1000.0),))
    assert armillary.simulate(whole, machine).total_ticks > 1000, "the collective moves something"


def attrs(converted: Converted, at: int) -> list[dict[str, Any]]:
    graph = converted.trace.graph(at)
    return [{key: value for key, _, value in graph.attrs(p)} for p in communicates(graph)]


def test_peers_and_roots_are_members_of_the_group() -> None:
    groups = [group("0", [], "default_pg", 4), group("1", [3, 1])]
    recs = [
        rank(
            r,
            4,
            groups,
            ("_c10d_functional::broadcast", (T, 1, "1"), (T,)),
            ("_c10d_functional::isend", (T, 0, 9, "1"), (T,))
            if r == 1
            else ("_c10d_functional::irecv", (T, 1, 9, "1"), (T,)),
        )
        for r in (1, 3)
    ]
    recs += [rank(r, 4, groups) for r in (0, 2)]
    for rec in recs[2:]:
        rec.op("aten::mm", 0, 10)
    converted = job(*recs)
    (cast, send), (_, recv) = attrs(converted, 1), attrs(converted, 3)
    assert converted.groups == {1: (3, 1)}
    assert cast["comm_root"] == 1
    assert (send["comm_src"], send["comm_dst"], send["comm_tag"]) == (1, 3, 9)
    assert (recv["comm_src"], recv["comm_dst"], recv["comm_tag"]) == (1, 3, 9)


def test_peers_and_roots_where_ranks_are_absent() -> None:
    """Ranks 1 and 3 of four are given: everybody keeps the number that he has in the job."""
    recs = [
        rank(
            r,
            4,
            [group("0", [], "default_pg", 4)],
            ("c10d::broadcast_", ([T], PG, 3, 0, True, -1), ()),
            ("c10d::broadcast_", ([T], PG, 2, 0, True, -1), ()),
            ("c10d::send", ([T], PG, 3, 9), ()) if r == 1 else ("c10d::recv_", ([T], PG, 1, 9), ()),
            ("c10d::send", ([T], PG, 2, 9), ()) if r == 1 else ("c10d::recv_", ([T], PG, 0, 9), ()),
        )
        for r in (1, 3)
    ]
    converted = job(*recs)
    sent = attrs(converted, 0)
    assert [each["comm_root"] for each in sent[:2]] == [3, 2]
    assert [(each["comm_src"], each["comm_dst"]) for each in sent[2:]] == [(1, 3), (1, 2)]
    assert sum("1 messages have their other end" in warning for warning in converted.warnings) == 2


def test_ranks_by_the_device_trace_or_the_name_of_the_file() -> None:
    said = [rank(r, 3, [], ("aten::mm", (T, T), (T,)), said=True).linked() for r in (2, 0, 1)]
    assert [one["rank"] for one in report(convert_job(said))["per_rank"]] == [0, 1, 2]
    named = []
    for name, count in (("host_10.json", 1), ("host_9.json.gz", 2)):
        linked = rank(0, 1, [], *[("aten::mm", (T, T), (T,))] * count, said=False).linked()
        linked.host.source = f"folder/{name}"
        named.append(linked)
    first, second = report(convert_job(named))["per_rank"]
    assert first["nodes"] == 2 * second["nodes"], "rank 9 before rank 10"


def test_odd_groups_are_passed_over() -> None:
    odd: list[Any] = [
        {"pg_name": "1", "ranks": "all"},
        {"pg_name": "2", "ranks": [0, -1]},
        {"pg_name": "3", "ranks": [10**12]},
        {"pg_name": "4", "ranks": [], "group_size": 10**12},
        {"pg_name": "5", "ranks": [0], "group_size": "two"},
        {"ranks": [0, True]},
        7,
    ]
    converted = job(rank(0, 1, odd, functional("3")))
    assert converted.trace.n_ranks == 1


def test_a_root_is_named_by_its_rank_as_peers_are() -> None:
    groups = [group("0", [], "default_pg", 4), group("1", [2, 3])]
    recs = [
        rank(r, 4, groups, ("_c10d_functional::broadcast", (T, member, "1"), (T,)))
        for r, member in ((2, 1), (3, 1))
    ]
    for other in (0, 1):
        recs.append(rank(other, 4, groups))
        recs[-1].op("aten::mm", 0, 10)
    converted = job(*recs)
    assert [attrs(converted, at)[0]["comm_root"] for at in (2, 3)] == [3, 3]
