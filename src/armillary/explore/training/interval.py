"""Between which times 9 of 10 measured steps are expected.

The interval is that of a normal distribution of ln(measured / predicted). Its variance is that of held-out rows of the
software (`armillary.explore.training.fitted.Spread`), which has the errors of kernels and collectives in it. A device
of which the software had no rows adds what its kernels are off by together, and what constants of one device are off
by on another; software without rows of its own adds what it may differ by.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from pathlib import Path

from armillary.base.portable import exp, hypot
from armillary.collective.fitted import fit_names
from armillary.compute.gpu.device import load_gpu
from armillary.compute.gpu.spread import device_spread
from armillary.explore.training.fitted import NORMAL
from armillary.explore.training.parts import exposed
from armillary.explore.training.software import Software
from armillary.explore.training.step import Step
from armillary.workload.models.schema import Decoder

ELSEWHERE = 0.1
"""Standard deviation that a device without rows of the software adds: the mean residuals of the dense steps of
Megatron-Bridge on its five devices, by kernels alone, are 0.08 apart."""
BORROWED = 0.1
"""The same of software that takes the constants of another, and of plans with adapters."""
LINKS = 0.53
"""The same of exposed communication that follows the links of a data sheet: root mean square of ln(time by fit / time
by links) over the presets with fits, alone and eight of them, for the four common collectives of 64 MiB and 1 GiB.
Measured ones take 1.5 times as long on average."""


LEVELS = (0.005, 0.22)
"""How far ln(time) is below and above that by levels of a graph, over the share of exposed communication: quantiles of
5 and 95 % of 461 steps with more than 5 % of it, of 550 random graphs, models and plans of up to 64 devices
(`benchmarks/levels.py`, seeds 2 and 3). What levels leave out makes steps slower, seldom faster."""


def deviation(step: Step, software: Software, parts: Mapping[str, float]) -> float:
    """Return the standard deviation of ln(measured / predicted) of a step."""
    mixture = isinstance(step.model, Decoder) and step.model.experts is not None
    fitted = bool((step.machine.get("collectives") or {}).get("fit"))
    found = deviation_on(step.device, software, parts, mixture=mixture, fitted=fitted)
    # No software was fitted to steps with adapters: they take constants of other plans.
    return hypot(found, BORROWED) if step.plan.get("lora") else found


def deviation_on(
    device: str, software: Software, parts: Mapping[str, float], *, mixture: bool, fitted: bool
) -> float:
    """Return the same of a step on a device, "" if it has no constants.

    Args:
        device: Name of the constants of kernels.
        software: What it is trained with.
        parts: Of the step.
        mixture: Whether it has experts.
        fitted: Whether collectives take what was measured of them.
    """
    known = software.fitted.spread
    found = [known.step, known.exposed * exposed(parts), known.experts * mixture]
    # The constants of a user's device go by the name of their file.
    name = Path(device).name.removesuffix(".yaml")
    seen = name in software.fitted.on
    # The rows of a device without a fit of its collectives have the error of its links in them.
    if not fitted and not (seen and name not in fit_names()):
        found.append(LINKS * exposed(parts))
    if not seen:
        found += [ELSEWHERE, device_spread(load_gpu(device)) if device else ELSEWHERE]
    if software.base:
        found.append(BORROWED)
    return hypot(*found)


def interval_of(
    step: Step, software: Software, parts: Mapping[str, float], by_levels: bool = False
) -> tuple[float, float]:
    """Return the 90 % interval of the time of a step, in s, `by_levels` of a graph or not."""
    time, wide = fsum(parts.values()), NORMAL * deviation(step, software, parts)
    down, up = off_by_levels(parts) if by_levels else (0.0, 0.0)
    return time / exp(hypot(wide, down)), time * exp(hypot(wide, up))


def off_by_levels(parts: Mapping[str, float]) -> tuple[float, float]:
    """Return how much ln(time) falls and grows, in 9 of 10 steps, where messages move instead of levels."""
    return LEVELS[0] * exposed(parts), LEVELS[1] * exposed(parts)
