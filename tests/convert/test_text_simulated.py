"""Simulated text workloads of ASTRA-sim 1.0 against closed forms, and those of the reference data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from armillary.astra_sim import simulate
from armillary.convert import Converted, front_end, report

from .text_workloads import ORDERS, layers


def ticks(converted: Converted, profile: str, shape: tuple[int, ...] = (8,)) -> int:
    network = {
        "topology": ["Switch"] * len(shape),
        "npus_count": list(shape),
        "bandwidth": [10**9 / 2**30] * len(shape),
        "latency": [500.0] * len(shape),
    }
    system = {
        "endpoint-delay": 0,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "local-mem-bw": 10**9,
        **{
            f"{name}-implementation": ["ring"] * len(shape)
            for name in ("all-reduce", "all-gather", "reduce-scatter")
        },
        "all-to-all-implementation": ["direct"] * len(shape),
    }
    return simulate(converted.trace, system, network, profile=profile).total_ticks


@pytest.mark.parametrize("profile", ["astra-sim", "physical"])
@pytest.mark.parametrize(
    ("kind", "steps", "parts"), [("ALLREDUCE", 14, 8), ("ALLGATHER", 7, 1), ("REDUCESCATTER", 7, 8)]
)
def test_a_collective_takes_its_closed_form(
    text: Any, kind: str, steps: int, parts: int, profile: str
) -> None:
    """A ring over a switch of 1 byte/ns: `steps` of 500 ns latency, twice over the links to and from it, and bytes."""
    size = 8 * 10**6
    alone = ticks(text(f"MICRO\n1\na -1 5 NONE 0 5 NONE 0 5 {kind} {size} 0"), profile)
    assert alone == pytest.approx(steps * (1000 + size / parts), rel=1e-3)


@pytest.mark.parametrize("profile", ["astra-sim", "physical"])
def test_time_of_a_step_is_compute_and_what_is_not_hidden(text: Any, profile: str) -> None:
    """In DATA the last all-reduce alone is exposed; inference waits for each."""
    row = "-1 1000000 {0} 2000000 {0} 3000000 ALLREDUCE 80000 0\n"
    alone = ticks(text("MICRO\n1\na -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 80000 0"), profile)
    data = text("DATA\n3\n" + "".join(name + " " + row.format("NONE 0") for name in "abc"))
    assert ticks(data, profile) == 3 * 4_000_000 + 2 * 2_000_000 + alone
    body = "".join(name + " " + row.format("ALLREDUCE 80000") for name in "abc")
    inference = text("DISTRIBUTED_INFERENCE\n3\n" + body)
    assert ticks(inference, profile) == 3 * (1_000_000 + alone)


@pytest.mark.parametrize("header", [*ORDERS, "HYBRID_CUSTOMIZED"])
@pytest.mark.parametrize("dims", [None, "4,4"])
def test_every_kind_simulates_to_the_end(text: Any, header: str, dims: str | None) -> None:
    rows = layers(4)
    if header == "HYBRID_CUSTOMIZED":
        rows = rows.replace(" 0\n", " 0 HYBRID_DATA_MODEL\n")
    converted = text(f"{header}\n4\n{rows}", npus=16, dims=dims, passes=2)
    for profile in ("astra-sim", "physical"):
        assert ticks(converted, profile, (4, 4)) > 0


@pytest.mark.shared
def test_every_text_workload_found_converts_and_simulates(shared: Path) -> None:
    files = sorted((shared / "traces" / "astra1_text").rglob("*.txt"))
    assert len(files) == 61
    for file in files:
        for dims in (None, "16,4"):
            converted = front_end("text").convert([file], npus=64, dims=dims)
            for profile in ("astra-sim", "physical"):
                assert ticks(converted, profile, (16, 4)) > 0, (file, dims, profile)


@pytest.mark.shared
def test_collectives_of_gpt3_are_those_of_its_file(shared: Path) -> None:
    """Counted by hand: 28 layers in three blocks of nine and one, each block but the last layer computed again."""
    file = shared / "traces/astra1_text/tutorials/isca2022/exercise_3/inputs/gpt3.txt"
    rows = [line.split() for line in file.read_text().splitlines()[2:]]
    again = [*range(18, 26), *range(9, 17), *range(8)]
    parts = [rows[at][3:5] for at in [*range(28), *again]]
    parts += [row[at : at + 2] for row in rows for at in (6, 9)]
    parts = [(name, int(size)) for name, size in parts if name != "NONE"]
    converted = front_end("text").convert([file], npus=64)
    names = {"ALL_REDUCE": "ALLREDUCE", "ALL_GATHER": "ALLGATHER"}
    comm = report(converted)["comm"]
    assert set(comm) == set(names)
    for ours, theirs in names.items():
        sizes = [size for name, size in parts if name == theirs]
        assert comm[ours] == {"count": 64 * len(sizes), "bytes": 64 * sum(sizes)}
    assert sorted(map(len, converted.groups.values())) == [4] * 16 + [16] * 4
