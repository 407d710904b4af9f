"""Refuse terms and fits in profiles and network models that ignore them."""

from __future__ import annotations

from armillary.base.errors import InputError
from armillary.platform.model import Platform


def check_terms(platform: Platform, profile: str, network_model: str) -> None:
    """Refuse terms and a fit where they would have no effect.

    Raises:
        InputError: names the key and the models in which it has an effect.
    """
    if profile == "physical" and network_model == "analytical":
        return
    source = platform.source or "platform"
    given = ["platform.collectives.fit"] if platform.collectives.fit else []
    given += [f"platform.terms.{name.replace('_', '.', 1)}" for name in platform.terms.on()]
    if given:
        raise InputError(
            f"{source}: {given[0]} has no effect in profile {profile} with network model {network_model}; expected "
            "profile physical and network model analytical, or no such key"
        )
