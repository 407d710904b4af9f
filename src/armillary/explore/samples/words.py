"""The causes of variation in words."""

from __future__ import annotations

from typing import Any

from armillary.base.units import format_time
from armillary.platform.model import Platform
from armillary.platform.variation import Background, Clock, LinkFlaps, SlowNics


def says(name: str, cause: Any, platform: Platform) -> str:
    """Return the distribution of a cause: "9 % of kernel times, normal, 16 levels, for each NPU"."""
    units = _units(cause.per or platform.npus, platform.npus)
    if isinstance(cause, Clock):
        levels = f"{cause.levels} levels" if cause.levels else "no levels"
        return f"{100 * cause.spread:g} % of kernel times, {cause.shape}, {levels}, for {units}"
    if isinstance(cause, Background):
        return f"0 to {100 * cause.most:g} % of {_dimension(cause, platform)} taken, for {units}"
    groups = f"groups of {cause.per} NPUs{_last(cause.per, platform.npus)}"
    share = f"{100 * cause.share:g} % of {'NPUs' if cause.per == 1 else groups}"
    if cause.per >= platform.npus:
        share = f"{100 * cause.share:g} % of steps"
    if isinstance(cause, LinkFlaps):
        return f"{share} start {format_time(cause.lasts)} late on average"
    if isinstance(cause, SlowNics):
        return f"{share} lose {100 * cause.loses:g} % of {_dimension(cause, platform)}"
    return f"{share} take {100 * cause.slower:g} % longer"


def _units(per: int, npus: int) -> str:
    if per >= npus:
        return "the machine"
    return "each NPU" if per == 1 else f"each {per} NPUs{_last(per, npus)}"


def _last(per: int, npus: int) -> str:
    """Return what says that the last group is smaller than the others, where it is."""
    return f" (the last {npus % per})" if npus % per else ""


def _dimension(cause: Any, platform: Platform) -> str:
    return cause.dimension or platform.dimensions[-1].name
