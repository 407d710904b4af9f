"""A collective in switches as one phase: what ports carry, and what the switch adds to the latency."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from armillary.base.errors import InputError, one_of
from armillary.collective.algorithms import algorithms_for
from armillary.collective.in_switch import ports
from armillary.platform.bandwidth import port
from armillary.platform.model import Platform


class Cost(NamedTuple):
    """What a phase costs, in bytes per byte that the schedule is about, and ns."""

    latency: float
    volume: Fraction
    added: Fraction
    sent: Fraction
    received: Fraction


def in_switch(platform: Platform, dim: int, collective: str, operation: str, n: int) -> Cost:
    """Return what an operation of a collective among `n` members costs in the switches of a dimension.

    Segments follow each other, so data goes up and down at the same time; one latency up, one down and that of the
    switch are all. The volume is what takes as long, at the bandwidth of the slower direction, as the
    slowest of three: to send, to receive and to add up.

    Raises:
        InputError: the switches of the dimension cannot reduce.
    """
    dimension = platform.dimensions[dim]
    ability = dimension.in_network
    if ability is None:
        others = [name for name in algorithms_for(operation) if name != "in-switch"]
        raise InputError(
            f"{platform.source or 'platform'}: collectives: {collective}: {dimension.name}: got in-switch, but "
            f"{_reason(platform, dimension.topology)}; expected {one_of(others)}, natural or auto"
        )
    up, down = ports(operation, n)
    ways = port(dimension)
    rate = Fraction(ways.slower)
    volume = max(up * rate / Fraction(ways.out), down * rate / Fraction(ways.into))
    if ability.rate and operation != "all-gather":
        volume = max(volume, up * rate / Fraction(ability.rate))
    added = down if operation == "reduce-scatter" else Fraction(0)
    latency = 2 * dimension.latency + ability.latency + platform.physical.endpoint_delay
    return Cost(latency, volume, added, up, down)


def _reason(platform: Platform, topology: str) -> str:
    if platform.topology:
        return "the nearest switches that join these NPUs have no in_network"
    if topology == "Switch":
        return "this Switch has no in_network"
    return f"a {topology} has no switch"
