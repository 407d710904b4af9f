"""The chunk-flow table of any algorithm."""

from __future__ import annotations

import pytest

from armillary.base.errors import InputError
from armillary.collective.algorithms import DEFINITIONS, find_algorithm
from armillary.collective.show import render


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("n", [2, 5, 8])
def test_every_algorithm_has_a_table_that_fits(name: str, n: int) -> None:
    for operation in find_algorithm(name).operations:
        if operation == "barrier":
            continue
        text = render(name, operation, n, width=80)
        assert text.startswith(f"{name} {operation}, {n}")
        assert max(map(len, text.splitlines())) <= 80
        assert ("members shown" in text) == (n > 3)
        if operation == "all-reduce":
            assert "Σ" in text.split("\n\n", 2)[2]


def test_who_sends_what_to_whom() -> None:
    lines = [line.split("  ") for line in render("recursiveDoubling", "all-reduce", 4).splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert ["1", "b0 → 1", "b0 → 0", "b0 → 3", "b0 → 2"] in cells
    assert ["b0: 0+1", "b0: 0+1", "b0: 2+3", "b0: 2+3"] in cells


@pytest.mark.parametrize(
    ("operation", "n", "problem"),
    [
        ("all-reduce", 65, "at most 64"),
        ("barrier", 4, "carry nothing"),
        ("all-to-all", 4, "has no all-to-all"),
    ],
)
def test_what_has_no_table(operation: str, n: int, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        render("recursiveDoubling", operation, n)
