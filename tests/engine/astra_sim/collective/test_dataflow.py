"""Real numbers moved along every schedule: the result must be right whatever the order of events."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.engine.astra_sim.collective import OPERATIONS, Schedule, schedule_for
from armillary.engine.astra_sim.collective.dataflow import Execution, operation_done, payloads

SIZES = range(2, 34)


def end_blocks(schedule: Schedule, member: int) -> tuple[int, ...]:
    """Return the blocks that `member` holds at the end, complete."""
    n, operation = schedule.n, operation_done(schedule)
    if operation == "reduce-scatter":
        return (member,)
    return tuple(range(member, n * n, n)) if operation == "all-to-all" else tuple(range(n))


def check(schedule: Schedule, seed: int) -> None:
    """Run `schedule` in a random order and compare every block of every member with the definition."""
    n, operation = schedule.n, operation_done(schedule)
    rng = np.random.default_rng(seed)
    blocks = n * n if operation == "all-to-all" else n
    length = int(rng.integers(1, 3 * blocks))  # mostly not divisible: blocks differ in length, some are empty
    edges = np.sort(rng.integers(0, length + 1, blocks - 1))
    vectors = rng.integers(-1000, 1000, (n, length))
    parts = [np.split(vector, edges) for vector in vectors]
    execution = Execution(schedule, lambda member, block: parts[member][block], operator.add)
    execution.run(seed)
    assert execution.finished
    total = np.split(vectors.sum(axis=0), edges)
    for member in range(n):
        held = execution.held[member]
        assert sorted(held) == list(end_blocks(schedule, member))
        for block, value in held.items():
            source = {"all-gather": block, "all-to-all": block // n}.get(operation)
            expected = total[block] if source is None else parts[source][block]
            np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_ring(operation: str, n: int) -> None:
    for reverse in (False, True):
        check(schedule_for("ring", operation, n, reverse=reverse), n)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_direct_with_any_window(operation: str, n: int) -> None:
    for number, window in enumerate((None, 1, 2, 3, n - 1)):
        reverse = (number + n) % 2 == 1
        check(schedule_for("direct", operation, n, window=window, reverse=reverse, local=not reverse), n)


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_powers_of_two(operation: str, n: int) -> None:
    if operation != "all-to-all":
        check(schedule_for("halvingDoubling", operation, n), n)
    for index in (0, 1):  # an all-reduce, whatever was asked for
        check(schedule_for("doubleBinaryTree", operation, n, index=index), n)


@given(st.data(), st.integers(0, 2**32 - 1))
def test_any_order_of_events(data: st.DataObject, seed: int) -> None:
    n = data.draw(st.integers(2, 9))
    algorithm = data.draw(st.sampled_from(["ring", "direct", "halvingDoubling", "doubleBinaryTree"]))
    window = data.draw(st.none() | st.integers(1, n))
    flags = {name: data.draw(st.booleans()) for name in ("local", "reverse")}
    operation = data.draw(st.sampled_from(OPERATIONS))
    try:
        schedule = schedule_for(algorithm, operation, n, window=window, index=seed % 2, **flags)
    except InputError:
        assert algorithm.startswith(("halving", "double"))
        return
    if algorithm == "halvingDoubling" and n & (n - 1):
        with pytest.raises(InputError, match="do not bring every block"):
            payloads(schedule, 0)
        return
    check(schedule, seed)


@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling"])
@pytest.mark.parametrize("operation", ["all-reduce", "all-gather", "reduce-scatter"])
def test_messages_are_as_long_as_their_blocks(algorithm: str, operation: str) -> None:
    for n in (2, 4, 8, 16):
        schedule = schedule_for(algorithm, operation, n)
        phase_bytes = 1 if operation == "all-gather" else n
        if algorithm == "halvingDoubling" and operation == "all-reduce":
            phase_bytes = 2 * n  # sizes are halved once too often on the way
        block = phase_bytes if operation == "all-gather" else phase_bytes // n
        for member in range(n):
            sizes = [phase_bytes // t.divide * t.multiply for t in schedule.role(member).sends]
            assert sizes == [block * len(p.blocks) for p in payloads(schedule, member)]
