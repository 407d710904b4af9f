"""The network models that move messages, by name."""

from __future__ import annotations

from armillary.engine.transport.transport import Congestion, Transport
from armillary.platform.model import Platform

MODELS = ("congestion",)


def transport_of(network_model: str, platform: Platform) -> Transport:
    """Return the transport of a network model, as the platform describes it."""
    return Congestion()
