"""How layers are divided into stages."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.workload.layers.layer import Layer, Step
from armillary.workload.pipeline.partition import balanced, even, partition
from armillary.workload.plan.schema import Parallel, Pipeline, Plan

EMBEDDING, HEAD = Layer("embedding", ()), Layer("head", ())


def model(count: int) -> list[Layer]:
    """Return a transformer of `count` equal layers."""
    return [EMBEDDING, *[Layer("layer", ())] * count, HEAD]


def plan(pp: int, virtual: int = 1, layers: list[int] | None = None) -> Plan:
    """Return a plan of nothing but stages."""
    pipeline = Pipeline(virtual=virtual, layers=layers)
    return Plan(ranks=pp, batch=8, parallel=Parallel(pp=pp), pipeline=pipeline)


def names(stages: list[list[Layer]]) -> str:
    """Return the initials of the layers of every stage."""
    return " ".join("".join(layer.name[0] for layer in stage) for stage in stages)


def test_a_stage_without_layers_is_refused() -> None:
    with pytest.raises(InputError, match=r"stage 1 has none, .* \(nearest: \[2, 1, 1, 0\]\)"):
        partition(model(4), plan(4, 1, [4, 0, 0, 0]))
    assert names(partition(model(4), plan(4, 1, [2, 1, 1, 0]))) == "ell l l h"


@pytest.mark.parametrize(
    ("count", "wanted", "found"),
    [
        (4, plan(1), "ellllh"),
        (4, plan(2), "ell llh"),
        (8, plan(2, 2), "ell ll ll llh"),
        (5, plan(2), "elll llh"),
        (6, plan(4), "el ll ll lh"),
        (5, plan(4), "el ll l lh"),
        (4, plan(3, 1, [0, 4, 0]), "e llll h"),
    ],
)
def test_embedding_and_head_ride_with_the_ends(count, wanted, found):
    assert names(partition(model(count), wanted)) == found


def test_llama_3_405b_has_one_layer_fewer_at_both_ends():
    """126 layers over 16 stages (arXiv 2407.21783, §3.3.2)."""
    assert even(126, 16) == [7, *[8] * 14, 7]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (plan(4, 1, [2, 2, 2]), r"3 counts, expected 4 \(pp 4 x virtual 1\)"),
        (
            plan(2, 1, [5, 4]),
            r"a sum of 9, expected the model's 8 layers \(nearest: 4 instead of 5 in stage 0",
        ),
        (plan(2, 1, [3, 4]), r"nearest: 5 instead of 4 in stage 1"),
        (plan(16), r"16 stages: expected at most the model's 8 layers \(nearest pp: 8\)"),
        (plan(4, 3), r"nearest virtual: 2"),
        (plan(10, 2), r"nearest pp: 2"),
    ],
)
def test_impossible_counts(wanted, text):
    with pytest.raises(InputError, match=text):
        partition(model(8), wanted)


def test_other_models_are_divided_by_flops():
    layers = [Layer(str(i), (Step("a", flops=flops),)) for i, flops in enumerate((1, 1, 1, 9, 1, 1))]
    assert [len(stage) for stage in partition(layers, plan(3))] in ([3, 1, 2], [2, 2, 2])
    assert [len(stage) for stage in partition([Layer("x", ())] * 6, plan(3))] == [2, 2, 2]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
def test_balanced_is_the_best_of_all(weights, data):
    stages = data.draw(st.integers(1, len(weights)))

    def worst(counts):
        ends = [sum(counts[:i]) for i in range(len(counts) + 1)]
        return max(sum(weights[a:b]) for a, b in pairwise(ends))

    cuts = combinations(range(1, len(weights)), stages - 1)
    every = [[b - a for a, b in zip((0, *cut), (*cut, len(weights)), strict=True)] for cut in cuts]
    found = balanced(weights, stages)
    assert found in every
    if any(weights):
        assert worst(found) == min(map(worst, every))


@given(st.integers(1, 40), st.integers(1, 40))
def test_even_differs_by_one(stages, more):
    counts = even(stages + more, stages)
    assert sum(counts) == stages + more and max(counts) - min(counts) <= 1
    assert counts[-1] == min(counts) and len(counts) == stages
