"""Draw machines from the distributions of one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.portable import log
from armillary.engine.physical.retiming.machines import Machines
from armillary.platform.model import Platform
from armillary.platform.variation import Background, Clock, LinkFlaps, SlowNics, Variation

Floats = NDArray[np.float64]
LEAST = 0.05
"""The least that a kernel takes of its time, however fast an NPU is drawn: a normal number has no lower bound."""
OUTSIDE = 1e-3
"""Of all ranks together so many are expected outside of the levels between the first and the last."""
_NORMAL = NormalDist()
_DIGITS = 9
"""Of drawn numbers: the last bits of a logarithm differ from machine to machine."""


def draw(
    platform: Platform,
    seed: int,
    numbers: Sequence[int],
    *,
    without: Collection[str] = (),
    levels: bool = True,
) -> Machines:
    """Return the machines of some samples.

    Args:
        platform: The machine and its variation.
        seed: Of all samples.
        numbers: Of the samples.
        without: Causes to leave out, by name.
        levels: False: draw the same quantiles of the distributions without levels.
    """
    shape = len(numbers), platform.npus
    speed, delay, ports = (
        np.ones(shape),
        np.zeros(shape, np.int64),
        np.ones((*shape, len(platform.dimensions))),
    )
    found = (platform.variation or Variation()).causes()
    for name, cause in found.items():
        if name in without:
            continue
        for row, number in enumerate(numbers):
            # A stream of its own for each sample and cause.
            random = np.random.default_rng([seed, number, _place(name)])
            _vary(cause, random, platform, levels, (speed[row], delay[row], ports[row]))
    return Machines(speed, delay if delay.any() else None, ports if (ports != 1).any() else None)


def machine(platform: Platform, drawn: Machines, row: int) -> Platform:
    """Return one of the drawn machines as a platform without variation."""
    found = replace(platform, variation=None)
    differs = np.flatnonzero(drawn.speed[row] != 1).tolist()
    speed = dict(platform.npu.speed)
    speed |= {r: float(drawn.speed[row, r] * speed.get(r, 1.0)) for r in differs}
    delays, ports = dict(platform.stragglers), dict(platform.port_speed)
    if drawn.delay is not None:
        late = np.flatnonzero(drawn.delay[row]).tolist()
        delays |= {r: delays.get(r, 0.0) + int(drawn.delay[row, r]) for r in late}
    if drawn.ports is not None:
        slow = np.flatnonzero((drawn.ports[row] != 1).any(axis=1)).tolist()
        ports |= {r: tuple(drawn.ports[row, r].tolist()) for r in slow}
    return replace(found, npu=replace(platform.npu, speed=speed), stragglers=delays, port_speed=ports)


def distinct(drawn: Machines, row: int) -> int:
    """Return how many different NPUs a drawn machine has."""
    columns = [drawn.speed[row]]
    if drawn.delay is not None:
        columns.append(drawn.delay[row].astype(np.float64))
    if drawn.ports is not None:
        columns += list(drawn.ports[row].T)
    return len(np.unique(np.stack(columns), axis=1).T)


def has_levels(platform: Platform) -> bool:
    """Tell whether a distribution is drawn from by levels."""
    causes = (platform.variation or Variation()).causes().values()
    return any(getattr(cause, "levels", 0) for cause in causes)


def _place(name: str) -> int:
    return list(Variation.__dataclass_fields__).index(name)


def _vary(
    cause: Any, random: np.random.Generator, platform: Platform, levels: bool, of: tuple[Any, Any, Any]
) -> None:
    """Change the speed, delay and ports of all ranks of one machine."""
    speed, delay, ports = of
    npus = platform.npus
    per = cause.per or npus
    units = -(-npus // per)
    rank = np.arange(npus) // per
    chance = random.random(units)
    if isinstance(cause, Clock):
        if cause.shape == "normal":
            z = _normal(chance, cause.levels if levels else 0, units)
        else:
            z = 2 * _uniform(chance, cause.levels if levels else 0) - 1
        speed /= np.round(np.maximum(1 + cause.spread * z, LEAST), _DIGITS)[rank]
        return
    if isinstance(cause, Background):
        share = np.round(1 - cause.most * _uniform(chance, cause.levels if levels else 0), _DIGITS)
        ports[:, _dimension(platform, cause.dimension)] *= share[rank]
        return
    hit = np.flatnonzero(chance < cause.share)
    if isinstance(cause, LinkFlaps):
        # The same number of draws whatever hits, so that a share alone can be changed.
        times = random.random(units)[hit]
        lasts = np.zeros(units, np.int64)
        lasts[hit] = [round(-cause.lasts * round(log(1 - float(u)), _DIGITS)) for u in times]
        delay += lasts[rank]
    elif isinstance(cause, SlowNics):
        left = np.ones(units)
        left[hit] = 1 - cause.loses
        ports[:, _dimension(platform, cause.dimension)] *= left[rank]
    else:
        slower = np.ones(units)
        slower[hit] = 1 + cause.slower
        speed /= slower[rank]


def _dimension(platform: Platform, name: str) -> int:
    names = [dimension.name for dimension in platform.dimensions]
    return names.index(name) if name else len(names) - 1


def _uniform(chance: Floats, levels: int) -> Floats:
    return (np.floor(chance * levels) + 0.5) / levels if levels else chance


def _normal(chance: Floats, levels: int, units: int) -> Floats:
    if levels:
        edges, values = normal_levels(levels, units)
        found: Floats = values[np.searchsorted(edges, chance, side="right")]
        return found
    # 0 has no quantile; the least number that a generator draws above it has.
    return np.array([_NORMAL.inv_cdf(max(u, 2.0**-54)) for u in chance.tolist()])


@cache
def normal_levels(levels: int, units: int) -> tuple[Floats, Floats]:
    """Return (levels - 1) probabilities between levels of a standard normal number, and the (levels) values.

    Levels are equally wide, because a step waits for the slowest of many and the mean tells nothing about that; the
    value of a level is the mean of what lies in it.
    """
    reach = -_NORMAL.inv_cdf(min(OUTSIDE / units, 0.25) / 2)
    at = [-reach + 2 * reach * k / levels for k in range(1, levels)]
    # From the lower side, where probabilities keep their digits; the upper side mirrors it.
    lower = [_NORMAL.cdf(each) for each in at]
    values = []
    for k in range((levels + 1) // 2):
        low, high = at[k - 1] if k else -np.inf, at[k] if k < len(at) else np.inf
        density = (_NORMAL.pdf(low) if k else 0.0) - (_NORMAL.pdf(high) if k < len(at) else 0.0)
        chance = (lower[k] if k < len(at) else 1.0) - (lower[k - 1] if k else 0.0)
        values.append(density / chance)
        if high > 0 and levels % 2 and k == levels // 2:
            values[-1] = 0.0
    mirrored = [-value for value in reversed(values[: levels // 2])]
    return np.array(lower), np.round(np.array(values + mirrored), _DIGITS)
