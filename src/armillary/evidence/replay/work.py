"""Compute nodes as real work: GEMMs and copies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LARGEST_MATRIX = 1024
# 64 MiB, beyond most caches.
COPY_BYTES = 1 << 26
# Long enough for clocks of 1 µs, short enough for the start of a replay.
_MIN_SECONDS = 0.05


class Work:
    """Does so many floating-point operations, or moves so many bytes, whichever takes longer here.

    A roofline says that a kernel takes the longer of the two; which one that is, a short measurement says.
    """

    def __init__(self, torch: Any, device: str, synchronize: Callable[[], None]) -> None:
        """Allocate what it works on and measure.

        Args:
            torch: The module.
            device: Where it works.
            synchronize: Waits until the device is done.
        """
        self.torch = torch
        n = LARGEST_MATRIX
        # Flat: views of smaller matrices use the same memory.
        self._matrices = [torch.rand(n * n, device=device) for _ in range(3)]
        self._copies = [torch.zeros(COPY_BYTES // 2, dtype=torch.uint8, device=device) for _ in range(2)]
        # 2 n^3: a multiplication and an addition each.
        self.flops_per_second = _rate(self._multiply, 2 * n**3, synchronize)
        self.bytes_per_second = _rate(self._copy, COPY_BYTES, synchronize)

    def do(self, flops: int, size: int) -> None:
        """Do the work of one node of `flops` operations and `size` bytes moved."""
        if flops / self.flops_per_second >= size / self.bytes_per_second:
            self._multiply(flops)
        else:
            self._copy(size)

    def _multiply(self, flops: int) -> None:
        """Multiply square matrices; the last GEMM has fewer rows."""
        # A single GEMM of so many operations has this side; larger work is several of the largest.
        n = min(LARGEST_MATRIX, max(1, round((flops / 2) ** (1 / 3))))
        a, b, c = (matrix[: n * n].view(n, n) for matrix in self._matrices)
        whole, rest = divmod(flops, 2 * n**3)
        for _ in range(whole):
            self.torch.mm(a, b, out=c)
        if rows := round(rest / (2 * n**2)):
            self.torch.mm(a[:rows], b, out=c[:rows])

    def _copy(self, size: int) -> None:
        """Copy half as many bytes: each is read and written."""
        source, target = self._copies
        left = size // 2
        while left > 0:
            # In pieces of the buffer.
            step = min(left, len(source))
            target[:step].copy_(source[:step])
            left -= step


def _rate(work: Callable[[int], None], amount: int, synchronize: Callable[[], None]) -> float:
    """Return how much `work` does in a second."""
    # The first call allocates and warms up.
    work(amount)
    synchronize()
    start, times = time.perf_counter(), 0
    while time.perf_counter() - start < _MIN_SECONDS:
        work(amount)
        # Each call is waited for: queued work would not be measured.
        synchronize()
        times += 1
    return amount * times / (time.perf_counter() - start)
