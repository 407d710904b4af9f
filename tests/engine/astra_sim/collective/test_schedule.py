"""The shape, the sizes and the charges of the schedules, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.engine.astra_sim.collective import OPERATIONS, Charge, Role, Transfer, schedule_for
from armillary.engine.astra_sim.collective.algorithms import parents

ALL = [("ring", {}), ("direct", {}), ("direct", {"window": 2}), ("direct", {"local": True, "reverse": True})]
EVEN = [("halvingDoubling", {}), ("doubleBinaryTree", {}), ("doubleBinaryTree", {"index": 1})]


@pytest.mark.parametrize("n", [2, 3, 4, 8, 9, 32])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_send_meets_a_receive(operation: str, n: int) -> None:
    for algorithm, options in ALL + EVEN * (n & (n - 1) == 0):
        if (algorithm, operation) == ("halvingDoubling", "all-to-all"):
            continue
        schedule = schedule_for(algorithm, operation, n, **options)
        sent, received = {}, {}
        for member in range(n):
            role = schedule.role(member)
            assert len(role.charges) == role.initial + len(role.receives)
            for transfer in role.sends:
                key = (member, schedule.peer(member, transfer))
                sent.setdefault(key, []).append((transfer.divide, transfer.multiply))
            for transfer in role.receives:
                key = (schedule.peer(member, transfer), member)
                received.setdefault(key, []).append((transfer.divide, transfer.multiply))
        assert sent == received
        assert all(source != target for source, target in sent)


@pytest.mark.parametrize("size", [2**20, 10**6 + 3])
@pytest.mark.parametrize("n", [2, 4, 8, 5])
def test_bytes_sent_are_those_of_the_textbook(n: int, size: int) -> None:
    scatter = size * (n - 1) / n
    expected = {"reduce-scatter": scatter, "all-gather": size * (n - 1), "all-reduce": 2 * scatter}
    for algorithm in ["ring", "direct"] + ["halvingDoubling"] * (n & (n - 1) == 0):
        for operation, volume in expected.items():
            schedule = schedule_for(algorithm, operation, n)
            for member in range(n):
                assert 0 <= volume - schedule.bytes_sent(member, size) <= 2 * n * n
    assert 0 <= scatter - schedule_for("direct", "all-to-all", n).bytes_sent(0, size) <= n
    hops = size * (n - 1) / 2  # every block travels n/2 hops on average
    assert 0 <= hops - schedule_for("ring", "all-to-all", n).bytes_sent(0, size) <= n * n
    if n & (n - 1) == 0:
        tree = schedule_for("doubleBinaryTree", "all-reduce", n)
        assert sum(tree.bytes_sent(member, size) for member in range(n)) == 2 * (n - 1) * size


def reductions(algorithm: str, operation: str, n: int, **options: object) -> str:
    charges = schedule_for(algorithm, operation, n, **options).roles[0].charge_reduce
    return "".join(map(str, charges))


def test_reductions_are_charged_by_the_toggling_counter() -> None:
    assert reductions("ring", "all-reduce", 4) == "0111000"
    assert reductions("ring", "reduce-scatter", 4) == "0111"
    assert reductions("ring", "all-to-all", 4) == "0000000"
    assert reductions("direct", "all-reduce", 4) == "000111000"
    assert reductions("direct", "all-reduce", 4, local=True) == "000111111"
    assert reductions("direct", "all-reduce", 5, window=1) == "010001000"
    assert reductions("direct", "reduce-scatter", 6, window=2) == "0011001"
    assert reductions("direct", "all-gather", 4) == "000000"
    assert reductions("halvingDoubling", "all-reduce", 8) == "0110000"
    assert reductions("halvingDoubling", "reduce-scatter", 8) == "0110"
    assert reductions("halvingDoubling", "reduce-scatter", 2) == "00"


def test_halving_doubling_sizes_truncate_on_the_way_down_and_grow_from_there() -> None:
    def sizes(operation: str) -> list[int]:
        (role,) = schedule_for("halvingDoubling", operation, 8).roles
        return [1003 // t.divide * t.multiply for t in role.sends]

    assert sizes("all-reduce") == [501, 250, 125, 124, 248, 496]  # 1003 // 16 * 2 = 124, not 1003 // 8
    assert sizes("reduce-scatter") == [501, 250, 125]
    assert sizes("all-gather") == [1003, 2006, 4012]
    (role,) = schedule_for("halvingDoubling", "all-reduce", 8).roles
    assert [1003 // c.divide * c.multiply for c in role.charges if c.reduce] == [250, 125]


def test_gate_of_direct_all_reduce() -> None:
    (role,) = schedule_for("direct", "all-reduce", 4, window=2).roles
    assert [t.after_received for t in role.sends] == [0, 0, 0, 3, 3, 3]
    assert [t.peer for t in role.sends] == [1, 2, 3, 1, 2, 3]
    assert [t.peer for t in role.receives] == [-1, -2, -3, -1, -2, -3]


def test_trees() -> None:
    assert parents(8, 0) == (1, 3, 1, 7, 5, 3, 5, None)
    assert parents(8, 1) == (None, 2, 4, 2, 0, 6, 4, 6)
    assert parents(2, 2) == parents(2, 0) == (1, None)


def test_role_is_the_same_as_columns_and_as_tuples() -> None:
    for role in schedule_for("doubleBinaryTree", "all-reduce", 8).roles:
        again = Role.of(role.initial, role.sends, role.receives, role.charges)
        for name, value in vars(again).items():
            np.testing.assert_array_equal(value, getattr(role, name))
            if name != "initial":
                assert value.dtype == np.int64
    assert role.sends[0] == Transfer(3, after_done=1)
    assert role.charges == (Charge(reduce=True, loads=1),)


def test_large_rings_are_cheap(lines: Callable[[Callable[[], object]], int]) -> None:
    assert lines(lambda: schedule_for("ring", "all-to-all", 512)) < 130_816 / 10
    (role,) = schedule_for("ring", "all-to-all", 512).roles
    assert len(role.send_peer) == 130_816


@pytest.mark.parametrize(
    ("arguments", "window", "message"),
    [
        (("rign", "all-reduce", 4), None, "unknown collective algorithm 'rign'.*did you mean 'ring'"),
        (("ring", "all-reduced", 4), None, "unknown collective operation.*did you mean 'all-reduce'"),
        (("ring", "all-reduce", 1), None, "over 1 member.*at least 2"),
        (("direct", "all-reduce", 4), 0, "window 0"),
        (("halvingDoubling", "all-reduce", 6), None, "over 6 members.*power of two.*ring"),
        (("doubleBinaryTree", "all-reduce", 6), None, "over 6 members.*power of two.*ring"),
        (("halvingDoubling", "all-to-all", 4), None, "halvingDoubling all-to-all.*ring and direct"),
    ],
)
def test_refusals(arguments: tuple[str, str, int], window: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        schedule_for(*arguments, window=window)
