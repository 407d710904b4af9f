"""What each dispatcher of experts moves and sends, written out by hand."""

from __future__ import annotations

from math import comb

import pytest

from armillary.trace import CollectiveType
from armillary.workload.layers.layer import Layer, Step
from armillary.workload.layers.of_model import layers_of
from armillary.workload.models import load_model
from armillary.workload.plan.schema import Plan

EP, SEQUENCE, VECTOR = 8, 2048, 2 * 2048
# Qwen3-30B-A3B: 8 of 128 experts, vectors of 2,048 elements.
COPIES = 8 * SEQUENCE
# Ranks that have one of a token's experts: each has 16 of them, without one of these C(112, 8) / C(128, 8).
VISITS = round(SEQUENCE * EP * (1 - comb(112, 8) / comb(128, 8)))


def layer(dispatcher: str | None, **changes: object) -> Layer:
    model = load_model("qwen3-30b-a3b").model_copy(update={"layers": 1})
    experts = {"dispatcher": dispatcher} | changes
    wish = {"ranks": EP, "batch": EP, "sequence": SEQUENCE, "parallel": {"ep": EP}, "experts": experts}
    return layers_of(model, Plan.model_validate(wish))[1]


def of(steps: tuple[Step, ...], block: str) -> list[tuple[str, int]]:
    """Return (name, bytes moved or sent) of the steps of a block."""
    return [
        (step.name.removeprefix(f"{block}."), step.size if step.axes else step.bytes)
        for step in steps
        if step.name.startswith(f"{block}.")
    ]


def test_alltoall_permutes_counts_exchanges_and_sorts() -> None:
    found = layer("alltoall")
    permute, sort = (SEQUENCE + COPIES) * VECTOR, 2 * COPIES * VECTOR
    there = [("permute", permute), ("exchange", COPIES * VECTOR), ("sort", sort)]
    back = [("sort back", sort), ("exchange", COPIES * VECTOR), ("unpermute", permute)]
    scores = COPIES * 4
    first, sent, then = there
    assert of(found.forward, "dispatch") == [
        ("count", 128 * 8),
        first,
        sent,
        ("exchange scores", scores),
        then,
    ]
    assert of(found.forward, "combine") == back
    assert of(found.backward, "combine") == there
    assert of(found.backward, "dispatch") == [("exchange scores back", scores), *back]


@pytest.mark.parametrize("dispatcher", ["deepep", "hybridep"])
def test_others_send_a_token_once_to_each_rank_and_copy_it_there(dispatcher: str) -> None:
    found = layer(dispatcher)
    move, sent = (VISITS + COPIES) * VECTOR, VISITS * VECTOR
    chosen = [("chosen", SEQUENCE * 128), ("scan", EP * SEQUENCE * 128)] if dispatcher == "hybridep" else []
    assert of(found.forward, "dispatch") == [*chosen, ("exchange", sent), ("copies", move)]
    assert of(found.forward, "combine") == [("sums", move), ("exchange", sent)]
    assert of(found.backward, "combine") == [("exchange", sent), ("copies", move)]
    assert of(found.backward, "dispatch") == [("sums", move), ("exchange", sent)]


@pytest.mark.parametrize("dispatcher", [None, "alltoall", "deepep", "hybridep"])
def test_the_cpu_reads_counts_once_a_layer(dispatcher: str | None) -> None:
    found = layer(dispatcher)
    assert [step.collective for step in found.forward if step.synchronises] == [CollectiveType.ALL_TO_ALL]
    assert not [step for step in found.backward if step.synchronises]


@pytest.mark.parametrize("dispatcher", ["deepep", "hybridep"])
def test_across_nodes_a_token_goes_once_to_each(dispatcher: str) -> None:
    found = dict(of(layer(dispatcher, domain=4).forward, "dispatch"))
    nodes = 2 * (1 - comb(64, 8) / comb(128, 8))
    assert found["exchange across"] == round(SEQUENCE * nodes) * VECTOR
    assert found["exchange inside"] == VISITS * VECTOR


@pytest.mark.parametrize("dispatcher", ["deepep", "hybridep"])
def test_uneven_choices_reach_a_rank_at_most_once_a_token(dispatcher: str) -> None:
    uneven = dict(of(layer(dispatcher, skew=1.5).forward, "dispatch"))
    assert uneven["exchange"] <= min(COPIES, EP * SEQUENCE) * VECTOR
    assert uneven["exchange"] < dict(of(layer(None, skew=1.5).forward, "dispatch"))["exchange"]
