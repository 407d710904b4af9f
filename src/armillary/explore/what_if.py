"""What a run would take on a machine with one thing changed: each change is simulated, none is estimated."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.base.errors import InputError, StuckError
from armillary.base.files import write_text
from armillary.collective.fitted.write import text_of
from armillary.engine.common.fits import fit_of
from armillary.platform.collectives import FitChoice
from armillary.platform.kernels import Compute, Override
from armillary.platform.model import Platform
from armillary.platform.network import Dimension, Port

if TYPE_CHECKING:
    from armillary.engine.common.timeline import Timeline

FACTOR = 2
MOST_NODES = {"analytical": 1_000_000}
"""Network model -> nodes of a run up to which changes are simulated, which takes a minute."""
FEW_NODES = 30_000
"""The same of models that move messages."""


@dataclass(frozen=True)
class Tried:
    """A change, and what it does.

    Attributes:
        text: The change, in words.
        seconds: Time of the run with it; None: it cannot be simulated.
        remark: What to know about it.
        allowed: Whether it can be run: what does not fit into memory has a time all the same.
    """

    text: str
    seconds: float | None
    remark: str = ""
    allowed: bool = True

    @property
    def rank(self) -> tuple[bool, float]:
        """Those that can be run first, and of these the one that saves most."""
        return not self.allowed, float("inf") if self.seconds is None else self.seconds


def tried(platform: Platform, timeline: Timeline, simulate: Callable[[Platform], Timeline]) -> list[Tried]:
    """Return the changes of a machine, the one that saves most first.

    Args:
        platform: The machine.
        timeline: The run on it.
        simulate: Runs the same on another.
    """
    model = str(timeline.info.get("network_model"))
    if len(timeline.node_start) > MOST_NODES.get(model, FEW_NODES):
        return []
    tick = float(timeline.info.get("tick_ns", 1)) * 1e-9
    found = []
    for text, other, remark in changes(platform):
        try:
            found.append(Tried(text, simulate(other).total_ticks * tick, remark))
        except (InputError, StuckError) as error:
            found.append(Tried(text, None, str(error), False))
    return sorted(found, key=lambda each: each.rank)


def changes(platform: Platform) -> Iterator[tuple[str, Platform, str]]:
    """Yield changes in words, machines with them, and what to know about them.

    A machine may name a file that lasts until the next one is asked for: simulate each before.
    """
    if compute := _faster(platform.compute):
        yield "kernels twice as fast", replace(platform, compute=compute), ""
    if platform.topology:
        top = platform.topology.topology
        faster = replace(platform.topology, topology=replace(top, bandwidth=top.bandwidth * FACTOR))
        yield "all links twice the bandwidth", replace(platform, topology=faster), ""
        nearer = replace(platform.topology, topology=replace(top, latency=top.latency / FACTOR))
        yield "all links half the latency", replace(platform, topology=nearer), ""
    elif platform.collectives.fit:
        yield from _wider_between_nodes(platform, platform.collectives.fit)
    else:
        for at, dimension in enumerate(platform.dimensions):
            before, after = platform.dimensions[:at], platform.dimensions[at + 1 :]
            name = f"dimension {dimension.name}"
            yield (
                f"{name} twice the bandwidth",
                replace(platform, dimensions=(*before, _wider(dimension), *after)),
                "",
            )
            if dimension.latency:
                quicker = replace(dimension, latency=dimension.latency / FACTOR)
                yield f"{name} half the latency", replace(platform, dimensions=(*before, quicker, *after)), ""
    if platform.terms.on():
        yield (
            "no interference and overhead",
            replace(platform, terms=type(platform.terms)()),
            "without platform.terms",
        )
    if platform.stragglers or platform.npu.speed:
        even = replace(platform, stragglers={}, npu=replace(platform.npu, speed={}))
        yield "all ranks equally fast", even, ""


def _wider_between_nodes(platform: Platform, choice: FitChoice) -> Iterator[tuple[str, Platform, str]]:
    """Yield the change of a network on which collectives were measured: what was measured of them follows it.

    Within a node no such change is offered: nobody measured how the constants of a node follow its links.
    """
    inner, outer = platform.dimensions[: choice.inner], platform.dimensions[choice.inner :]
    if not outer:
        return
    # Platforms name the file of a fit, from which the engine reads it.
    with tempfile.TemporaryDirectory(prefix="armillary-fit-") as folder:
        title = f"{choice.name} with {FACTOR} times the bandwidth between nodes"
        write_text(Path(folder) / "fit.yaml", text_of(fit_of(choice).with_network(FACTOR), title))
        collectives = replace(platform.collectives, fit=replace(choice, name="fit.yaml", folder=Path(folder)))
        wider = tuple(_wider(each) for each in outer)
        yield (
            "networks between nodes twice the bandwidth",
            replace(platform, collectives=collectives, dimensions=(*inner, *wider)),
            f"measured times of fit {choice.name} follow the bandwidth",
        )


def _wider(dimension: Dimension) -> Dimension:
    port = dimension.port and Port(dimension.port.out * FACTOR, dimension.port.into * FACTOR)
    return replace(dimension, bandwidth=dimension.bandwidth * FACTOR, port=port)


def _faster(compute: Compute) -> Compute | None:
    """Return compute whose kernels take half the time; None where that cannot be said of one of them."""
    halved = []
    for each in compute.overrides:
        # An efficiency of more than 1 would beat the peak.
        if each.efficiency is not None:
            return None
        if each.duration is not None:
            halved.append(replace(each, duration=each.duration / FACTOR))
        else:
            halved.append(replace(each, factor=(1.0 if each.factor is None else each.factor) / FACTOR))
    return None if compute.replay else replace(compute, overrides=(*halved, Override(factor=1 / FACTOR)))
