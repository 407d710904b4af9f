"""GEMMs of a compute node: its attribute ``gemm``, a list of five integers for each GEMM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

GEMM = "gemm"
"""Attribute of a node that consists of GEMMs only: calls, batch, m, n, k of each, as int64_list."""
SCALING = "scaling"
"""Attribute of such a node: the recipe by which other nodes have quantised its operands, as string."""


class Gemm(NamedTuple):
    """A GEMM of (m, k) with (k, n): `calls` of `batch` of them, `batch` in one kernel."""

    m: int
    n: int
    k: int
    batch: int = 1
    calls: int = 1

    def __str__(self) -> str:
        text = f"{self.m}x{self.n}x{self.k}"
        text = f"{self.batch} of {text}" if self.batch > 1 else text
        return f"{self.calls} times {text}" if self.calls > 1 else text

    @property
    def operations(self) -> int:
        """Operations, 2 per multiply-add."""
        return 2 * self.m * self.n * self.k * self.batch * self.calls

    @property
    def elements(self) -> int:
        """Elements of operands and results."""
        return (self.m * self.k + self.k * self.n + self.m * self.n) * self.batch * self.calls

    def left(self) -> Gemm:
        """Return the GEMM that computes the gradient of the left operand."""
        # C = A B of (m, k) (k, n): dA = dC Bᵀ is (m, n) with (n, k).
        return self._replace(n=self.k, k=self.n)

    def right(self) -> Gemm:
        """Return the GEMM that computes the gradient of the right operand."""
        # dB = Aᵀ dC is (k, m) with (m, n).
        return self._replace(m=self.k, k=self.m)


def to_numbers(gemms: Iterable[Gemm]) -> list[int]:
    """Return the value of the attribute."""
    return [n for each in gemms for n in (each.calls, each.batch, each.m, each.n, each.k)]


def to_gemms(numbers: Sequence[int]) -> tuple[Gemm, ...]:
    """Return the GEMMs that an attribute lists.

    Raises:
        ValueError: the length is no multiple of five, or a number is below 1.
    """
    if len(numbers) % 5 or any(number < 1 for number in numbers):
        raise ValueError("expected five integers of at least 1 (calls, batch, m, n, k) for each GEMM")
    rows = (numbers[at : at + 5] for at in range(0, len(numbers), 5))
    return tuple(Gemm(m, n, k, batch, calls) for calls, batch, m, n, k in rows)
