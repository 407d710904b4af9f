"""Schedules that are searched for: right, as the slow reference finds them, and as good as bounds say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.collective import synthesize
from armillary.collective.msccl import parse_msccl
from armillary.collective.msccl_check import check_result
from armillary.collective.synthesis import OPERATIONS, check_schedule, lower_bound, symmetric
from armillary.collective.synthesis.check import check_times
from armillary.collective.synthesis.edges import edges_of
from armillary.collective.synthesis.greedy import greedy
from armillary.collective.synthesis.messages import MOST_WRITTEN, messages_of
from armillary.collective.synthesis.spread import Options
from armillary.collective.synthesis.xml import to_msccl
from armillary.platform.network import Dimension
from armillary.platform.topology import Shortest, Topology, from_dimensions
from tests.collective.synthesis.networks import dimensions, fabric, networks
from tests.collective.synthesis.references import Greedy, results

OPTIONS = st.builds(Options, st.integers(0, 99), st.sampled_from([1, 3]), st.booleans())


def torus(side: int, dimensions: int) -> Topology:
    return from_dimensions([Dimension(f"d{i}", "Torus", side, 50.0, 500.0) for i in range(dimensions)])


@settings(max_examples=40, deadline=None)
@given(networks, st.integers(1, 3), OPTIONS, st.integers(1, 3000), st.booleans())
def test_kernel_finds_what_its_slow_reference_finds(
    topology: Topology, per_npu: int, options: Options, chunk: int, backwards: bool
) -> None:
    edges = edges_of(Shortest(topology), chunk, 1000 * (chunk % 3))
    if backwards:
        edges = edges.reversed(edges.after)
    reference = Greedy(edges, per_npu, options)
    expected = reference.run()
    if any(
        reference.lacks[v] for v in range(edges.n)
    ):  # slow edges are needed after all: `greedy` then is loose
        assert not options.loose
        reference = Greedy(edges, per_npu, replace(options, loose=True))
        expected = reference.run()
    found = greedy(edges, per_npu, options, "interpreted")
    assert list(zip(found.edge.tolist(), found.chunk.tolist(), found.start.tolist(), strict=True)) == expected
    assert found.end == reference.end


@settings(max_examples=40, deadline=None)
@given(networks, st.sampled_from(OPERATIONS), st.integers(1, 100_000), st.sampled_from([None, 1, 3]))
def test_every_schedule_computes_its_operation(
    topology: Topology, operation: str, size: int, per_npu: int | None
) -> None:
    found = synthesize(topology, operation, size, chunks_per_npu=per_npu, tries=2, memory_bandwidth=1e12)
    check_schedule(found, "interpreted")
    n, everyone = found.n, frozenset(range(found.n))
    for node, held in enumerate(results(found)):
        for chunk in range(n * found.per_npu):
            owner = chunk // found.per_npu
            if operation != "reduce-scatter" or owner == node:
                assert held[chunk] == (frozenset([owner]) if operation == "all-gather" else everyone)


@settings(max_examples=20, deadline=None)
@given(networks, st.sampled_from(OPERATIONS), st.sampled_from([1, 2]))
def test_msccl_is_read_and_found_right(topology: Topology, operation: str, per_npu: int) -> None:
    found = synthesize(topology, operation, 4096, chunks_per_npu=per_npu, tries=1)
    algo = parse_msccl(to_msccl(found))
    assert (algo.operation, algo.n, algo.chunks) == (operation, found.n, found.n * per_npu)
    check_result(algo)


@settings(max_examples=30, deadline=None)
@given(dimensions(mesh=False), st.integers(1, 3), OPTIONS)
def test_translates_of_a_tree_never_meet(topology: Topology, per_npu: int, options: Options) -> None:
    folded = symmetric.fold(edges_of(Shortest(topology), 1000, 2000))
    if folded is None:  # Shortest goes round a ring of 4 both ways, as dimension order does not
        pytest.skip("the ways are not alike")
    check_times(symmetric.spread(folded, per_npu, *symmetric.tree(folded, per_npu, options, "interpreted")))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_compiled_and_interpreted_kernels_agree(operation: str) -> None:
    edges = edges_of(Shortest(fabric()), 1000)
    one, other = (greedy(edges, 3, Options(5, 2, True), mode) for mode in ("compiled", "interpreted"))
    for column in ("edge", "chunk", "start", "end"):
        assert np.array_equal(getattr(one, column), getattr(other, column))
    folded = symmetric.fold(edges_of(Shortest(torus(4, 2)), 1000))
    assert folded
    trees = [symmetric.tree(folded, 2, Options(5, 2), mode) for mode in ("compiled", "interpreted")]
    assert all(np.array_equal(a, b) for a, b in zip(*trees, strict=True))
    check_schedule(synthesize(torus(4, 2), operation, 10**6, chunks_per_npu=2), "compiled")


@pytest.mark.parametrize(
    ("side", "dims", "within"),
    [(8, 1, 1.0), (4, 2, 1.08), (4, 3, 1.06), (8, 2, 1.02)],
)
def test_a_torus_is_used_nearly_to_the_bound(side: int, dims: int, within: float) -> None:
    found = synthesize(torus(side, dims), "all-gather", 10**9, chunks_per_npu=4)
    bound = lower_bound(found.edges, "all-gather", 10**9)
    assert bound <= found.predicted <= within * bound + 500.0 * side * dims


@settings(max_examples=30, deadline=None)
@given(networks, st.sampled_from(OPERATIONS), st.integers(1, 10**6))
def test_nothing_beats_the_bound(topology: Topology, operation: str, size: int) -> None:
    found = synthesize(topology, operation, size, tries=1)
    assert lower_bound(found.edges, operation, size) <= found.predicted + 1


def test_same_seed_same_schedule_other_seed_another() -> None:
    mesh = from_dimensions([Dimension("x", "Mesh", 5, 10.0, 100.0), Dimension("y", "Mesh", 4, 10.0, 100.0)])
    one, same, other = (
        synthesize(mesh, "all-gather", 10**6, chunks_per_npu=2, seed=s, tries=1) for s in (1, 1, 2)
    )
    assert one.gather and same.gather and other.gather
    assert np.array_equal(one.gather.chunk, same.gather.chunk)
    assert not np.array_equal(one.gather.chunk, other.gather.chunk)


def test_check_notices_what_is_wrong() -> None:
    found = synthesize(torus(4, 2), "all-reduce", 10**6, chunks_per_npu=1)
    assert found.gather
    gather = found.gather
    chunk = gather.chunk.copy()
    chunk[-1] = (chunk[-1] + 1) % 16
    with pytest.raises(ValueError, match="cannot be"):
        check_schedule(replace(found, gather=replace(gather, chunk=chunk)))
    with pytest.raises(ValueError, match="never comes"):
        check_schedule(replace(found, gather=replace(gather, **_but_last(gather))))
    early = gather.start.copy()
    early[-1] = 0
    with pytest.raises(ValueError, match="cannot be"):
        check_schedule(replace(found, gather=replace(gather, start=early)))


def _but_last(gather: object) -> dict[str, np.ndarray]:
    return {name: getattr(gather, name)[:-1] for name in ("edge", "chunk", "start")}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"operation": "all-gater"}, "did you mean 'all-gather'"),
        ({"size": 0}, "size: got 0, expected 1 to"),
        ({"chunks_per_npu": 1 << 25}, "chunks per NPU: got"),
        ({"tries": 0}, "tries: got 0"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, object], words: str) -> None:
    given = {"operation": "all-reduce", "size": 100} | arguments
    with pytest.raises(InputError, match=words):
        synthesize(torus(4, 1), **given)  # type: ignore[arg-type]


def test_too_much_is_refused() -> None:
    with pytest.raises(InputError, match="expected at most 33,554,432: fewer NPUs or chunks"):
        synthesize(torus(16, 3), "all-gather", 10**9, chunks_per_npu=64)
    with pytest.raises(InputError, match=f"expected at most {MOST_WRITTEN:,}: choose fewer chunks"):
        messages_of(synthesize(torus(4, 3), "all-reduce", 10**9, chunks_per_npu=64, tries=1))
