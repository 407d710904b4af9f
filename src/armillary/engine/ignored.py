"""Say what of a machine a profile or a network model makes no use of."""

from __future__ import annotations

from collections.abc import Iterator

from armillary.platform.algorithms import COLLECTIVES, natural_algorithm, parse_algorithm
from armillary.platform.model import Platform

_TWINS = (
    ("dataset_splits", "chunks"),
    ("active_chunks", "active_chunks"),
    ("endpoint_delay", "endpoint_delay"),
)
"""Fields of `System`, which profile ``astra-sim`` uses, and those of `Physical` that say the same to the other."""
_ASTRA_SIM_ONLY = ("local_reduction_delay", "inter_dimension", "intra_dimension")
PACKETS = ("packet", "ns3")


def ignored(platform: Platform, profile: str, network_model: str) -> Iterator[str]:
    """Yield a warning for everything that was given and has no effect in a profile or network model."""
    for field, other in _of_other_profile(platform, profile):
        words = f"{platform.source or 'platform'}: {field} has no effect in profile {profile}"
        yield f"{words}; {other}" if other else words
    source = f"{platform.source or 'platform'}: platform"
    if platform.packets.given and network_model not in PACKETS:
        yield f"{source}.packets has no effect in network model {network_model}; packet and ns3 use it"
    asked = {name for names in platform.physical.algorithm.values() for name in names} & {"in-switch", "auto"}
    if network_model == "analytical" and asked:
        for d in platform.dimensions:
            if d.in_network and d.in_network.operations:
                yield (
                    f"{source}.network: {d.name}: in_network.operations has no effect in network model analytical; "
                    "those that move messages use it"
                )
    if platform.topology is None or network_model == "analytical":
        return
    from armillary.platform.topology.graph import UNBOUNDED

    if network_model != "packet" and (platform.topology.topology.buffer < UNBOUNDED).any():
        yield f"{source}.topology: buffers have no end in network model {network_model}; packet knows them"
    if platform.topology.routing == "adaptive":
        yield f"{source}.topology.routing: 'adaptive' takes the ways of an empty network, as ecmp does"


def _of_other_profile(platform: Platform, profile: str) -> Iterator[tuple[str, str]]:
    """Yield fields that differ from their defaults and from what counts in this profile, and what to set instead."""
    system, physical, plain = platform.system, platform.physical, Platform(platform.dimensions)
    here = profile == "physical"
    for of_system, of_physical in _TWINS:
        both = ("System", of_system), ("Physical", of_physical)
        (owner, field), (own, counts) = both if here else both[::-1]
        given, used = (system, physical) if here else (physical, system)
        usual = plain.system if here else plain.physical
        value = getattr(given, field)
        if value not in (getattr(usual, field), getattr(used, counts)):
            yield f"{owner}.{field}", f"{own}.{counts} counts"
    if not here:
        for kind, names in physical.algorithm.items():
            wanted = tuple(map(parse_algorithm, names))
            if kind in COLLECTIVES and None not in wanted and system.algorithms.get(kind) != wanted:
                yield f"Physical.algorithm['{kind}']", "System.algorithms counts"
        return
    for field in _ASTRA_SIM_ONLY:
        if getattr(system, field) != getattr(plain.system, field):
            yield f"System.{field}", ""
    for field in ("queues_per_dim", "rendezvous"):
        if getattr(platform, field) != getattr(plain, field):
            yield f"Platform.{field}", ""
    for kind, algorithms in system.algorithms.items():
        natural = tuple(natural_algorithm(kind, each) for each in platform.dimensions[: len(algorithms)])
        if algorithms != natural and kind not in physical.algorithm:
            yield f"System.algorithms['{kind}']", "Physical.algorithm counts"
