"""Ticks that ASTRA-sim gave on machines known from papers, and its rules worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import armillary
from armillary.trace import CollectiveType, GraphBuilder, Trace

KINDS = {
    "all-reduce": CollectiveType.ALL_REDUCE,
    "reduce-scatter": CollectiveType.REDUCE_SCATTER,
    "all-gather": CollectiveType.ALL_GATHER,
    "all-to-all": CollectiveType.ALL_TO_ALL,
}

BLOCKS = {
    "R": ("Ring", "ring"),
    "F": ("FullyConnected", "direct"),
    "S": ("Switch", "halvingDoubling"),
}
"""Building block -> topology and algorithm."""


def run(
    kind: str,
    size: int,
    topology: list[str],
    sizes: list[int],
    bandwidth: list[float],
    algorithms: list[str],
    cli: tuple[str, ...] = (),
    **system: Any,
) -> armillary.Timeline:
    """Run one collective over a whole machine."""
    builder = GraphBuilder()
    builder.collective(kind, KINDS[kind], size)
    network = {
        "topology": topology,
        "npus_count": sizes,
        "bandwidth": bandwidth,
        "latency": [500.0] * len(sizes),
    }
    keys = {
        "scheduling-policy": "LIFO",
        "endpoint-delay": 10,
        "collective-optimization": "localBWAware",
        f"{kind}-implementation": algorithms,
        **{key.replace("_", "-"): value for key, value in system.items()},
    }
    return armillary.astra_sim.simulate(
        Trace.replicate(builder.graph(), math.prod(sizes)), keys, network, cli=cli
    )


@pytest.mark.parametrize(
    ("topology", "algorithm", "splits", "active", "ticks"),
    [
        ("Ring", "ring", 1, 1, (96365, 75708, 140297, 82638)),
        ("Ring", "ring", 4, 1, (117780, 86420, 151016, 125480)),
        ("Ring", "ring", 4, 4, (29445, 21605, 37754, 31370)),
        ("Switch", "direct", 1, 1, (14775, 11324, 20551, 3461)),
        ("Switch", "direct2", 1, 1, (43344, 29540, 82174, 13814)),
        ("Switch", "halvingDoubling", 1, 1, (63835, 43717, 139758)),
        ("FullyConnected", "direct", 1, 1, (13775, 10824, 20051, 2961)),
    ],
)
def test_one_mebibyte_over_eight(
    topology: str, algorithm: str, splits: int, active: int, ticks: tuple[int, ...]
) -> None:
    for kind, expected in zip(KINDS, ticks, strict=False):
        timeline = run(
            kind, 1 << 20, [topology], [8], [50.0], [algorithm],
            local_mem_bw=50, preferred_dataset_splits=splits, active_chunks_per_dimension=active,
        )  # fmt: skip
        assert timeline.finish_ticks.tolist() == [expected] * 8, kind


@pytest.mark.parametrize(("kind", "ticks"), list(zip(KINDS, (162883, 118272, 343343, 176596), strict=True)))
def test_shared_bus(kind: str, ticks: int) -> None:
    timeline = run(
        kind, 1 << 20, ["Ring"], [8], [50.0], ["ring"],
        local_mem_bw=50, preferred_dataset_splits=1, model_shared_bus=1, L=10, o=5, g=7, G=0.01,
    )  # fmt: skip
    assert timeline.finish_ticks.tolist() == [ticks] * 8


@pytest.mark.parametrize(
    ("topology", "sizes", "bandwidth", "queues", "ticks"),
    [
        ("S", [512], [350.0], 1, 7_653_248),
        ("S", [512], [500.0], 1, 5_942_528),
        ("S", [512], [600.0], 1, 5_276_672),
        ("SS", [32, 16], [250.0, 250.0], 1, 9_137_920),
        ("RFS", [16, 8, 4], [200.0, 100.0, 50.0], 1, 11_834_240),
        ("RFRS", [2, 8, 8, 4], [250.0, 200.0, 100.0, 50.0], 1, 4_856_448),
        ("SS", [32, 16], [250.0, 250.0], 2, 5_016_828),
        ("RFS", [16, 8, 4], [200.0, 100.0, 50.0], 2, 6_749_600),
        ("RFRS", [2, 8, 8, 4], [250.0, 200.0, 100.0, 50.0], 2, 2_900_626),
    ],
)
def test_case_study_machines(
    topology: str, sizes: list[int], bandwidth: list[float], queues: int, ticks: int
) -> None:
    """1 GiB over 512 NPUs in 64 chunks: wafer-scale and conventional machines."""
    names, algorithms = zip(*(BLOCKS[letter] for letter in topology), strict=True)
    timeline = run(
        "all-reduce", 1 << 30, list(names), sizes, bandwidth, list(algorithms),
        (f"--num-queues-per-dim={queues}",),
        local_mem_bw=2039, preferred_dataset_splits=64, active_chunks_per_dimension=queues,
    )  # fmt: skip
    assert np.array_equal(timeline.finish_ticks, np.full(512, ticks))


@pytest.mark.parametrize(
    ("topology", "sizes", "bandwidth", "ticks"),
    [
        ("S", [512], [500.0], (5_942_528, 5_943_168, 5_943_168, 5_942_528, 5_942_528, 3_405_087, 3_405_087)),
        ("SS", [32, 16], [250.0, 250.0], (9_137_920, 5_033_578, 6_755_468, 5_157_632, 5_016_828, 4_737_642, 2_859_400)),
        (
            "RFS", [16, 8, 4], [200.0, 100.0, 50.0],
            (11_834_240, 10_071_880, 8_969_595, 11_581_211, 6_749_600, 8_680_360, 4_552_510),
        ),
        (
            "RFRS", [2, 8, 8, 4], [250.0, 200.0, 100.0, 50.0],
            (4_856_448, 4_570_303, 4_506_354, 11_011_003, 2_900_626, 3_725_270, 2_835_260),
        ),
    ],
)  # fmt: skip
def test_case_study_machines_with_schedulers(
    topology: str, sizes: list[int], bandwidth: list[float], ticks: tuple[int, ...]
) -> None:
    """The same with Themis and round robin; ticks of ASTRA-sim with its dormant schedulers awake (spec: 1(j))."""
    ways = [
        (1, "baseline", "FIFO"), (1, "themis", "FIFO"), (1, "themis", "SCF"), (1, "roundRobin", "FIFO"),
        (2, "baseline", "FIFO"), (2, "themis", "FIFO"), (2, "themis", "SCF"),
    ]  # fmt: skip
    found = []
    for queues, across, within in ways:
        timeline = run(
            "all-reduce", 1 << 30, [BLOCKS[letter][0] for letter in topology], sizes, bandwidth,
            [BLOCKS[letter][1] for letter in topology], (f"--num-queues-per-dim={queues}",),
            local_mem_bw=2039, preferred_dataset_splits=64, active_chunks_per_dimension=queues,
            inter_dimension_scheduling=across, intra_dimension_scheduling=within,
        )  # fmt: skip
        found.append(timeline.total_ticks)
    assert tuple(found) == ticks


def test_torus_of_4096() -> None:
    timeline = run(
        "all-reduce", 1 << 30, ["Ring"] * 3, [16, 16, 16], [250.0, 200.0, 100.0], ["ring"] * 3,
        local_mem_bw=1600, preferred_dataset_splits=64, active_chunks_per_dimension=1,
    )  # fmt: skip
    assert np.array_equal(timeline.finish_ticks, np.full(4096, 10_366_400))


def test_ring_all_reduce_in_closed_form() -> None:
    """One chunk on an idle ring: e + (n-1)(T + e + r) + (n-1)(T + e)."""
    n, size = 8, 1 << 20
    message = int(500 + size // n / (50 * 2**30 / 10**9))
    reduction = 3 * int(size // n / 50e9 * 1e9)
    expected = 10 + (n - 1) * (message + 10 + reduction) + (n - 1) * (message + 10)
    timeline = run(
        "all-reduce", size, ["Ring"], [n], [50.0], ["ring"], local_mem_bw=50, preferred_dataset_splits=1
    )
    assert timeline.finish_ticks.tolist() == [expected] * n
