"""Collectives: algorithms as rounds of messages, what they cost on a network, and schedules made for one network."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.collective.algorithm import CollectiveAlgorithm, ListedAlgorithm, Message
    from armillary.collective.algorithms import algorithms_for, find_algorithm, rounds_for
    from armillary.collective.rounds import Moves, Round, Rounds
    from armillary.collective.synthesis import SynthesizedSchedule, synthesize

__all__ = [
    "CollectiveAlgorithm",
    "ListedAlgorithm",
    "Message",
    "Moves",
    "Round",
    "Rounds",
    "SynthesizedSchedule",
    "algorithms_for",
    "find_algorithm",
    "rounds_for",
    "synthesize",
]
_HOME = {
    "algorithm": ("CollectiveAlgorithm", "ListedAlgorithm", "Message"),
    "algorithms": ("algorithms_for", "find_algorithm", "rounds_for"),
    "rounds": ("Moves", "Round", "Rounds"),
    "synthesis": ("SynthesizedSchedule", "synthesize"),
}


def __getattr__(name: str) -> object:
    """Import on first use, so that importing the package stays cheap."""
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
