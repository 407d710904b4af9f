"""Say what of a machine a profile makes no use of; `effects` says it of network models."""

from __future__ import annotations

from collections.abc import Iterator

from armillary.platform.algorithms import natural_algorithm, parse_algorithm
from armillary.platform.collectives import COLLECTIVES
from armillary.platform.model import Physical, Platform, System

_TWINS = (
    ("dataset_splits", "chunks"),
    ("active_chunks", "active_chunks"),
    ("endpoint_delay", "endpoint_delay"),
)
"""Fields of `System`, which profile ``astra-sim`` uses, and those of `Physical` that say the same to the other."""
_SYSTEM, _PHYSICAL = System(), Physical()
_ASTRA_SIM_ONLY = ("local_reduction_delay", "inter_dimension", "intra_dimension")


def of_other_profile(platform: Platform, profile: str) -> Iterator[str]:
    """Yield a warning for everything that was given and counts in the other profile only."""
    for field, other in _of_other_profile(platform, profile):
        words = f"{platform.source or 'platform'}: {field} has no effect in profile {profile}"
        yield f"{words}; {other}" if other else words


def _of_other_profile(platform: Platform, profile: str) -> Iterator[tuple[str, str]]:
    """Yield fields that differ from their defaults and from what counts in this profile, and what to set instead."""
    system, physical = platform.system, platform.physical
    here = profile == "physical"
    for of_system, of_physical in _TWINS:
        both = ("System", of_system), ("Physical", of_physical)
        (owner, field), (own, counts) = both if here else both[::-1]
        given, used = (system, physical) if here else (physical, system)
        usual: System | Physical = _SYSTEM if here else _PHYSICAL
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
        if getattr(system, field) != getattr(_SYSTEM, field):
            yield f"System.{field}", ""
    for kind, algorithms in system.algorithms.items():
        natural = tuple(natural_algorithm(kind, each) for each in platform.dimensions[: len(algorithms)])
        if algorithms != natural and kind not in physical.algorithm:
            yield f"System.algorithms['{kind}']", "Physical.algorithm counts"
