"""From a PyTorch program to a simulated step: collect, link, convert, check, simulate."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

import armillary
from armillary.convert import Converted, front_end, report
from armillary.convert.launch import collect_script
from armillary.platform.model import Platform, recorded_machine
from armillary.platform.network import Dimension
from armillary.trace import CollectiveType, NodeType
from armillary.trace.check_ranks import check_ranks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
PROGRAMS = Path(__file__).parent / "programs"
COMMUNICATION = {
    "ddp": (4, {"ALL_REDUCE": 2}, [(0, 1, 2, 3)]),
    "fsdp": (2, {"ALL_GATHER": 6, "REDUCE_SCATTER": 3}, [(0, 1)]),
    "tensor_parallel": (2, {"ALL_REDUCE": 1}, [(0, 1)]),
    "pipeline": (2, {"SEND": 2, "RECV": 2}, []),
    "mesh": (4, {"ALL_GATHER": 4, "REDUCE_SCATTER": 2, "ALL_REDUCE": 3}, [(0, 1), (0, 2), (1, 3), (2, 3)]),
}
"""By program: ranks, communication in one step of a rank, the groups that use it."""


@pytest.mark.parametrize("program", COMMUNICATION)
def test_a_program_becomes_a_simulated_step(program: str, tmp_path: Path) -> None:
    ranks, expected, groups = COMMUNICATION[program]
    collect_script(PROGRAMS / f"{program}.py", folder=tmp_path, ranks=ranks)
    converted = front_end("pytorch").convert([tmp_path])
    facts = report(converted)
    assert facts["link_rate"] >= 0.999
    assert facts["gap_fraction"] <= 0.02
    for rank in facts["per_rank"]:
        assert {kind: total["count"] for kind, total in rank["comm"].items()} == expected
    assert sorted(used(converted)) == groups
    assert not [one for one in check_ranks(converted.trace) if one.severity == "error"]
    replayed = armillary.simulate(converted.trace, recorded_machine(ranks), profile="physical")
    for rank, ticks in zip(facts["per_rank"], replayed.finish_ticks.tolist(), strict=True):
        assert ticks == pytest.approx(rank["recorded_ns"], rel=0.03)
    machine = Platform((Dimension("network", "Switch", ranks, bandwidth=10.0, latency=1000.0),))
    assert armillary.simulate(converted.trace, machine, profile="physical").total_ticks > 0


ROW, COLUMN, ALL = (
    {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)},
    {0: (0, 2), 1: (1, 3), 2: (0, 2), 3: (1, 3)},
    dict.fromkeys(range(4), (0, 1, 2, 3)),
)
"""The group of each of four ranks along the inner and the outer dimension of a 2 x 2 mesh, and all ranks."""
Calls = list[tuple[str, dict[int, tuple[int, ...]], int | dict[int, int]]]
CALLS: dict[str, Calls] = {
    "hsdp": [("ALL_GATHER", ROW, 4), ("REDUCE_SCATTER", ROW, 2), ("ALL_REDUCE", COLUMN, 2)],
    # Forward and, where the input has a gradient, backward of four microbatches.
    "pipeline_tensor": [
        ("ALL_REDUCE", ROW, {0: 4, 1: 4, 2: 8, 3: 8}),
        ("SEND", COLUMN, 4),
        ("RECV", COLUMN, 4),
    ],
    "experts": [("ALL_TO_ALL", ROW, 2), ("ALL_REDUCE", COLUMN, 2), ("ALL_REDUCE", ALL, 2)],
    "context": [("SEND", ROW, 1), ("RECV", ROW, 1), ("ALL_REDUCE", ROW, 2), ("ALL_REDUCE", COLUMN, 2)],
}
"""By program of four ranks: kind, group and number of the calls that each rank makes in a step."""


@pytest.mark.parametrize("program", CALLS)
def test_every_call_is_of_the_group_that_the_program_gave_it(program: str, tmp_path: Path) -> None:
    collect_script(PROGRAMS / f"{program}.py", folder=tmp_path, ranks=4)
    converted = front_end("pytorch").convert([tmp_path])
    assert converted.warnings == ()
    facts = report(converted)
    for rank in range(4):
        expected: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for kind, group_of, number in CALLS[program]:
            group = group_of[rank]
            if kind in ("SEND", "RECV"):
                other = next(each for each in group if each != rank)
                group = (rank, other) if kind == "SEND" else (other, rank)
            expected[kind, group] += number[rank] if isinstance(number, dict) else number
        assert calls(converted, rank) == expected
    assert not [one for one in check_ranks(converted.trace) if one.severity == "error"]
    replayed = armillary.simulate(converted.trace, recorded_machine(4), profile="physical")
    for each, ticks in zip(facts["per_rank"], replayed.finish_ticks.tolist(), strict=True):
        assert ticks == pytest.approx(each["recorded_ns"], rel=0.05)
    machine = Platform((Dimension("network", "Switch", 4, bandwidth=10.0, latency=1000.0),))
    assert armillary.simulate(converted.trace, machine, profile="physical").total_ticks > 0


def calls(converted: Converted, rank: int) -> Counter[tuple[str, tuple[int, ...]]]:
    """Return the communication of a rank: kind with the group, or with both ends of a message."""
    graph = converted.trace.graph(rank)
    found: Counter[tuple[str, tuple[int, ...]]] = Counter()
    everybody = tuple(range(converted.trace.n_ranks))
    for at, kind in enumerate(graph.types.tolist()):
        values = {name: value for name, _, value in graph.attrs(at)}
        if kind == NodeType.COMM_COLL_NODE:
            number = int(values.get("pg_name", 0))
            found[CollectiveType(values["comm_type"]).name, converted.groups.get(number, everybody)] += 1
        elif kind in (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE):
            name = "SEND" if kind == NodeType.COMM_SEND_NODE else "RECV"
            found[name, (values["comm_src"], values["comm_dst"])] += 1
    return found


def used(converted: Converted) -> set[tuple[int, ...]]:
    """The groups that collectives name; all ranks where they name none."""
    found = set()
    for graph in converted.trace.graphs:
        codes, names = graph.strings("pg_name")
        for at in (graph.types == NodeType.COMM_COLL_NODE).nonzero()[0].tolist():
            number = int(names[codes[at]]) if codes[at] >= 0 else 0
            found.add(converted.groups[number] if number else tuple(range(converted.trace.n_ranks)))
    return found
