"""The greedy order of chunks: worked out by hand, and its quirks."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.engine.astra_sim.collective.chunk_order import (
    Collective,
    Route,
    greedy_routes,
    round_robin_orders,
)

MIB = 1 << 20
ALL = (True, True)


def orders(operation: str, bandwidths: list[float], chunks: int, flexible: bool = False) -> list[Route]:
    collective = Collective(operation, chunks * MIB, MIB, ALL)
    return greedy_routes([8, 4], bandwidths, [collective], flexible=flexible)


def test_equal_dimensions_take_turns_by_load() -> None:
    """MiB of work after each chunk: 7/8 and 3/32; 31/32 and 27/32; so close that the usual order comes next."""
    found = [route.order for route in orders("reduce-scatter", [250.0, 250.0], 4)]
    assert found == [(0, 1), (1, 0), (1, 0), (0, 1)]


def test_a_fast_first_dimension_gets_every_chunk_first() -> None:
    assert {route.order for route in orders("all-reduce", [1000.0, 10.0], 8)} == {(0, 1)}


def test_an_all_gather_goes_first_where_most_is_done() -> None:
    """The usual order is ascending here. Its work is counted at the wrong dimensions: 24/5 for 0 and 7 for 1."""
    assert [route.order for route in orders("all-gather", [50.0, 250.0], 2)] == [(0, 1), (1, 0)]


def test_flexible_chunks_level_the_loads() -> None:
    """After the first chunk they differ by 25/32 MiB, and 3/4 of a chunk go through the second dimension."""
    first, second = orders("reduce-scatter", [250.0, 250.0], 8, flexible=True)[:2]
    assert first == Route((0, 1), MIB)
    assert second == Route((1, 0), int(25 / 32 / 0.75 * MIB))


def test_work_left_over_counts() -> None:
    one = Collective("reduce-scatter", MIB, MIB, ALL)
    assert greedy_routes([8, 4], [1.0, 1.0], [one], flexible=False) == [Route((0, 1), MIB)]
    assert greedy_routes([8, 4], [1.0, 1.0], [one, one], flexible=False) == [Route((1, 0), MIB)]


def test_round_robin_rotates_the_usual_order() -> None:
    assert round_robin_orders(3, "all-reduce") == ((0, 1, 2), (1, 2, 0), (2, 0, 1))
    assert round_robin_orders(3, "all-gather") == ((2, 1, 0), (1, 0, 2), (0, 2, 1))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(2, 32), st.sampled_from([50.0, 100.0, 250.0])), min_size=1, max_size=5),
    st.sampled_from(["all-gather", "reduce-scatter", "all-reduce"]),
    st.integers(1, 10**9),
    st.integers(1, 40),
    st.booleans(),
)
def test_all_bytes_go_through_all_dimensions(
    dims: list[tuple[int, float]], operation: str, size: int, splits: int, flexible: bool
) -> None:
    sizes, bandwidths = zip(*dims, strict=True)
    chunk = max(size // splits, 1)
    collective = Collective(operation, size, chunk, (True,) * len(dims))
    routes = greedy_routes(sizes, bandwidths, [collective], flexible=flexible)
    assert sum(route.size for route in routes) == size
    assert all(sorted(route.order) == list(range(len(dims))) for route in routes)
    if not flexible:
        assert {route.size for route in routes[:-1]} <= {chunk}
