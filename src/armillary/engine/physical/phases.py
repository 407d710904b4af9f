"""A phase of a collective of profile `physical`."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class PhysicalPhase:
    """One phase of every chunk of a job, on lines along `dim` (-1: one line with all members).

    `latency` is ns per chunk but for the reduction; a chunk of the job of c bytes moves ``volume * c`` bytes at
    full port bandwidth, and a member reduces ``reduced * c`` bytes.
    """

    dim: int
    operation: str
    algorithm: str
    positions: tuple[int, ...]
    latency: float
    volume: Fraction
    reduced: Fraction
    sent: Fraction
    """Bytes through the busiest port direction, per byte of the chunk."""
    ports: tuple[tuple[int, int], ...]
    """(dimension, how much of its port one byte takes) that a member uses."""
    scale: Fraction = Fraction(1)
    """Bytes that the schedule of a line is about, per byte of the chunk."""
    port: Fraction | None = None
    """Bytes through the busiest direction where that is not the one in which members send; else None."""

    @property
    def busiest(self) -> Fraction:
        """Bytes through the busier direction of a port, per byte of the chunk."""
        return self.sent if self.port is None else self.port
