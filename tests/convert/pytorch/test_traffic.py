"""Bytes of operators that touch less than their tensors hold."""

from __future__ import annotations

from typing import Any

import pytest

from armillary.convert.pytorch.flops import Arguments, Work, work

from .test_flops import ADAMW, f, side


def test_what_is_expanded_is_read_once() -> None:
    schema = "aten::div.Scalar(Tensor self, Scalar other) -> Tensor"
    given = side(f(8, 16), 2.0)
    assert work("aten::div", schema, given, side(f(8, 16))) == Work(128, 4 * 256)
    expanded = Arguments(given.values, given.shapes, given.types, [[1, 0], []])
    assert work("aten::div", schema, expanded, side(f(8, 16))) == Work(128, 4 * (128 + 8))


@pytest.mark.parametrize(("scaled", "size"), [(None, 0), (f(), 4 * 12 + 4)], ids=["plain", "scaled"])
def test_gradients_are_written_where_they_are_scaled(scaled: Any, size: int) -> None:
    lists = [[f(3, 4)] for _ in range(4)]
    inputs = side(*lists, [], [], 1e-3, 0.9, 0.99, 0.1, 1e-8, False, False, scaled, None)
    found = work("aten::_fused_adamw_", ADAMW, inputs, side())
    # Four are read, and all but the gradients are written.
    assert found == Work(15 * 12, 7 * 4 * 12 + size)


def test_a_loss_touches_the_scores_of_its_targets() -> None:
    first = (
        "aten::nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index)"
        " -> (Tensor, Tensor)"
    )
    last = (
        "aten::nll_loss_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int reduction, "
        "SymInt ignore_index, Tensor total_weight) -> Tensor"
    )
    scores, target = f(8, 1000), ("long int", (8,))
    found = work("aten::nll_loss_forward", first, side(scores, target, None, 1, -100), side(f(), f()))
    assert found == Work(8, 8 * (8 + 4) + 2 * 4)
    found = work(
        "aten::nll_loss_backward", last, side(f(), scores, target, None, 1, -100, f()), side(f(8, 1000))
    )
    assert found == Work(8, 2 * 4 + 8 * 8 + 4 * 8000)
