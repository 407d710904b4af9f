"""Sums of monomials, integer expressions and trees: they find what made the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.lab.learned.expressions import Explained, Rule, library, table_of, value_of
from armillary.lab.learned.monomials import Fitter, Sum, logarithms_of, nonnegative
from armillary.lab.learned.tree import Tree, grow

RNG = np.random.default_rng(0)
CHOICES = {
    "microbatch": (1, 2, 4), "sequence": (1024, 2048, 4096), "hidden": (1024, 2048, 3072, 5120), "tp": (1, 2, 4),
    "ffn": (4096, 11008, 14336), "stage_layers": (2, 4, 6), "pp": (1, 2, 4), "microbatches": (2, 4, 6, 8),
}  # fmt: skip
CONDITIONS: list[dict[str, Any]] = [
    {key: int(RNG.choice(values)) for key, values in CHOICES.items()} for _ in range(120)
]
for each in CONDITIONS:
    each["stage"] = int(RNG.integers(each["pp"]))
    each["stages_left"] = each["pp"] - 1 - each["stage"]
    each["word"] = str(RNG.choice(("a", "b")))


def fitted(values: list[float]) -> tuple[Tree, list[Sum]]:
    sums: list[Sum] = []
    rows = np.arange(len(CONDITIONS))
    fitter = Fitter(logarithms_of(CONDITIONS), CONDITIONS)
    return fitter.fit(rows, np.array(values), np.zeros(len(rows), np.int64), sums), sums


def test_sums_are_found_again() -> None:
    tree, sums = fitted(
        [
            2 * c["microbatch"] * c["sequence"] * c["hidden"] + 6 * c["hidden"] * c["ffn"] / c["tp"]
            for c in CONDITIONS
        ]
    )
    assert tree.yes is None
    assert sums[0].error < 1e-9
    new = {"microbatch": 8, "sequence": 8192, "hidden": 12288, "ffn": 49152, "tp": 16}
    assert np.allclose(sums[0].values(logarithms_of([new])), 2 * 8 * 8192 * 12288 + 6 * 12288 * 49152 / 16)


def test_a_word_that_matters_is_asked_for() -> None:
    tree, sums = fitted([c["hidden"] * (3 if c["word"] == "b" else c["sequence"]) for c in CONDITIONS])
    assert tree.key == "word"
    assert max(sums[at].error for at in (tree.yes.choice, tree.no.choice)) < 1e-9  # type: ignore[union-attr]


@settings(max_examples=30)
@given(st.lists(st.integers(0, 5), min_size=4, max_size=4), st.integers(0, 2**31))
def test_least_squares_with_signs(weights: list[int], seed: int) -> None:
    """The active set method finds a combination of few columns, against the conditions that any optimum fulfils."""
    rng = np.random.default_rng(seed)
    matrix = rng.uniform(0.1, 1, (30, 12))
    target = matrix[:, :4] @ np.array(weights, float) + 1e-3 * rng.standard_normal(30)
    found = nonnegative(matrix, target)
    gain = matrix.T @ (target - matrix @ found)
    assert (found >= 0).all()
    assert gain.max() < 1e-6 * 30
    assert np.abs(gain[found > 0]).max(initial=0) < 1e-6 * 30


def test_expressions_are_evaluated_alike() -> None:
    """One at a time, in plain Python, and all at once."""
    expressions = library()[::7]
    table = table_of(expressions, CONDITIONS[:9])
    for row, expression in zip(table.tolist(), expressions, strict=True):
        assert row == [value_of(expression, condition) for condition in CONDITIONS[:9]]


def test_counts_are_found_again() -> None:
    explained = Explained(CONDITIONS)
    rows = np.arange(len(CONDITIONS))
    for rule in (
        lambda c: min(c["stages_left"] + 1, c["microbatches"]),
        lambda c: max(0, c["microbatches"] - c["stages_left"] - 1),
        lambda c: c["stage_layers"] if c["stage"] > 0 else 1,
    ):
        counts = np.array([rule(c) for c in CONDITIONS])
        found = explained.rule(rows, counts)
        assert found.exact
        assert Rule.from_json(found.to_json()) == found
        new = {"microbatches": 16, "stage_layers": 9, "stages_left": 5, "stage": 3, "pp": 9}
        assert found.value(new) == rule(new)


def test_trees_ask_for_what_matters() -> None:
    classes = [2 * (c["word"] == "a") + (c["tp"] > 1) for c in CONDITIONS]
    tree = grow(CONDITIONS, classes)
    assert [tree.choose(condition) for condition in CONDITIONS] == classes
    assert tree.choose({"word": "a", "tp": 64}) == 3
    assert Tree.from_json(tree.to_json()) == tree


def test_gemms_with_nothing_vanish() -> None:
    """Models without shared experts have no weights of them, and models without experts no routed tokens."""
    conditions = [
        {**c, "shared_experts": at % 3, "expert_size": 512 * (1 + at % 5)} for at, c in enumerate(CONDITIONS)
    ]
    true = np.array(
        [7.0 * c["hidden"] + 3 * c["hidden"] * c["shared_experts"] * c["expert_size"] for c in conditions]
    )
    sums: list[Sum] = []
    rows = np.arange(len(true))
    tree = Fitter(logarithms_of(conditions), conditions).fit(rows, true, np.zeros(len(true), np.int64), sums)
    assert tree.yes is None
    assert sums[0].error < 1e-9
    new = {"hidden": 100, "shared_experts": 0, "expert_size": 7}
    assert np.allclose(sums[0].values(logarithms_of([new])), 700)
