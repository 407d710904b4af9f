"""The machine a trace was recorded on, as far as the trace knows it: everything takes its recorded time."""

from __future__ import annotations

from armillary.platform.model import Dimension, Platform, System


def recorded_machine(npus: int) -> Platform:
    """Return a machine of `npus` NPUs on which compute, communication and memory take their recorded durations."""
    # The network carries nothing; a machine must have one.
    network = Dimension("recorded", "Switch", npus, bandwidth=1.0, latency=0.0)
    return Platform((network,), System(replay_only=True))
