"""Fused attention of a compute node: its attribute ``attention``, a list of eight integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ATTENTION = "attention"
"""Attribute of a node that is one kernel of fused attention: the numbers of `Attention`, as int64_list."""


class Attention(NamedTuple):
    """A kernel of fused attention, whose scores stay on the chip; how many a mask keeps is told by its operations.

    Attributes:
        batch: Sequences.
        heads: Of queries.
        kv_heads: Of keys and values.
        queries: Tokens of a sequence that ask.
        keys: Tokens of a sequence that are asked.
        key: Elements of a query or key head.
        value: Elements of a value head.
        backward: 1 for the gradients, else 0.
    """

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    key: int
    value: int
    backward: int = 0

    def pairs(self, operations: int) -> float:
        """Return the scores of a head and sequence, of a kernel of so many operations."""
        per_pair = 2 * (self.key + self.value) * (1 + self.backward)
        return operations / (per_pair * self.batch * self.heads)


def to_attention(numbers: Sequence[int]) -> Attention | None:
    """Return what an attribute says, None of an empty one.

    Raises:
        ValueError: it is no such list.
    """
    if not numbers:
        return None
    if len(numbers) != 8 or min(numbers[:7]) < 1 or numbers[7] not in (0, 1):
        raise ValueError(
            "expected eight integers (batch, heads, kv_heads, queries, keys, key, value, backward), "
            "all of at least 1 but the last, which is 0 or 1"
        )
    return Attention(*numbers)
