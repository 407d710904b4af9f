"""A lowered program whose messages cross a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.network_use import NetworkUse
from armillary.engine.messages.stages import network_of
from armillary.engine.physical.program import PhysicalProgram
from armillary.engine.transport import layout as tk
from armillary.engine.transport.network import Routes, Stage
from armillary.engine.transport.use import link_use
from armillary.platform.model import Platform

Ints = NDArray[np.int64]


@dataclass(kw_only=True)
class MessageProgram(PhysicalProgram):
    """A lowered program whose messages cross a network."""

    stages: Sequence[Stage]
    routes: Routes
    pairs: Ints
    """(pairs, 2) NPUs, and switches that reduce, that send and receive messages."""
    platform: Platform

    holds = "messages of {} that are under way"

    def network_use(self, run: Any) -> NetworkUse:
        """See `Simulated.network_use`; links have their bandwidths before anything fails."""
        topology = network_of(self.platform).topology
        end = int(run.table("FINISH").max(initial=0)) * tk.PS
        return NetworkUse(topology, link_use(run.net, topology), end)

    def explain(self, run: Any) -> str:
        """See `Simulated.explain`."""
        from armillary.engine.messages.explain import explain

        return explain(self, run)
