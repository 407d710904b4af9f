"""One collective alone: network model analytical against flow, within what docs/validation/studies.md says."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

import armillary
from armillary.collective.algorithms import algorithms_for
from armillary.collective.demand import OPERATIONS
from armillary.platform.model import Collectives, Platform
from armillary.platform.network import Dimension, Port, links_per_npu
from armillary.report import bound
from armillary.trace import CollectiveType, GraphBuilder, Trace

DOCS = Path(__file__).parents[3] / "docs" / "validation" / "studies.md"
TOPOLOGIES = ("Ring", "FullyConnected", "Switch", "Mesh")
RATE, LATENCY = 50.0, 500.0
ROW = re.compile(r"^\| `(\w+)` \| ([\d.]+) to ([\d.]+) \| ([\d.]+) to ([\d.]+) \|", re.MULTILINE)
USUAL = (0.90, 1.10)


def documented() -> dict[str, tuple[tuple[float, float], tuple[float, float]]]:
    """Return the ranges of each algorithm that has some, with one chunk and with many."""
    rows = ROW.findall(DOCS.read_text(encoding="utf-8"))
    assert rows
    return {
        name: ((float(a), float(b)), (float(c), float(d)))
        for name, a, b, c, d in rows
    }  # fmt: skip


def ratio(topology: str, n: int, operation: str, algorithm: str, size: int, chunks: int) -> float:
    """Return analytical ÷ flow, after both have kept their common bound."""
    link = RATE / links_per_npu(topology, n)  # type: ignore[arg-type]
    dimension = Dimension("d", topology, n, link, LATENCY, Port(RATE, RATE))  # type: ignore[arg-type]
    platform = Platform(
        (dimension,), collectives=Collectives(algorithms={operation: (algorithm,)}, chunks=chunks)
    )
    builder = GraphBuilder()
    builder.collective("c", CollectiveType[operation.upper().replace("-", "_")], size)
    trace = Trace.replicate(builder.graph(), n)
    one, other = (
        armillary.simulate(trace, platform, network_model=model) for model in ("analytical", "flow")
    )
    assert bound(one).ticks == bound(other).ticks <= min(one.total_ticks, other.total_ticks)
    return one.total_ticks / other.total_ticks


def beyond(members: list[int], sizes: list[int], chunk_counts: list[int]) -> list[tuple[object, ...]]:
    """Return the cases that differ by more than is documented."""
    ranges, found = documented(), list[tuple[object, ...]]()
    operations = [name for name in OPERATIONS if name not in ("barrier", "reduce-scatter-block")]
    for operation, topology, n, size, chunks in product(operations, TOPOLOGIES, members, sizes, chunk_counts):
        for algorithm in algorithms_for(operation):
            if algorithm == "in-switch":
                continue
            low, high = ranges.get(algorithm, (USUAL, USUAL))[chunks > 1]
            got = ratio(topology, n, operation, algorithm, size, chunks)
            if not low <= got <= high:
                found.append((operation, algorithm, topology, n, size, chunks, round(got, 3)))
    return found


def test_a_part_of_the_grid() -> None:
    assert beyond([4], [2000, 16_000_000], [1, 16]) == []


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 5, 6, 8, 12])
def test_the_grid(n: int) -> None:
    assert beyond([n], [2000, 50_000, 400_000, 3_000_000, 256_000_000], [1, 4, 16, 64]) == []


@pytest.mark.parametrize("n", [4, 6, 8])
def test_messages_half_way_round_a_ring_take_one_way_everywhere(n: int) -> None:
    """These were 0.67, 0.75 and 0.80."""
    assert ratio("Ring", n, "all-to-all", "direct", 1 << 24, 1) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("n", "size"), [(6, 50_000), (12, 400_000)])
def test_a_chain_goes_there_and_back_along_a_line_everywhere(n: int, size: int) -> None:
    """These were 0.80 and 0.46: where messages are moved, one of each round went from end to end."""
    assert 1.0 <= ratio("Mesh", n, "broadcast", "chain", size, 1) <= 1.15


@pytest.mark.parametrize("operation", ["broadcast", "reduce", "gather", "scatter"])
def test_a_dimension_is_more_than_one_port(operation: str) -> None:
    """64 chunks of a binomial tree over eight fully connected NPUs were up to 2.9 times as slow."""
    assert ratio("FullyConnected", 8, operation, "binomialTree", 1 << 26, 64) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("operation", ["broadcast", "reduce"])
def test_by_default_a_vector_takes_little_more_than_its_bytes(operation: str, topology: str) -> None:
    """64 NPUs and 1 GiB took six times as long with a binomial tree."""
    link = RATE / links_per_npu(topology, 64)  # type: ignore[arg-type]
    dimension = Dimension("d", topology, 64, link, LATENCY, Port(RATE, RATE))  # type: ignore[arg-type]
    builder = GraphBuilder()
    builder.collective("c", CollectiveType[operation.upper()], 1 << 30)
    ran = armillary.simulate(Trace.replicate(builder.graph(), 64), Platform((dimension,)))
    assert (1 << 30) / RATE <= ran.total_ticks <= 1.25 * bound(ran).ticks
