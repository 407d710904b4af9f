"""Real numbers moved along every algorithm, and messages as long as they say."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.collective import blocks as data
from armillary.collective import in_switch
from armillary.collective.algorithms import (
    DEFINITIONS,
    ROOTED,
    find_algorithm,
    rounds_alltoallv,
    rounds_for,
    rounds_of_messages,
)
from armillary.collective.demand import OPERATIONS
from armillary.collective.rounds import ABSENT, Rounds, SwitchTree

OPERATIONS_OF = {name: find_algorithm(name).operations for name in DEFINITIONS}
EVERY = [(algorithm, operation) for algorithm, has in OPERATIONS_OF.items() for operation in has]
REDUCING = ("all-reduce", "reduce-scatter", "reduce")


def check(rounds: Rounds) -> None:
    """Move random integers; every member must end with what the operation promises."""
    n, operation, parts = rounds.n, rounds.operation, data.parts(rounds)
    rng = np.random.default_rng(n)
    held: list[dict[int, int]] = [
        {block: int(rng.integers(1, 1 << 40)) for block in data.start(rounds, m)} for m in range(n)
    ]
    held += [{} for _ in range(rounds.switches)]
    given = [dict(state) for state in held]
    carried = list(data.blocks(rounds))
    assert len(carried) == rounds.count
    for part, messages in zip(rounds.expanded(), carried, strict=True):
        m = part.moves
        columns = (m.source, m.target, m.numerator, m.denominator, m.reduce)
        before = [dict(state) for state in held]
        for source, target, over, under, reduce, message in zip(
            *(c.tolist() for c in columns), messages, strict=True
        ):
            assert source != target
            assert len(set(message)) == len(message)
            assert Fraction(len(message), parts) == Fraction(over, under)
            for block in message:
                value = before[source][block]
                # A switch has nothing of its own to add to.
                own = held[target].get(block, 0) if target >= n else held[target][block] if reduce else 0
                held[target][block] = own + value if reduce else value
    for member in range(n):
        for block in data.end(rounds, member):
            if operation in REDUCING:
                expected = sum(state[block] for state in given[:n])
            else:
                origin = block // parts if operation in ("all-gather", "all-to-all") else rounds.root
                expected = given[block * n // parts if operation == "gather" else origin][block]
            assert held[member][block] == expected


@pytest.mark.parametrize("n", range(2, 34))
@pytest.mark.parametrize(("algorithm", "operation"), [e for e in EVERY if e[1] != "barrier"])
def test_moves_the_right_numbers(algorithm: str, operation: str, n: int) -> None:
    uses_root = operation in ROOTED or algorithm.endswith("Tree")
    for root in {0, 1, n // 2, n - 1} if uses_root else {0}:
        check(rounds_for(algorithm, operation, n, root))


TREES = {
    "one switch": (2, [SwitchTree((2, 2, -1))]),
    "leaves and a spine": (5, [SwitchTree((5, 5, 6, 6, 6, 7, 7, -1))]),
    "uneven": (4, [SwitchTree((4, 4, 5, 6, 5, 6, -1))]),
    "two trees": (
        3,
        [
            SwitchTree((3, 3, 3, -1, ABSENT), Fraction(1, 3)),
            SwitchTree((4, 4, 4, ABSENT, -1), Fraction(2, 3)),
        ],
    ),
    "trees that share leaves": (
        4,
        [
            SwitchTree((4, 4, 5, 5, 6, 6, -1, ABSENT), Fraction(1, 2)),
            SwitchTree((4, 4, 5, 5, 7, 7, ABSENT, -1), Fraction(1, 2)),
        ],
    ),
}


@pytest.mark.parametrize("segments", [1, 2, 3, 8])
@pytest.mark.parametrize("operation", OPERATIONS_OF["in-switch"])
@pytest.mark.parametrize("name", TREES)
def test_switches_of_any_tree_move_the_right_numbers(name: str, operation: str, segments: int) -> None:
    n, trees = TREES[name]
    rounds = in_switch.rounds(operation, n, tuple(trees), segments)
    check(rounds)
    sent, received = np.zeros((2, n + rounds.switches), dtype=object)
    for part in rounds.expanded():
        for source, target, over, under in zip(
            *(c.tolist() for c in (part.source, part.target, part.numerator, part.denominator)), strict=True
        ):
            sent[source] += Fraction(over, under)
            received[target] += Fraction(over, under)
    up, down = in_switch.ports(operation, n)
    assert set(sent[:n]) == {up}
    assert set(received[:n]) == {down}


@pytest.mark.parametrize("chunks", [1, 2, 5, 40])
@pytest.mark.parametrize("operation", OPERATIONS_OF["doubleBinaryTree"])
def test_double_tree_in_any_number_of_chunks(operation: str, chunks: int) -> None:
    for n in (2, 3, 4, 7, 8, 12):
        check(rounds_for("doubleBinaryTree", operation, n, n // 3, chunks))


@pytest.mark.parametrize("algorithm", [a for a, has in OPERATIONS_OF.items() if "barrier" in has])
def test_a_barrier_hears_of_everyone(algorithm: str) -> None:
    for n in range(2, 34):
        for root in (0, n - 1):
            rounds = rounds_for(algorithm, "barrier", n, root)
            heard = np.eye(n, dtype=bool)
            for part in rounds.expanded():
                before = heard.copy()
                np.logical_or.at(heard, part.target, before[part.source])
                assert not part.numerator.any()
            assert heard.all()


def test_double_trees_complement_each_other() -> None:
    from armillary.collective.trees import depth, parents

    for n in range(4, 200):
        inner = [set(np.unique(above[1:]).tolist()) - {0} for above in parents(n)]
        assert len(inner[0] & inner[1]) <= 1
        assert depth(n) <= n.bit_length()


def test_rotating_rounds_expand_in_parts() -> None:
    part = rounds_for("direct", "all-to-all", 9).rounds[0]
    whole = part.moves
    pieces = list(part.batches(20))
    assert len(pieces) > 1
    for name in ("source", "target", "numerator", "denominator", "reduce"):
        joined = np.concatenate([getattr(piece, name) for piece in pieces])
        np.testing.assert_array_equal(joined, getattr(whole, name))


def test_all_to_all_v() -> None:
    matrix = np.array([[9, 2, 0], [0, 9, 5], [1, 1, 9]])
    (part,) = rounds_alltoallv(matrix).rounds
    found = np.zeros_like(matrix)
    found[part.source, part.target] = part.numerator
    np.testing.assert_array_equal(found, [[0, 2, 0], [0, 0, 5], [1, 1, 0]])
    assert rounds_alltoallv([[3, 0], [0, 3]]).rounds == ()
    for bad in ([[1, 2]], [[0, -1], [0, 0]], [[0, 0.5], [0, 0]], [[1]], 3):
        with pytest.raises(InputError, match="all-to-all-v"):
            rounds_alltoallv(bad)


def test_says_what_exists() -> None:
    with pytest.raises(InputError, match="pairwise has no all-reduce: expected one of ring, direct, halving"):
        rounds_for("pairwise", "all-reduce", 4)
    with pytest.raises(InputError, match="did you mean 'ring'"):
        rounds_for("rinng", "all-reduce", 4)
    with pytest.raises(InputError, match="did you mean 'all-reduce'"):
        rounds_for("ring", "allreduce", 4)
    with pytest.raises(InputError, match="at least 2"):
        rounds_for("ring", "all-reduce", 1)
    with pytest.raises(InputError, match="root 4, expected 0 to 3"):
        rounds_for("direct", "broadcast", 4, 4)
    with pytest.raises(InputError, match="0 chunks"):
        rounds_for("doubleBinaryTree", "broadcast", 4, chunks=0)
    assert {operation for has in OPERATIONS_OF.values() for operation in has} == set(OPERATIONS) - {
        "reduce-scatter-block"
    }
    assert rounds_for("ring", "reduce-scatter-block", 5) is rounds_for("ring", "reduce-scatter", 5)


@given(st.integers(2, 6), st.data())
def test_messages_alone_give_the_rounds_of_their_matrix(n: int, drawn: st.DataObject) -> None:
    places = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.integers(0, 9))
    messages = [m for m in drawn.draw(st.lists(places, max_size=12)) if m[0] != m[1]]
    matrix = np.zeros((n, n), np.int64)
    for source, target, size in messages:
        matrix[source, target] += size
    columns = np.array(messages, np.int64).reshape(-1, 3).T
    fast, slow = rounds_of_messages(n, *columns).rounds, rounds_alltoallv(matrix).rounds
    assert len(fast) == len(slow)
    for one, other in zip(fast, slow, strict=True):
        for name in ("source", "target", "numerator", "denominator", "reduce"):
            assert getattr(one.base, name).tolist() == getattr(other.base, name).tolist()
    assert all(matrix[a, b] == size for part in fast for a, b, size in zip(
        part.base.source.tolist(), part.base.target.tolist(), part.base.numerator.tolist(), strict=True
    ))  # fmt: skip
