"""From a PyTorch program to a simulated step: collect, link, convert, check, simulate."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import armillary
from armillary.convert import Converted, front_end, report
from armillary.convert.launch import collect_script
from armillary.platform.model import Dimension, Platform
from armillary.platform.recorded import recorded_machine
from armillary.trace import NodeType
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
        assert ticks == pytest.approx(rank["span_ns"], rel=0.03)
    machine = Platform((Dimension("network", "Switch", ranks, bandwidth=10.0, latency=1000.0),))
    assert armillary.simulate(converted.trace, machine, profile="physical").total_ticks > 0


def used(converted: Converted) -> set[tuple[int, ...]]:
    """The groups that collectives name; all ranks where they name none."""
    found = set()
    for graph in converted.trace.graphs:
        codes, names = graph.strings("pg_name")
        for at in (graph.types == NodeType.COMM_COLL_NODE).nonzero()[0].tolist():
            number = int(names[codes[at]]) if codes[at] >= 0 else 0
            found.add(converted.groups[number] if number else tuple(range(converted.trace.n_ranks)))
    return found
