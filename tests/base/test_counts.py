"""What a file or an option asks for is counted before it is made, and refused in one line if it is too much."""

from __future__ import annotations

from pathlib import Path

import pytest

import armillary
from armillary.base import counts
from armillary.base.errors import InputError, ShortageError
from armillary.collective.rounds import plain_sizes
from armillary.explore.search.run import search
from armillary.explore.sweep import load_sweep
from armillary.lab.learned.requests import read_request
from armillary.platform import load_platform
from armillary.trace import GraphBuilder, Trace
from armillary.workload.single_nodes import families

STUDY = {
    "workload": {"collective": "all-reduce", "size": "10 TB"},
    "platform": {
        "topology": {
            "kind": "leaf-spine", "leaves": 2, "spines": 1, "npus_per_leaf": 2, "bandwidth": "50 GB/s",
            "latency": "500 ns",
        },
        "npu": {"memory": {"bandwidth": "2 TB/s"}},
    },
}  # fmt: skip
LATENCIES = {"from": "1 ns", "to": "1 ms", "count": 4000}
MANY = {"from": "1 ns", "to": "1 ms", "count": 1_000_000}
SWEEP = {
    "study": STUDY,
    "vary": {
        "platform.topology.latency": LATENCIES,
        "workload.size": {"from": "1 MB", "to": "4 GB", "step": "1 MB"},
    },
    "objectives": ["minimize step_time"],
}


def test_messages_and_packets() -> None:
    builder = GraphBuilder()
    builder.all_reduce("sum", size="10 TB")
    trace = Trace.replicate(builder.graph(), ranks=4)
    machine = load_platform({"platform": STUDY["platform"]} | {"profile": "physical"})
    with pytest.raises(InputError) as error:
        armillary.simulate(trace, machine, network_model="packet")
    said = str(error.value)
    assert "network model packet: events of messages and packets" in said and "expected at most 10 G" in said
    # As many bytes are few events where whole messages move.
    assert int(armillary.simulate(trace, machine, network_model="flow").finish_ticks.max()) > 0


def test_chunks() -> None:
    assert plain_sizes(7, 3) == [3, 2, 2]
    with pytest.raises(InputError, match="collectives: chunks: 1 G of them, expected at most 1 M"):
        plain_sizes(1 << 40, 1_000_000_000)
    with armillary.allow(limits=0.1), pytest.raises(InputError, match="expected at most 100,000"):
        plain_sizes(1 << 40, 200_000)


def test_points_of_a_sweep() -> None:
    sweep = load_sweep(SWEEP)
    assert sweep.space.at(15_999_999).number == 15_999_999
    with pytest.raises(InputError, match="vary: points: 16 M of them, expected at most 10 M"):
        sweep.space.check_size()
    with pytest.raises(InputError, match="vary: points: 16 M of them"):
        search(SWEEP, method="random", trials=3)
    with armillary.allow(limits=2):
        sweep.space.check_size()


@pytest.mark.parametrize("method", ["random", "tpe", "nsga2"])
def test_trials(method: str) -> None:
    with pytest.raises(InputError, match="search: trials: 1 M of them, expected at most 100,000"):
        search(SWEEP | {"vary": {"platform.topology.latency": MANY}}, method=method, trials=1_000_000)  # type: ignore[arg-type]


def test_draws(tmp_path: Path) -> None:
    (tmp_path / "draws.yaml").write_text("count: 1000000\nchoices: {layers: [2, 3]}\n")
    with pytest.raises(InputError, match=r"draws.yaml: count: traces: 1 M of them, expected at most 100,000"):
        read_request(tmp_path / "draws.yaml")
    assert counts.MOST_DRAWS == 100_000


def test_graphs_of_every_rank_are_estimated_before_the_first() -> None:
    with pytest.raises(ShortageError, match="1,000,000,000 NPUs: making their graphs takes about 6"):
        next(families(1_000_000_000))
