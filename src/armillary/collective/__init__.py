"""Collectives: algorithms as rounds of messages, what they cost on a network, and schedules made for one network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.collective.algorithms import add_algorithm, algorithms_for, find_algorithm, rounds_for
    from armillary.collective.rounds import (
        CollectiveAlgorithm,
        ListedAlgorithm,
        Message,
        Moves,
        Round,
        Rounds,
    )
    from armillary.collective.synthesis import SynthesizedSchedule, synthesize

__all__ = [
    "CollectiveAlgorithm",
    "ListedAlgorithm",
    "Message",
    "Moves",
    "Round",
    "Rounds",
    "SynthesizedSchedule",
    "add_algorithm",
    "algorithms_for",
    "find_algorithm",
    "rounds_for",
    "synthesize",
]
__getattr__ = lazy(
    __name__,
    {
        ".algorithms": ("add_algorithm", "algorithms_for", "find_algorithm", "rounds_for"),
        ".rounds": ("CollectiveAlgorithm", "ListedAlgorithm", "Message", "Moves", "Round", "Rounds"),
        ".synthesis": ("SynthesizedSchedule", "synthesize"),
    },
)
