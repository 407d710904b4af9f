"""Fused attention of a compute node: its attribute ``attention``, a list of eight integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ATTENTION = "attention"
"""Attribute of a node that is one kernel of fused attention: the numbers of `Attention`, as int64_list."""


class Attention(NamedTuple):
    """A kernel of fused attention, whose scores stay on chip; the operations of the node imply how many a mask keeps.

    Attributes:
        batch: Sequences.
        heads: Query heads.
        kv_heads: Heads of keys and values.
        queries: Query tokens of a sequence.
        keys: Key tokens of a sequence.
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
        """Return the scores per head and sequence that a mask keeps, from the operations of the kernel."""
        # Two GEMMs, Q Kᵀ and P V, of 2 operations per multiply-add; backward has twice as many.
        per_pair = 2 * (self.key + self.value) * (1 + self.backward)
        return operations / (per_pair * self.batch * self.heads)


def to_attention(numbers: Sequence[int]) -> Attention | None:
    """Return the attention that an attribute describes, None for an empty one.

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
