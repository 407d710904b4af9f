"""Kernels of compiled parts: what becomes one, and what it reads and writes."""

from __future__ import annotations

from armillary.capture.fusion import Flow, fuse
from armillary.capture.kinds import Kind
from armillary.capture.log import OPERATOR, RECORD, Row

MUL, MM = range(2)
KINDS = [
    Kind("aten::mul", (), (), 4, 30, "elementwise"),
    Kind("aten::mm", (), (), 100, 30, "matmul"),
]


def step(*each: tuple[int, int, dict[int, int], dict[int, int]]) -> tuple[list[Row], list[Flow]]:
    """Return rows and flows of (kind, region, reads, writes)."""
    rows = [Row(OPERATOR, kind, 0, 0, 3) for kind, *_ in each]
    return rows, [Flow(at, *rest) for at, (_, *rest) in enumerate(each)]


def sizes(rows: list[Row], kinds: list[Kind]) -> list[tuple[str, int]]:
    return [(kinds[row.what].name, kinds[row.what].size) for row in rows if row.kind == OPERATOR]


def test_a_chain_reads_what_comes_from_outside_and_writes_what_is_used_there() -> None:
    rows, flows = step(
        (MUL, 1, {1: 10}, {2: 10}), (MUL, 1, {2: 10, 3: 10}, {4: 10}), (MM, 1, {4: 10}, {5: 10})
    )
    made = fuse(rows, KINDS, flows, set())
    assert sizes(made.rows, made.kinds) == [("compiled::mul", 30), ("aten::mm", 30)]
    assert made.gone == {2} and made.kinds[made.rows[0].what].flops == 8
    assert made.rows[0].calls == 1


def test_what_outlives_the_step_or_is_read_elsewhere_is_written() -> None:
    chain = (MUL, 1, {1: 10}, {2: 10}), (MUL, 1, {2: 10}, {4: 10})
    rows, flows = step(*chain)
    assert sizes(*fuse(rows, KINDS, flows, {2, 4})[:2]) == [("compiled::mul", 30)]
    rows, flows = step(*chain, (MM, 0, {2: 10, 4: 10}, {5: 10}))
    assert sizes(*fuse(rows, KINDS, flows, set())[:2])[0] == ("compiled::mul", 30)


def test_what_only_gradients_need_is_made_again() -> None:
    forward = (MUL, 1, {1: 10}, {2: 10}), (MUL, 1, {2: 10}, {3: 10}), (MM, 1, {3: 10}, {4: 10})
    rows, flows = step(*forward, (MUL, -1, {4: 10, 2: 10}, {5: 10}), (MM, 0, {5: 10}, {6: 10}))
    made = fuse(rows, KINDS, flows, set())
    # The gradient reads 1, of which 2 is made, in place of 2; 1 is there until then.
    assert sizes(made.rows, made.kinds)[0] == ("compiled::mul", 20)
    assert sizes(made.rows, made.kinds)[2] == ("compiled::mul", 30)
    assert made.gone == {2} and made.kept == {1: 2}


def test_nothing_is_fused_outside_of_compiled_parts_or_over_events() -> None:
    rows, flows = step((MUL, 0, {1: 10}, {2: 10}), (MUL, 0, {2: 10}, {3: 10}))
    assert fuse(rows, KINDS, flows, set()).rows == rows
    rows, flows = step((MUL, 1, {1: 10}, {2: 10}), (MUL, 1, {2: 10}, {3: 10}))
    rows.insert(1, Row(RECORD, 7, 0))
    flows[1] = flows[1]._replace(row=2)
    made = fuse(rows, KINDS, flows, {3})
    assert [row.kind for row in made.rows] == [OPERATOR, RECORD, OPERATOR]


def test_calls_of_a_part_are_kernels_of_their_own() -> None:
    rows, flows = step((MUL, 1, {1: 10}, {2: 10}), (MUL, 2, {2: 10}, {3: 10}))
    assert fuse(rows, KINDS, flows, {3}).rows == rows


def test_what_a_checkpoint_makes_again_and_nobody_reads_is_not_made() -> None:
    again = (MM, 2, {1: 10}, {5: 10}), (MUL, 2, {5: 10}, {6: 10}), (MUL, 2, {1: 10}, {7: 10})
    rows, flows = step((MM, 1, {1: 10}, {2: 10}), *again, (MUL, -1, {7: 10}, {8: 10}))
    flows = [flow._replace(again=flow.region == 2) for flow in flows]
    made = fuse(rows, KINDS, flows, {8})
    assert [kind for kind, _ in sizes(made.rows, made.kinds)] == ["aten::mm", "aten::mul", "aten::mul"]
    assert made.gone >= {5, 6} and 7 not in made.gone


def test_what_is_read_in_its_own_call_alone_ends_there() -> None:
    rows, flows = step((MM, 1, {1: 10}, {2: 10}), (MM, 1, {2: 10}, {3: 10}), (MM, -1, {3: 10}, {4: 10}))
    flows = [flow._replace(mark=at + 1) for at, flow in enumerate(flows)]
    assert fuse(rows, KINDS, flows, {4}).early == {2: 2}
    assert not fuse(rows, KINDS, flows, {2, 4}).early
