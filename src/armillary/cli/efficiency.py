"""The option ``--efficiency`` of commands that simulate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from armillary.cli.command import option
from armillary.cli.options import MACHINE, Decorator

if TYPE_CHECKING:
    from armillary.platform.model import Platform
    from armillary.trace import Trace

efficiency_option: Decorator = option(
    "--efficiency",
    metavar="PERCENT",
    heading=MACHINE,
    help="Share of peak and memory bandwidth that kernels reach, e.g. 45; overrides the machine (physical).",
)


def with_efficiency(platform: Platform, percent: str | None, trace: Trace | None = None) -> Platform:
    """Return a platform on which kernels reach so much of the peaks; None: what it says itself.

    Args:
        platform: The machine.
        percent: The option.
        trace: What runs, where it is known: nodes without a time are timed by the roofline model, too.

    Raises:
        InputError: it is no percentage above 0, or compute nodes are not timed by the roofline model.
    """
    if percent is None:
        return platform
    from armillary.base.errors import InputError
    from armillary.base.units import parse_percent
    from armillary.compute.untimed import untimed

    try:
        # "45" and "45 %" are both taken.
        share = parse_percent(percent if percent.rstrip().endswith("%") else f"{percent} %")
    except ValueError:
        # 0 is refused below, with the same message.
        share = 0.0
    if not 0 < share <= 1:
        raise InputError(f"--efficiency '{percent}': expected a percentage above 0, up to 100, e.g. 45")
    # Nodes without a recorded time need a model, even if the machine names none.
    if not platform.compute.model and not any(
        untimed(graph).any() for graph in (trace.graphs if trace else ())
    ):
        raise InputError(
            "--efficiency: compute nodes take their recorded times, expected a machine with compute.roofline: true"
        )
    # Both, as one number is given. Kernels of a device that was measured give way: an efficiency is one of a roofline.
    kernels, model = replace(platform.compute.kernels, compute=share, memory=share), platform.compute.model
    chosen = replace(platform.compute, kernels=kernels)
    if model == "gpu":
        chosen = replace(chosen, model="roofline", options={})
    return replace(platform, compute=chosen)
