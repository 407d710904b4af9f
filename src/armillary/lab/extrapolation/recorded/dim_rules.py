"""The registry of rules that say which dimensions are the same, and what rules are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.lab.extrapolation.recorded.calls import Call, Tensor
from armillary.lab.extrapolation.recorded.dimensions import Dim, regroup, same

Rule = Callable[[Call], None]
RULES: dict[str, Rule] = {}
"""Name of an operator -> its rule."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators, by default of ``aten``."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name if "::" in name else f"aten::{name}"] = function
        return function

    return register


def same_all(dims: Sequence[Dim], others: Sequence[Dim]) -> None:
    """Unify dimensions one by one."""
    for a, b in zip(dims, others, strict=False):
        same(a, b)


def spelled(call: Call, inputs: dict[str, str], *outputs: str) -> None:
    """Unify dimensions with the same letter, as in einsum; ``*`` stands for all leading dimensions.

    Args:
        call: The call.
        inputs: Name of an argument -> letters of its dimensions; the order is that of positions.
        outputs: Letters of the dimensions of the results.
    """
    known: dict[str, Dim] = {}
    leading: list[Dim] | None = None
    results = [(call.result(at), text) for at, text in enumerate(outputs)]
    for at, (name, text) in enumerate(inputs.items()):
        results.insert(at, (call.tensor(name, at), text))
    # A tensor of another rank than the rule expects is skipped: no rule is better than a wrong one.
    for tensor, text in results:
        letters = text.replace("*", "")
        if tensor is None or not text or len(tensor.dims) < len(letters):
            continue
        if "*" not in text and len(tensor.dims) != len(letters):
            continue
        rest, own = (
            list(tensor.dims[: len(tensor.dims) - len(letters)]),
            tensor.dims[len(tensor.dims) - len(letters) :],
        )
        if "*" in text:
            if leading is None:
                leading = rest
            elif len(leading) == len(rest):
                same_all(leading, rest)
            else:
                regroup(leading, rest)
        for letter, dim in zip(letters, own, strict=True):
            same(known.setdefault(letter, dim), dim)


def broadcast(tensor: Tensor, result: Tensor) -> None:
    """Unify dimensions of a tensor and of its broadcast; those of size 1 have no counterpart."""
    for a, b in zip(reversed(tensor.dims), reversed(result.dims), strict=False):
        if a.size == b.size > 1:
            same(a, b)
