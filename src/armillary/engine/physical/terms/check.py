"""Refuse terms and fits in profiles and network models that ignore them."""

from __future__ import annotations

from dataclasses import replace

from armillary.base.errors import InputError
from armillary.platform.model import Platform


def check_terms(platform: Platform, profile: str, network_model: str) -> Platform:
    """Refuse terms and a fit where they would have no effect; a fit that a preset brought gives way with a warning.

    Returns:
        The platform, without such a fit.

    Raises:
        InputError: names the key and the models in which it has an effect, or what it needs and the machine lacks.
    """
    if profile == "physical" and network_model == "analytical":
        if platform.terms.overlap_processors or platform.terms.overlap_traffic:
            from armillary.engine.physical.terms.resources import check_resources

            check_resources(platform)
        return platform
    if (fit := platform.collectives.fit) and fit.preset:
        warning = (
            f"preset {fit.preset}: collectives take the network's bandwidths and latencies, not fit {fit.name}: "
            f"profile {profile}, network model {network_model}"
        )
        platform = replace(
            platform,
            collectives=replace(platform.collectives, fit=None),
            warnings=(*platform.warnings, warning),
        )
    source = platform.source or "platform"
    given = ["platform.collectives.fit"] if platform.collectives.fit else []
    given += [f"platform.terms.{name.replace('_', '.', 1)}" for name in platform.terms.on()]
    if given:
        raise InputError(
            f"{source}: {given[0]} has no effect in profile {profile} with network model {network_model}; expected "
            "profile physical and network model analytical, or no such key"
        )
    return platform
