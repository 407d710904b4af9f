"""How fast each rank computes: the durations of its nodes, stretched by its speed and by jitter."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.items import View
from armillary.engine.physical.nodes import COMPUTE, CPU, PhysicalNodes, slots_of
from armillary.engine.physical.terms.straggler import slowest
from armillary.engine.physical.workload import PhysicalWorkload

Ints = NDArray[np.int64]


class Paces:
    """The views of ranks with slots by stream and durations of their own; ranks that are alike share them."""

    def __init__(self, workload: PhysicalWorkload) -> None:
        self.workload, self.physical = workload, workload.platform.physical
        self._nodes: dict[tuple[int, float, int], PhysicalNodes] = {}
        self._views: dict[tuple[int, int], View] = {}

    def view(self, rank: int) -> View:
        """Return the view of a rank."""
        view, speed = self.workload.view(rank), self.physical.speed.get(rank, 1.0)
        key = (self.workload.kind(rank), speed, rank if self.physical.jitter else -1)
        if key not in self._nodes:
            assert isinstance(view.nodes, PhysicalNodes)
            slot = slots_of(view, view.nodes)
            self._nodes[key] = replace(view.nodes, slot=slot, ticks=self._ticks(view.nodes, rank, speed))
        nodes = self._nodes[key]
        at = (id(view), id(nodes))
        if at not in self._views:
            self._views[at] = replace(view, nodes=nodes)
        return self._views[at]

    def _ticks(self, nodes: PhysicalNodes, rank: int, speed: float) -> Ints:
        jitter, terms = self.physical.jitter, self.physical.terms
        if speed == 1.0 and not (jitter or terms.straggler or terms.launch):
            return nodes.ticks
        stretch: NDArray[np.float64] | float = 1.0 / speed
        if jitter:
            random = np.random.default_rng([jitter.seed, rank])
            stretch *= np.maximum(1 + jitter.sigma * random.standard_normal(len(nodes.kind)), 0)
        stretch *= slowest(terms.straggler, self.workload.platform.npus)
        timed = np.isin(nodes.slot, (COMPUTE, CPU))
        ticks = np.where(timed, np.ceil(nodes.ticks * stretch), nodes.ticks).astype(np.int64)
        # What the CPU has not issued yet cannot begin: of two kernels in a row, the second begins a launch later.
        least = np.where(nodes.slot == COMPUTE, ceil(terms.launch), 0)
        return np.maximum(ticks, least)
