"""Work of PyTorch's operators: one module for each family, which registers a rule for each operator."""

from __future__ import annotations

from armillary.convert.pytorch.operators import (
    attention,
    convolution,
    elementwise,
    matmul,
    memory,
    normalization,
    optimizer,
    recurrent,
    reduction,
)
from armillary.convert.pytorch.operators.registry import Operator, Rule, Work, rule, rule_of

__all__ = [
    "Operator",
    "Rule",
    "Work",
    "attention",
    "convolution",
    "elementwise",
    "matmul",
    "memory",
    "normalization",
    "optimizer",
    "recurrent",
    "reduction",
    "rule",
    "rule_of",
]
