"""Collectives: algorithms as rounds of messages, what they cost on a network, and schedules made for one network."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.collective.synthesis import SynthesizedSchedule, synthesize

__all__ = ["SynthesizedSchedule", "synthesize"]


def __getattr__(name: str) -> object:
    """Import what needs topologies on first use, so that importing the package stays cheap."""
    if name in __all__:
        from armillary.collective import synthesis

        return getattr(synthesis, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
