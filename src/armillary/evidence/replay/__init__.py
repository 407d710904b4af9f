"""Replay: execute a Chakra trace on real hardware, and compare with a simulation of it."""

from __future__ import annotations

from armillary.evidence.replay.compare import Comparison, NodeRow, compare
from armillary.evidence.replay.run import Replay, replay

__all__ = ["Comparison", "NodeRow", "Replay", "compare", "replay"]
