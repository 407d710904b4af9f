"""Every operator that communicates: type, bytes, group, peer, tag, root and splits."""

from __future__ import annotations

from typing import Any

import pytest

from armillary.convert.pytorch.communicating_nodes import communications
from armillary.convert.pytorch.communication import Communication, kind_of
from tests.convert.pytorch.recording import Recording, tensor

PG, OP, NONE = "<Object>", "<Object>", "<None>"
T, U = tensor(1, 1000), tensor(2, 250)
"""4,000 and 1,000 bytes."""


def found(rec: Recording) -> list[Communication]:
    return communications(rec.host_trace())


def one(name: str, inputs: tuple[Any, ...], outputs: tuple[Any, ...] = (), **extra: Any) -> Communication:
    """Return the communication of an operator alone."""
    rec = Recording(extra.pop("schema", "1.1.1-chakra.0.0.4"))
    rec.op(name, 0, 100, inputs=inputs, outputs=outputs, extra=extra)
    (made,) = found(rec)
    return made


# Arguments as in the schemas that torch 2.13 registers; sizes by the meaning of Chakra's comm_size.
C10D: list[tuple[str, tuple[Any, ...], str, int, dict[str, Any]]] = [
    ("allreduce_", ([T], PG, OP, NONE, False, -1), "ALL_REDUCE", 4000, {}),
    ("allreduce_coalesced_", ([T, U], PG, OP, True, -1), "ALL_REDUCE", 5000, {}),
    ("broadcast_", ([T], PG, 3, 0, True, -1), "BROADCAST", 4000, {"peer": 3}),
    ("reduce_", ([T], PG, OP, 2, 0, True, -1), "REDUCE", 4000, {"peer": 2}),
    ("allgather_", ([[U, U, U, U]], [U], PG, True, -1), "ALL_GATHER", 1000, {"group_size": 4}),
    ("_allgather_base_", (T, U, PG, True, -1), "ALL_GATHER", 1000, {"group_size": 4}),
    ("allgather_coalesced_", ([[U, U], [U, U]], [U, U], PG, True), "ALL_GATHER", 2000, {"group_size": 2}),
    ("allgather_into_tensor_coalesced_", ([T, T], [U, U], PG, True), "ALL_GATHER", 2000, {"group_size": 4}),
    ("reduce_scatter_", ([U], [[U, U, U, U]], PG, OP, True, -1), "REDUCE_SCATTER", 4000, {"group_size": 4}),
    ("_reduce_scatter_base_", (U, T, PG, OP, True, -1), "REDUCE_SCATTER", 4000, {"group_size": 4}),
    (
        "reduce_scatter_tensor_coalesced_",
        ([U, U], [T, T], PG, OP, True, -1),
        "REDUCE_SCATTER",
        8000,
        {"group_size": 4},
    ),
    ("gather_", ([[U, U]], [U], PG, 1, True, -1), "GATHER", 2000, {"peer": 1, "part": 1000}),
    ("gather_", ([], [U], PG, 1, True, -1), "GATHER", 0, {"peer": 1, "part": 1000}),
    ("scatter_", ([U], [[U, U]], PG, 1, True, -1), "SCATTER", 2000, {"peer": 1, "part": 1000}),
    ("scatter_", ([U], [], PG, 1, True, -1), "SCATTER", 0, {"peer": 1, "part": 1000}),
    ("alltoall_base_", (T, T, PG, [], [], True, -1), "ALL_TO_ALL", 4000, {"splits": ()}),
    ("alltoall_base_", (U, T, PG, [1, 1], [1, 3], True, -1), "ALL_TO_ALL", 4000, {"splits": (1000, 3000)}),
    ("alltoall_base_", (U, T, PG, [1, 3], [], True, -1), "ALL_TO_ALL", 4000, {"splits": ()}),
    ("alltoall_", ([U, U], [U, T], PG, True, -1), "ALL_TO_ALL", 5000, {"splits": (1000, 4000)}),
    ("barrier", (tensor(9, 1, 1), PG, [], False, -1), "BARRIER", 0, {}),
    ("monitored_barrier_", (tensor(9, 1), PG, [], 100, False), "BARRIER", 0, {}),
    ("send", ([T], PG, 3, 17), "SEND", 4000, {"peer": 3, "tag": 17}),
    ("recv_", ([T], PG, 3, 17), "RECV", 4000, {"peer": 3, "tag": 17}),
    ("recv_any_source_", ([T], PG, 17), "RECV", 4000, {"peer": None, "tag": 17}),
]


@pytest.mark.parametrize(("name", "inputs", "kind", "size", "more"), C10D)
def test_every_operator_of_c10d(
    name: str, inputs: tuple[Any, ...], kind: str, size: int, more: dict[str, Any]
) -> None:
    made = one(f"c10d::{name}", inputs)
    assert (made.kind, made.size, made.group) == (kind, size, None)
    wanted = {"peer": None, "tag": 0, "part": 0, "splits": (), "group_size": None} | more
    assert {key: getattr(made, key) for key in wanted} == wanted


FUNCTIONAL: list[tuple[str, tuple[Any, ...], tuple[Any, ...], str, int, dict[str, Any]]] = [
    ("all_reduce", (T, "sum", "7"), (T,), "ALL_REDUCE", 4000, {}),
    ("all_reduce_", (T, "sum", "7"), (T,), "ALL_REDUCE", 4000, {}),
    ("all_reduce_coalesced", ([T, U], "avg", "7"), ([T, U],), "ALL_REDUCE", 5000, {}),
    ("all_reduce_coalesced_", ([T, U], "avg", "7"), ([T, U],), "ALL_REDUCE", 5000, {}),
    ("all_gather_into_tensor", (U, 4, "7"), (T,), "ALL_GATHER", 1000, {"group_size": 4}),
    ("all_gather_into_tensor_out", (U, 4, "7", T), (T,), "ALL_GATHER", 1000, {"group_size": 4}),
    ("all_gather_into_tensor_coalesced", ([U, U], 4, "7"), ([T, T],), "ALL_GATHER", 2000, {"group_size": 4}),
    ("reduce_scatter_tensor", (T, "sum", 4, "7"), (U,), "REDUCE_SCATTER", 4000, {"group_size": 4}),
    ("reduce_scatter_tensor_out", (T, "sum", 4, "7", U), (U,), "REDUCE_SCATTER", 4000, {"group_size": 4}),
    (
        "reduce_scatter_tensor_coalesced",
        ([T, T], "sum", 4, "7"),
        ([U, U],),
        "REDUCE_SCATTER",
        8000,
        {"group_size": 4},
    ),
    ("all_to_all_single", (T, [2, 2], [1, 3], "7"), (T,), "ALL_TO_ALL", 4000, {"splits": (1000, 3000)}),
    ("broadcast", (T, 2, "7"), (T,), "BROADCAST", 4000, {"peer": 2}),
    ("broadcast_", (T, 2, "7"), (T,), "BROADCAST", 4000, {"peer": 2}),
    ("isend", (T, 2, 5, "7"), (T,), "SEND", 4000, {"peer": 2, "tag": 5}),
    ("irecv", (T, 2, 5, "7"), (T,), "RECV", 4000, {"peer": 2, "tag": 5}),
]


@pytest.mark.parametrize(("name", "inputs", "outputs", "kind", "size", "more"), FUNCTIONAL)
@pytest.mark.parametrize("space", ["_c10d_functional", "c10d_functional", "_c10d_functional_autograd"])
def test_functional_collectives_name_their_group(
    space: str,
    name: str,
    inputs: tuple[Any, ...],
    outputs: tuple[Any, ...],
    kind: str,
    size: int,
    more: dict[str, Any],
) -> None:
    made = one(f"{space}::{name}", inputs, outputs)
    assert (made.kind, made.size, made.group) == (kind, size, "7")
    wanted = {"peer": None, "tag": 0, "splits": (), "group_size": None} | more
    assert {key: getattr(made, key) for key in wanted} == wanted


def test_a_group_that_is_an_object_has_no_name() -> None:
    assert one("_c10d_functional::all_reduce", (T, "sum", PG), (T,)).group is None


@pytest.mark.parametrize(
    "name",
    [
        "_c10d_functional::wait_tensor",
        "_c10d_functional_autograd::_wrap_all_reduce",
        "c10d::check_for_nan",
        "aten::scatter",
        "aten::gather",
        "aten::broadcast_tensors",
        "nccl:coalesced",
        "mine:all_reduce",
        "DistributedDataParallel.forward",
        "autograd::engine::evaluate_function: AllReduce",
    ],
)
def test_what_does_not_communicate(name: str) -> None:
    rec = Recording()
    rec.op(name, 0, 10, inputs=(T,))
    assert found(rec) == []


def params(*inputs: Any, schema: str = "1.0.1", **extra: Any) -> Communication:
    return one("record_param_comms", inputs, (U,) if schema == "1.0.1" else ([U],), schema=schema, **extra)


def test_record_param_comms_of_schema_1_0_1() -> None:
    """Tensors, sequence number, group, then rank, root or peer, the name, and splits to send and to receive."""
    assert params([T], 151, 94594108284448, 1, "allreduce", [], []).size == 4000
    assert params([T], 151, 94594108284448, 1, "allreduce", [], []).peer is None
    assert params([T], 151, 94594108284448, 6, "broadcast", [], []).peer == 6
    assert params([T], 151, 94594108284448, 6, "reduce", [], []).peer == 6
    assert params([T], 151, 94594108284448, 6, "send", [], []).peer == 6
    assert params([T], 151, 94594108284448, 6, "send", [], []).tag == 0
    made = params(T, 151, 94594108284448, 0, "all_to_allv", [1, 3], [2, 2])
    assert (made.kind, made.size, made.splits) == ("ALL_TO_ALL", 4000, (1000, 3000))
    made = params(tensor(3, 125), 151, 94594108284448, 0, "_allgather_base", [], [])
    assert (made.kind, made.size, made.group_size) == ("ALL_GATHER", 500, 2)
    made = params([T], 151, 94594108284448, 0, "_reduce_scatter_base", [], [])
    assert (made.kind, made.size, made.group_size) == ("REDUCE_SCATTER", 4000, 4)
    rec = Recording("1.0.1")
    rec.op("record_param_comms", 0, 1, inputs=(141, 0, 0, "wait", [], []))
    rec.op("record_param_comms", 2, 3, inputs=(141, 0, 0, "init", [], []))
    assert found(rec) == []


def test_record_param_comms_since_1_0_3_names_the_group() -> None:
    made = params([T], 33, ["2", "dp"], 0, "broadcast", [], [], 4, 1, 2, schema="1.0.3-chakra.0.0.4")
    assert (made.group, made.peer, made.kind) == ("2", 0, "BROADCAST")


SAID = {
    "collective_name": "allreduce",
    "dtype": "Float",
    "in_msg_nelems": 1000,
    "pg_name": "5",
    "pg_size": 4,
    "global_rank_start": 1,
    "global_rank_stride": 2,
}


def test_record_param_comms_of_schema_1_1_0() -> None:
    made = params([T], 35, ["5", "dp"], 1, "allreduce", [], [], 1, 2, 4, schema="1.1.0-chakra.0.0.4", **SAID)
    assert (made.kind, made.size, made.group, made.group_size) == ("ALL_REDUCE", 4000, "5", 4)
    assert made.ranks == (1, 3, 5, 7)
    without = params([], 35, ["5", "dp"], 1, "allreduce", [], [], schema="1.1.0-chakra.0.0.4", **SAID)
    assert without.size == 4000, "as the attributes say where the tensors are not recorded"
    half = SAID | {"dtype": "BFloat16"}
    assert params([], 35, 0, "x", [], [], schema="1.1.0-chakra.0.0.4", **half).size == 2000


@pytest.mark.parametrize(
    "odd",
    [
        {"pg_size": 10**12},
        {"pg_size": -1},
        {"global_rank_stride": 0},
        {"global_rank_start": -1},
        {"ranks": "all"},
        {"ranks": [-5]},
        {"pg_size": "4"},
        {"pg_size": True},
        {"global_rank_start": None},
    ],
)
def test_odd_attributes_say_no_ranks(odd: dict[str, Any]) -> None:
    made = params([T], 35, ["5", "dp"], 1, "allreduce", schema="1.1.0-chakra.0.0.4", **(SAID | odd))
    assert made.ranks in (None, (1, 3, 5, 7))
    assert "ranks" in odd or made.ranks is None


def test_one_communication_that_is_recorded_four_times() -> None:
    rec = Recording("1.1.0-chakra.0.0.4")
    rec.op("_c10d_functional::all_reduce", 0, 100, inputs=(T, "sum", "5"), outputs=(T,))
    rec.op("c10d::allreduce_", 10, 90, inputs=([T], PG, OP, NONE, False, -1))
    rec.op("record_param_comms", 20, 80, inputs=([T], 35, ["5", "dp"], 1, "allreduce", [], []), extra=SAID)
    rec.op("nccl:all_reduce", 30, 70, inputs=(T,), annotation=True)
    (made,) = found(rec)
    host = rec.host_trace()
    assert host.nodes[made.node].name == "c10d::allreduce_"
    assert (made.kind, made.size, made.group, made.ranks) == ("ALL_REDUCE", 4000, "5", (1, 3, 5, 7))
    assert made.path[0] == "_c10d_functional::all_reduce"


def test_two_operators_inside_one_functional_collective_are_two() -> None:
    rec = Recording()
    rec.op("_c10d_functional::all_gather_into_tensor_coalesced", 0, 100, inputs=([U, U], 4, "5"))
    for at, part in ((10, 1), (50, 2)):
        rec.op("c10d::_allgather_base_", at, at + 30, inputs=(T, tensor(part, 250), PG, False, -1))
        rec.op("record_param_comms", at + 5, at + 20, inputs=(U, 1, [f"g{part}", ""], 0, "_allgather_base"))
    assert [(made.kind, made.size, made.group) for made in found(rec)] == [
        ("ALL_GATHER", 1000, "g1"),
        ("ALL_GATHER", 1000, "g2"),
    ]


def test_the_operator_tells_the_type_where_the_backend_does_something_else() -> None:
    rec = Recording()
    rec.op("c10d::_reduce_scatter_base_", 0, 100, inputs=(U, T, PG, OP, False, -1))
    rec.op("gloo:all_reduce", 50, 60, inputs=(T,), annotation=True)
    rec.op("c10d::barrier", 200, 300, inputs=(tensor(9, 1), PG, [], False, -1))
    rec.op("c10d::allreduce_", 210, 290, inputs=([T], PG, OP, NONE, False, -1))
    assert [made.kind for made in found(rec)] == ["REDUCE_SCATTER", "BARRIER"]


@pytest.mark.parametrize(
    ("name", "kind", "peer"),
    [
        ("nccl:all_reduce", "ALL_REDUCE", None),
        ("nccl:_all_gather_base", "ALL_GATHER", None),
        ("nccl:all_to_all", "ALL_TO_ALL", None),
        ("nccl:send 0->3", "SEND", 3),
        ("nccl:recv 0<-12", "RECV", 12),
        ("gloo:send", "SEND", None),
        ("mpi:reduce_scatter", "REDUCE_SCATTER", None),
        ("xccl:broadcast", "BROADCAST", None),
    ],
)
def test_annotations_alone(name: str, kind: str, peer: int | None) -> None:
    made = one(name, (T,))
    assert (made.kind, made.size, made.peer) == (kind, 4000, peer)


def test_order_of_issue_and_path() -> None:
    rec = Recording()
    rec.op("FSDP::all_gather", 0, 50)
    rec.op("c10d::_allgather_base_", 10, 40, inputs=(T, U, PG, False, -1))
    rec.op("c10d::allreduce_", 5, 60, tid=2, inputs=([T], PG, OP, NONE, False, -1))
    first, second = found(rec)
    assert (first.kind, second.kind) == ("ALL_REDUCE", "ALL_GATHER")
    assert second.path[0] == "FSDP::all_gather"


@pytest.mark.parametrize("odd", [None, "x", [1, 2], {"a": 1}, [[[[[[T]]]]]], -1, True])
@pytest.mark.parametrize("name", ["allreduce_", "_allgather_base_", "alltoall_base_", "gather_", "send"])
def test_arguments_of_other_types_are_no_tensors(name: str, odd: Any) -> None:
    for inputs in ((odd,), (odd, odd, odd, odd, odd), ()):
        assert one(f"c10d::{name}", inputs).size == 0


def test_sizes_no_memory_can_hold_are_none() -> None:
    assert one("c10d::allreduce_", ([[1, 1, 0, 10**18, 8, "cpu"]], PG)).size == 0
    assert one("c10d::allreduce_", ([[1, 1, 0, -4, 8, "cpu"]], PG)).size == 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("AllGather", "ALL_GATHER"),
        ("ReduceScatter", "REDUCE_SCATTER"),
        ("all_to_allv", "ALL_TO_ALL"),
        ("ALLTOALL_BASE", "ALL_TO_ALL"),
        ("all_reduce_barrier", None),
        ("", None),
        ("out", None),
    ],
)
def test_kind_of_a_name(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


def test_an_operator_hides_nothing_of_other_calls() -> None:
    """Of a file of HTA: all-reduces came through c10d, all-to-alls through an extension that annotates only."""
    rec = Recording("1.1.0-chakra.0.0.4")
    rec.op("c10d::allreduce_", 0, 100, inputs=([T], PG, OP, NONE, False, -1))
    rec.op("nccl:all_reduce", 30, 70, inputs=(T,), annotation=True)
    rec.op("record_param_comms", 200, 300, extra={})
    rec.op("nccl:all_to_all", 220, 280, inputs=(T,), annotation=True)
    rec.op("nccl:all_to_all", 320, 380, inputs=(U,), annotation=True)
    assert [(made.kind, made.size) for made in found(rec)] == [
        ("ALL_REDUCE", 4000),
        ("ALL_TO_ALL", 4000),
        ("ALL_TO_ALL", 1000),
    ]


def test_annotations_of_a_backend_with_its_own_threads_time_its_calls() -> None:
    rec = Recording("1.1.0-chakra.0.0.4")
    rec.op("c10d::allreduce_", 0, 100, inputs=([T], PG, OP, NONE, False, -1))
    rec.gloo("gloo:all_reduce", 50, 150, 200, inputs=(T,))
    assert len(found(rec)) == 1


def test_both_backends_of_one_rank_are_told_apart() -> None:
    rec = Recording("1.1.0-chakra.0.0.4")
    rec.op("c10d::allreduce_", 0, 100, inputs=([T], PG, OP, NONE, False, -1))
    rec.op("nccl:all_reduce", 30, 70, inputs=(T,), annotation=True)
    rec.op("gloo:barrier", 300, 400, annotation=True)
    assert [made.kind for made in found(rec)] == ["ALL_REDUCE", "BARRIER"]


def test_a_note_names_the_group_and_is_no_call() -> None:
    rec = Recording("1.1.0-chakra.0.0.4")
    rec.op("c10d::allreduce_", 0, 100, inputs=([T], PG, OP, NONE, False, -1))
    rec.op("armillary::process_group 7", 1, 2)
    rec.op("c10d::send", 200, 300, inputs=([T], PG, 1, 0))
    rec.op("armillary::process_group dp 2", 201, 202)
    assert [(made.kind, made.group) for made in found(rec)] == [("ALL_REDUCE", "7"), ("SEND", "dp 2")]


SAYS: list[tuple[str, dict[str, Any], int, int]] = [
    ("allreduce", {"in_msg_nelems": 10, "out_msg_nelems": 10}, 20, 0),
    ("_allgather_base", {"in_msg_nelems": 10, "out_msg_nelems": 40}, 20, 0),
    ("_allgather_base", {"out_msg_nelems": 40}, 20, 0),
    ("_reduce_scatter_base", {"in_msg_nelems": 40, "out_msg_nelems": 10}, 80, 0),
    ("_reduce_scatter_base", {"out_msg_nelems": 10}, 80, 0),
    ("all_to_allv", {"in_msg_nelems": 0, "out_msg_nelems": 30}, 0, 0),
    ("gather", {"in_msg_nelems": 10, "out_msg_nelems": 0}, 0, 20),
    ("scatter", {"in_msg_nelems": 0, "out_msg_nelems": 10}, 0, 20),
    ("recv", {"in_msg_nelems": 0, "out_msg_nelems": 10}, 20, 0),
]


@pytest.mark.parametrize(("name", "said", "size", "part"), SAYS)
def test_bytes_that_attributes_say(name: str, said: dict[str, Any], size: int, part: int) -> None:
    schema = "1.1.0-chakra.0.0.4"
    made = one(
        "record_param_comms", (), schema=schema, collective_name=name, dtype="BFloat16", pg_size=4, **said
    )
    assert (made.size, made.part, made.sized) == (size, part, True)


def test_bytes_that_nothing_says_are_unknown_and_zero_elements_are_none() -> None:
    assert not one("c10d::allreduce_", (["<None>"], PG, OP, NONE, False, -1)).sized
    assert not params(
        schema="1.1.0-chakra.0.0.4", collective_name="allreduce", in_msg_nelems=7, dtype="Mine"
    ).sized
    empty = one("c10d::alltoall_base_", (tensor(1, 0), tensor(2, 0), PG, [], [], True, -1))
    assert empty.sized and empty.is_empty
    assert one("c10d::barrier", (tensor(9, 1, 1), PG, [], False, -1)).sized


@pytest.mark.parametrize(
    ("text", "splits"),
    [
        ("[1, 3]", (20, 60)),
        ("[10,30]", (20, 60)),
        ("[]", ()),
        ("[1, 2, ...]", ()),
        ("[3, 3, 3]", ()),
        (None, ()),
    ],
)
def test_splits_that_attributes_say(text: str | None, splits: tuple[int, ...]) -> None:
    said = {"in_msg_nelems": 40, "dtype": "BFloat16", "in_split_size": text}
    made = one("record_param_comms", (), schema="1.1.0-chakra.0.0.4", collective_name="all_to_allv", **said)
    assert (made.size, made.splits) == (80, splits)
