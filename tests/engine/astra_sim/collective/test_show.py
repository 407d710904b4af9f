"""The chunk-flow table."""

from __future__ import annotations

import pytest

from armillary.base.errors import InputError
from armillary.engine.astra_sim.collective import OPERATIONS, schedule_for
from armillary.engine.astra_sim.collective.show import chunk_flow_table, render


def test_ring_of_four_as_on_the_slides() -> None:
    text = render(schedule_for("ring", "all-reduce", 4), width=80)
    assert "ring all-reduce, 4 members, 6 steps" in text
    lines = [line.split("  ") for line in text.splitlines()]
    first = next(i for i, line in enumerate(lines) if line[-1].strip() == "b2 → 0")
    assert [cell.strip() for cell in lines[first] if cell] == ["1", "b3 → 1", "b0 → 2", "b1 → 3", "b2 → 0"]
    assert next(cell.strip() for cell in lines[first + 1] if cell) == "b2 ← 3 (+)"
    assert next(cell.strip() for cell in lines[first + 2] if cell) == "b2: 0+3"
    assert text.count("Σ") >= 8


def test_contributors_grow_to_all() -> None:
    rows = chunk_flow_table(schedule_for("ring", "reduce-scatter", 4))
    assert len(rows) == 3 + 2
    assert [set(row[0].blocks.values()) for row in rows[1:]] == [
        {frozenset({0, 3})},
        {frozenset({0, 2, 3})},
        {frozenset({0, 1, 2, 3})},
        {frozenset({0, 1, 2, 3})},
    ]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_tables_fit(operation: str, n: int) -> None:
    for algorithm in ("ring", "direct", "halvingDoubling", "doubleBinaryTree"):
        if (algorithm, operation) == ("halvingDoubling", "all-to-all"):
            continue
        text = render(schedule_for(algorithm, operation, n), width=80)
        assert max(map(len, text.splitlines())) <= 80
        assert len(text.splitlines()) < 110
        assert ("members shown" in text) == (n > 4)


def test_windows_make_steps() -> None:
    assert len(chunk_flow_table(schedule_for("direct", "all-to-all", 5))) == 1 + 2
    assert len(chunk_flow_table(schedule_for("direct", "all-to-all", 5, window=1))) == 4 + 2


def test_colour_only_on_request() -> None:
    assert "\x1b" not in render(schedule_for("ring", "all-gather", 3))


def test_too_many_members() -> None:
    with pytest.raises(InputError, match=r"65 members.*at most 64"):
        render(schedule_for("ring", "all-gather", 65))
