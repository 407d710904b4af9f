"""Every recorded run of ASTRA-sim: the same finish tick for every rank, or a clear error where it failed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary.base.errors import InputError, StuckError
from armillary.trace import Graph, Node, NodeType, Trace, graph_of

pytestmark = pytest.mark.shared

GROUPS = (
    "1d", "active", "casestudy", "coll1d", "dag", "knobs", "mdsmall", "mem", "multid", "params", "rendezvous",
    "roofline", "scale", "scale_clean", "sharedbus", "subgroup", "subgroup-strided", "themis", "workload", "worldgroup",
)  # fmt: skip
THINNED = {"casestudy": 7, "mdsmall": 5, "coll1d": 4, "themis": 9}
"""Of these groups the default run takes every k-th record."""
MODELS = {"unaware": "analytical", "aware": "congestion"}
"""Upstream's binary -> network model."""
AWARE = (
    "1d", "active", "casestudy", "coll1d", "dag", "knobs", "rendezvous", "scale", "scale_clean", "workload",
)  # fmt: skip
FEWEST_AWARE = 2444
"""Runs of backend ``aware`` that finished, outside group themis."""
DECIDED_WITHIN_A_TICK = {
    "mdsmall": ("mdsmall/R4R4R4/all_reduce/dbt/64K/sp16/ac4/localBWAware/unaware",),
    "themis": ("sched/W2D/all_reduce/LIFO/RG/offlineGreedy/sp64/ac4/unaware", "t/themis/474"),
}
"""Runs whose ticks hang on which of two events of one tick was registered first."""

UNDEFINED = {
    "workload/roofline/pp1_bw1/ops0_ts1000000/unaware": 1_000_000,
    "workload/roofline/pp0.001_bw1600/ops0_ts1000000/unaware": 625,
}
"""There ASTRA-sim divides 0 by 0 and takes 2**63 ns; here a node of no operations moves its bytes."""


@pytest.fixture
def sample(request: pytest.FixtureRequest) -> tuple[int, int]:
    """Every which record is run, and on how many NPUs at most: checked kernels are interpreted."""
    return (10, 64) if request.config.getoption("--checked") else (1, 1 << 30)


def records(shared: Path, group: str, every: int = 1, backend: str = "unaware") -> Iterator[dict[str, Any]]:
    with gzip.open(shared / "oracle" / f"{group}.jsonl.gz", "rt") as lines:
        kept = (record for record in map(json.loads, lines) if record["backend"] == backend)
        yield from (record for number, record in enumerate(kept) if number % every == 0)


def graph(nodes: list[dict[str, Any]], source: str) -> Graph:
    return graph_of(
        [
            Node(
                id=node["id"], name=node.get("name", ""), type=int(NodeType[node["type"]]),
                ctrl_deps=node.get("ctrl_deps", ()), data_deps=node.get("data_deps", ()),
                duration_micros=node.get("duration_micros", 0), attrs=[tuple(a) for a in node.get("attrs", [])],
            )
            for node in nodes
        ],
        source,
    )  # fmt: skip


def simulate(record: dict[str, Any]) -> armillary.Timeline:
    workload = record["workload"]
    if "all" in workload:
        npus = int(np.prod(record["network"]["npus_count"]))
        trace = Trace.replicate(graph(workload["all"], "every rank"), npus)
    else:
        trace = Trace.from_ranks({int(r): graph(n, f"rank {r}") for r, n in workload["per_rank"].items()})
    return armillary.astra_sim.simulate(
        trace, record["system"], record["network"], record["memory"], record["comm_groups"], record["cli"],
        MODELS[record["backend"]],
    )  # fmt: skip


def complaint(record: dict[str, Any]) -> str | None:
    """Run one record; returns what is wrong, or None."""
    try:
        found = simulate(record).finish_ticks
    except (InputError, StuckError) as error:
        return f"{type(error).__name__}: {error}" if record["outcome"] == "ok" else None
    except Exception as error:  # whatever else escapes is a fault, and the other records still count
        return f"{type(error).__name__}: {error}"
    if record["outcome"] != "ok" or record["id"] in UNDEFINED:
        return None
    ticks, counts = zip(*record["finish"], strict=True)
    expected = np.repeat(np.array(ticks, dtype=np.int64), counts)
    if np.array_equal(found, expected):
        return None
    rank = int(np.flatnonzero(found != expected)[0])
    return f"rank {rank} finishes at {found[rank]}, expected {expected[rank]}"


def check(shared: Path, group: str, every: int, backend: str = "unaware", largest: int = 1 << 30) -> None:
    wrong, count = [], 0
    for record in records(shared, group, every, backend):
        count += 1
        if np.prod(record["network"]["npus_count"]) <= largest and (text := complaint(record)):
            wrong.append(f"{record['id']}: {text}")
    assert count > 0
    assert not wrong, f"{len(wrong)} of {count} runs:\n" + "\n".join(wrong[:20])


@pytest.mark.parametrize("group", GROUPS)
def test_group(group: str, shared: Path, sample: tuple[int, int]) -> None:
    every, largest = sample
    check(shared, group, every * THINNED.get(group, 1), largest=largest)


@pytest.mark.parametrize("group", DECIDED_WITHIN_A_TICK)
def test_events_of_a_tick_are_in_the_order_of_registration(group: str, shared: Path) -> None:
    wanted = DECIDED_WITHIN_A_TICK[group]
    found = {r["id"]: complaint(r) for r in records(shared, group) if r["id"] in wanted}
    assert found == dict.fromkeys(wanted)


@pytest.mark.parametrize("group", AWARE)
def test_contention(group: str, shared: Path, sample: tuple[int, int]) -> None:
    every, largest = sample
    check(shared, group, every * THINNED.get(group, 1), "aware", min(1024, largest))


@pytest.mark.slow
def test_every_record_with_contention(shared: Path) -> None:
    finished = 0
    for group in GROUPS:
        finished += sum(r["outcome"] == "ok" for r in records(shared, group, backend="aware"))
        if group in AWARE:
            check(shared, group, 1, "aware")
    assert finished >= FEWEST_AWARE


@pytest.mark.slow
@pytest.mark.parametrize("group", sorted(THINNED))
def test_every_record_of_the_large_groups(group: str, shared: Path) -> None:
    check(shared, group, 1)


def test_work_without_operations_takes_the_time_of_its_bytes(shared: Path) -> None:
    found = {r["id"]: simulate(r) for r in records(shared, "workload") if r["id"] in UNDEFINED}
    assert {key: set(t.finish_ticks.tolist()) for key, t in found.items()} == {
        key: {ticks} for key, ticks in UNDEFINED.items()
    }
    for timeline in found.values():
        assert any("num_ops 0" in warning for warning in timeline.info["warnings"])
