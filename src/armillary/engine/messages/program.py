"""A lowered program whose messages cross a network, its finished run, and what holds up one that cannot finish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.units import format_time
from armillary.engine.common.lowered import Run
from armillary.engine.messages import layout as lk
from armillary.engine.messages.routes import LinksOf, routes_of
from armillary.engine.messages.stages import network_of
from armillary.engine.physical.program import PhysicalProgram
from armillary.engine.transport import layout as tk
from armillary.engine.transport.network import Routes, Stage
from armillary.engine.transport.use import NetworkUse, link_use
from armillary.platform.model import Platform

Ints = NDArray[np.int64]
SHOWN = 3
SHOWN_OF_CYCLE = 16
"""Links that an error names at most; of a deadlock, `SHOWN_OF_CYCLE`."""


@dataclass
class MessageRun(Run):
    """A finished run, with the network as it then was."""

    net: Ints
    blocked: list[int]
    """Links that hold up what never arrived, see `Transport.blocked`."""
    abandoned: list[str]
    """See `Transport.abandoned`."""


@dataclass(kw_only=True)
class MessageProgram(PhysicalProgram):
    """A lowered program whose messages cross a network."""

    stages: Sequence[Stage]
    links_of: LinksOf
    """The links of pairs with a switch."""
    pairs: Ints
    """(pairs, 2) NPUs, and switches that reduce, that send and receive messages."""
    platform: Platform

    holds = "messages of {} that are in flight"

    @cached_property
    def routes(self) -> Routes:
        """The routes of all pairs; found on first use, so that a run of too many events is refused before."""
        return routes_of(self.stages, self.pairs, self.links_of)

    def network_use(self, run: Any) -> NetworkUse:
        """See `Simulated.network_use`; links have their bandwidths before anything fails."""
        topology = network_of(self.platform).topology
        end = int(run.table("FINISH").max(initial=0)) * tk.PS
        return NetworkUse(topology, link_use(run.net, topology), end)

    def explain(self, run: Any) -> str:
        """See `Simulated.explain`; the lines name links that are down, or links that wait for each other."""
        flying = run.scalar(lk.V_FLYING)
        # Without messages in flight the ranks wait for each other, which the table of waits shows already.
        if not flying:
            return ""
        stage = run.scalar(lk.V_STAGE)
        topology = self.stages[stage].topology
        lines = [
            f"{flying} message{'s are' if flying > 1 else ' is'} in flight and never arrive{'s'[flying > 1 :]}"
        ]
        down = [link for link in run.blocked if not topology.bandwidth[link]]
        lines += [
            f"messages wait for {topology.link_name(link)}, "
            f"which is down from {_down_since(self.stages, stage, link)} on"
            for link in down[:SHOWN]
        ]
        if len(down) > SHOWN:
            lines.append(f"and for {len(down) - SHOWN} more that are down")
        # A link that is down explains the hang; a cycle behind it would only be its consequence.
        if down:
            lines.append(
                "messages keep the way on which they left; only those that leave later take another, or packets that "
                "choose (packets.spread: packet or flowlet)"
            )
        elif run.blocked:
            lines += _cycle(run.blocked, topology.link_name)
        lines += _dropped(link_use(run.net, topology).drops, topology.link_name)
        lines += run.abandoned
        return "".join(f"\n{line}" for line in lines)


def _dropped(drops: Ints, name: Callable[[int], str]) -> list[str]:
    """Return a line on packets that were dropped."""
    links = np.argsort(-drops, kind="stable")[: np.count_nonzero(drops)].tolist()
    if not links:
        return []
    shown = [f"{drops[link]:,} at {name(link)}" for link in links[:SHOWN]]
    rest = [f"the others at {len(links) - SHOWN} more"] if len(links) > SHOWN else []
    return [
        f"{int(drops.sum()):,} packets were dropped where a buffer was full: {', '.join([*shown, *rest])}"
    ]


def _cycle(links: list[int], name: Callable[[int], str]) -> list[str]:
    shown = [name(link) for link in links[:SHOWN_OF_CYCLE]]
    rest = len(links) - len(shown)
    names = ", ".join([*shown, *([f"{rest} more"] if rest else []), shown[0]])
    return [
        f"deadlock: the buffers of {len(links)} links are full and wait for each other, in this order: {names}",
        "routing without such a cycle, larger buffers or more virtual channels may avoid this deadlock",
    ]


def _down_since(stages: Sequence[Stage], stage: int, link: int) -> str:
    """Return the time since which a link has been down without a break, given that it is down in a stage."""
    while stage and not stages[stage - 1].topology.bandwidth[link]:
        stage -= 1
    return format_time(stages[stage].time)
