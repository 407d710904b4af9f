"""Captured ranks as traces: order of streams, events, communications and host."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import armillary
from armillary.base.errors import InputError
from armillary.capture import classes, document, trace_of, unpriced
from armillary.capture.log import ALL, HOST, JOIN, RECORD, WAIT, Communication, Log, Row
from armillary.platform.files.native import load_platform
from armillary.trace import Graph
from armillary.trace.expand import expand
from armillary.trace.trace import read_groups
from tests.capture.logs import COPY, CUSTOM, GEMM, call, kernel, log

GATHER = Communication("all-gather", 1 << 20, 8 << 20, 0, False)
REDUCE = Communication("all-reduce", 1 << 20, 1 << 20, 0, True)


def parents(graph: Graph) -> list[list[int]]:
    offsets, found = graph.parents()
    return [sorted(found[a:b].tolist()) for a, b in pairwise(offsets)]


def graph_of(rows: list[Row], communications: list[Communication] | None = None, **options: int) -> Graph:
    return trace_of([log(0, 8, rows, [tuple(range(8))], communications)], **options).graphs[0]


def test_streams_are_in_order_and_wait_for_events() -> None:
    rows = [
        kernel(),
        Row(RECORD, 5, 0),
        kernel(),
        Row(WAIT, 5, 2),
        kernel(2),
        kernel(2),
        Row(WAIT, 9, 0),
        kernel(),
    ]
    assert parents(graph_of(rows)) == [[], [0], [0], [2], [1]]


def test_an_event_is_what_was_issued_before_it_was_recorded() -> None:
    rows = [kernel(), Row(RECORD, 5, 0), kernel(), Row(RECORD, 5, 0), Row(WAIT, 5, 1), kernel(1)]
    assert parents(graph_of(rows))[2] == [1]
    # A stream that has run nothing hands on what it waits for.
    rows = [kernel(), Row(RECORD, 5, 0), Row(WAIT, 5, 1), Row(RECORD, 6, 1), Row(WAIT, 6, 2), kernel(2)]
    assert parents(graph_of(rows)) == [[], [0]]


def test_a_communication_of_a_group_runs_beside_its_stream_until_somebody_waits() -> None:
    rows = [kernel(), call(0), kernel(), call(1), Row(JOIN, 0, 0), kernel()]
    graph = graph_of(rows, [REDUCE, REDUCE])
    # The second one follows the first on the group's own stream.
    assert parents(graph) == [[], [0], [0], [1, 2], [1, 2]]
    assert len(set(graph.ints("stream")[[1, 3]].tolist())) == 1
    assert not set(graph.ints("stream")[[1, 3]].tolist()) & {0}


def test_a_communication_on_a_stream_of_the_program_stays_there() -> None:
    graph = graph_of([kernel(), call(0, 2), kernel(2), kernel()], [GATHER])
    assert parents(graph) == [[], [], [1], [0]]
    assert graph.ints("comm_size")[1] == 1 << 20


@pytest.mark.parametrize(
    ("wait", "wanted"),
    [(Row(HOST, 0, 0), [0]), (Row(HOST, 0, ALL), [0, 1]), (Row(HOST, 4, 0), [1])],
    ids=["stream", "device", "event"],
)
def test_what_is_issued_after_the_host_has_waited_waits_too(wait: Row, wanted: list[int]) -> None:
    rows = [kernel(), kernel(1), Row(RECORD, 4, 1), wait, kernel(3), kernel(3)]
    assert parents(graph_of(rows))[2:] == [wanted, [2]]


def test_the_host_takes_time_for_every_operator_that_it_calls() -> None:
    graph = graph_of([kernel(), kernel()], host_ns=1500)
    on_cpu = graph.ints("is_cpu_op") > 0
    assert graph.ints("duration_ns")[on_cpu].tolist() == [3000, 3000]
    assert parents(graph) == [[], [0], [0], [1, 2]]


def test_kernels_carry_what_prices_them() -> None:
    graph = graph_of([kernel(), kernel(0, COPY), kernel(0, CUSTOM)])
    assert graph.ints("num_ops").tolist() == [2 * 512 * 256 * 128, 1, 1]
    assert graph.int_lists("gemm")[1][0] == (1, 1, 512, 128, 256)
    assert graph.has("no_rule").tolist() == [False, False, True]
    names, texts = graph.strings("module")
    assert [texts[code] for code in names.tolist()] == ["layers.0"] * 3


def mesh_logs(uneven: bool = False) -> list[Log]:
    """Return first and last rank of 8, tensor parallel 2."""
    found = []
    for rank in (0, 7):
        groups = [(rank // 2 * 2, rank // 2 * 2 + 1), tuple(range(rank % 2, 8, 2))]
        rows = [kernel(), call(0), Row(JOIN, 0, 0), kernel(0, COPY), call(1), Row(JOIN, 1, 0), kernel()]
        found.append(log(rank, 8, rows, groups, [REDUCE, Communication("all-gather", 256, 1024, 1, True)]))
    if uneven:
        found[1].kinds = [found[1].kinds[0], found[1].kinds[2], found[1].kinds[2]]
    return found


def test_a_few_ranks_make_the_trace_of_all() -> None:
    trace = trace_of(mesh_logs())
    assert trace.n_ranks == 8 and len(trace.graphs) == 1
    whole = expand(trace)
    groups, _ = read_groups(whole)
    assert [groups[int(name)].tolist() for name in whole.graph(5).strings("pg_name")[1]] == [
        [4, 5],
        [1, 3, 5, 7],
    ]
    result = armillary.simulate(trace, load_platform("dgx-h100"))
    assert armillary.simulate(trace, load_platform("dgx-h100"), fold=False).total_ticks == result.total_ticks


def test_json_has_the_keys_of_its_reference() -> None:
    content = document(mesh_logs())
    assert content["ranks"] == 8
    [only] = content["classes"]
    assert only["ranks"] == list(range(8)) and only["representative"] == 0 and only["run"] == [0, 7]
    assert only["operators"] == 3 and only["flops"] == 4 * 512 * 256 * 128 and only["peak_bytes"] == 0
    first = {name: only["collectives"][0][name] for name in ("type", "bytes", "group", "stream")}
    assert first == {"type": "all-reduce", "bytes": 1 << 20, "group": [0, 1], "stream": -1}


def test_ranks_that_differ_at_one_place_are_told_apart() -> None:
    logs = mesh_logs()
    logs[1].rows.append(kernel())
    assert [each.ranks for each in classes(logs)] == [(0,), (7,)]
    with pytest.raises(InputError, match=r"what 6 of 8 ranks do does not follow from ranks 0, 7.*--run all"):
        trace_of(logs)


def test_optimizers_of_more_pieces_are_no_other_class_where_some_ranks_were_not_run() -> None:
    logs = mesh_logs()
    pieces = [Row(HOST, 0, 0), Row(HOST, 0, 0), kernel(0, COPY), kernel(0, COPY)]
    logs[0].rows += pieces[:1] + pieces[2:3]
    logs[1].rows += pieces
    [only] = classes(logs)
    assert only.ranks == tuple(range(8)) and only.log.rank == 7 and only.uneven == 1
    # All that is known of a few ranks: an operator between two GEMMs is another matter.
    logs[1].rows.insert(1, kernel(0, COPY))
    assert len(classes(logs)) == 2


def test_groups_that_no_mesh_has_need_all_ranks() -> None:
    one = log(0, 6, [kernel(), call(0)], [(0, 1, 2, 3)], [REDUCE])
    with pytest.raises(InputError, match="no axes of a mesh of 6 ranks"):
        trace_of([one])
    rest = [
        log(rank, 6, [kernel(), *([call(0)] if rank < 4 else [])], [(0, 1, 2, 3)], [REDUCE])
        for rank in range(6)
    ]
    trace = trace_of(rest)
    assert trace.grid is None and trace.n_ranks == 6
    assert np.diff(trace.graphs[0].parents()[0]).tolist()[-2:] == [0, 1]


def test_operators_without_a_rule_are_named_with_their_share() -> None:
    rows = [kernel(), kernel(0, CUSTOM), kernel(0, CUSTOM)]
    trace = trace_of([log(0, 8, rows)])
    [(name, (count, share))] = unpriced(trace, load_platform("dgx-h100")).items()
    assert name == "mine::kernel" and count == 2 and 0.2 < share < 0.9
    assert unpriced(trace_of([log(0, 8, [kernel(0, GEMM)])]), load_platform("dgx-h100")) == {}
