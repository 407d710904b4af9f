"""COMET's later steps: all plans on a cluster, with and without a memory expansion, and which is best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from armillary.engine import simulate
from armillary.evidence.reproduce.case_workloads import Time, measure
from armillary.evidence.reproduce.comet_assumptions import Assumptions
from armillary.evidence.reproduce.comet_clusters import BASE, CLUSTERS, cluster, varied
from armillary.evidence.reproduce.comet_memory import Expansion, expanded, fits
from armillary.evidence.reproduce.comet_workload import DEGREES, share
from armillary.platform.model import Platform
from armillary.report.communication import dimensions

# MP 1 to 128.
SWEPT = DEGREES[:8]
"""MP in the sweeps of resources: the others are several times slower and never fit better."""
RATES = (25.0, 50.0, 100.0, 150.0, 250.0, 400.0, 600.0, 1000.0, 2000.0)
"""Bandwidths of the expansion, bytes per ns."""
CAPACITIES = (32e9, 128e9, 256e9, 512e9, 1024e9, 2048e9)
"""Capacities of the expansion, bytes."""
# 1.0 is the base cluster.
FACTORS = (0.5, 1.0, 2.0, 4.0)
"""Of the FLOP/s, and of the bandwidths within and between pods."""


@dataclass(frozen=True)
class Plan:
    """A plan on the base cluster, as if it fitted: bytes needed, parts of the step, bytes that a node sends."""

    mp: int
    needed: int
    fits: bool
    time: Time
    in_pod: int
    between: int


class Choice(NamedTuple):
    """The fastest plan, and its time in ns."""

    mp: int
    time: int


class Best(NamedTuple):
    """The fastest plan that fits, without and with the expansion; None: there is none."""

    local: Choice | None
    grown: Choice | None

    @property
    def gain(self) -> float:
        """How much faster the expansion makes the step; 0 where nothing fits without it."""
        return self.local.time / self.grown.time if self.local and self.grown else 0.0


@dataclass(frozen=True)
class Found:
    """All that was simulated.

    Attributes:
        plans: Every plan on the base cluster, with memory without end.
        hybrid: (MP, bandwidth of the expansion) -> ns, with as much capacity as it takes; absent: it cannot be.
        network: (factor within pods, factor between pods) -> best plans of the base cluster.
        compute: (factor of the FLOP/s, factor between pods) -> the same.
        clusters: Name -> the same.
        local: Bytes of the memory of a node of the base cluster.
    """

    plans: tuple[Plan, ...]
    hybrid: dict[tuple[int, float], int]
    network: dict[tuple[float, float], Best]
    compute: dict[tuple[float, float], Best]
    clusters: dict[str, Best]
    local: int

    def needed(self, mp: int) -> int:
        """Return the bytes that a plan needs."""
        return next(plan.needed for plan in self.plans if plan.mp == mp)

    def unbounded(self) -> Plan:
        """Return the fastest plan if memory had no end."""
        return min(self.plans, key=lambda plan: plan.time.total)

    def fitting(self) -> Plan | None:
        """Return the fastest plan that fits into the memory of a node."""
        fit = (plan for plan in self.plans if plan.fits)
        return min(fit, key=lambda plan: plan.time.total, default=None)

    def best(self, capacity: float, rate: float) -> Choice | None:
        """Return the fastest plan of the base cluster that fits with an expansion."""
        # Plans that fit by themselves; with an expansion they take the same time.
        own = {plan.mp: plan.time.total for plan in self.plans if plan.fits}
        more = {
            mp: time
            for (mp, other), time in self.hybrid.items()
            # Own memory plus expansion must hold it.
            if other == rate and self.needed(mp) <= self.local + capacity
        }
        return fastest(own | more)


def fastest(times: dict[int, int]) -> Choice | None:
    """Return the first plan with the least time."""
    return min((Choice(*each) for each in times.items()), key=lambda each: each.time, default=None)


def explore(chosen: Assumptions) -> Found:
    """Simulate the plans, then sweep memory, network and compute.

    Raises:
        InputError: a batch or a pod is impossible.
    """
    base = cluster(BASE, chosen)
    usual = Expansion(chosen.expansion_capacity, chosen.expansion)
    hybrid = {
        (mp, rate): time
        for rate in RATES
        # No limit of capacity: `best` applies each afterwards, so that a time is simulated once.
        for mp, time in _times(SWEPT, base, Expansion(np.inf, rate), chosen).items()
    }
    around = {
        (peak, intra, inter): _best(
            varied(base, peak=peak * chosen.peak, intra=intra * chosen.intra, inter=inter * chosen.inter), usual, chosen
        )
        for peak in FACTORS
        for intra in FACTORS
        for inter in FACTORS
        # Two planes of the cube: network at the base's FLOP/s, and FLOP/s at the base's network within pods.
        if 1.0 in (peak, intra)
    }  # fmt: skip
    clusters = {
        name: around[1.0, 1.0, 1.0] if name == BASE else _best(cluster(name, chosen), usual, chosen)
        for name in CLUSTERS
    }
    return Found(
        tuple(_plan(mp, base, chosen) for mp in DEGREES),
        hybrid,
        {(intra, inter): best for (peak, intra, inter), best in around.items() if peak == 1},
        {(peak, inter): best for (peak, intra, inter), best in around.items() if intra == 1},
        clusters,
        chosen.capacity,
    )


def _plan(mp: int, platform: Platform, chosen: Assumptions) -> Plan:
    own = share(mp, chosen)
    timeline = simulate(own.trace, platform)
    # Bytes per dimension of the slowest rank: within its pod, and between pods.
    sent = [row.bytes for row in dimensions(timeline, int(np.argmax(timeline.finish))) if row.index >= 0]
    # A second simulation, for the parts of the step.
    time = measure(own.trace, platform, "physical")
    return Plan(mp, own.needed, fits(own.needed, platform, None), time, sent[0], sent[1])


def _times(
    plans: Iterable[int], platform: Platform, expansion: Expansion, chosen: Assumptions
) -> dict[int, int]:
    """Return ns of the plans that fit."""
    cases = {mp: expanded(mp, platform, expansion, chosen) for mp in plans}
    return {mp: simulate(case[0].trace, case[1]).total_ticks for mp, case in cases.items() if case}


def _best(platform: Platform, expansion: Expansion, chosen: Assumptions) -> Best:
    times = _times(SWEPT, platform, expansion, chosen)
    # Without the expansion: plans that fit by themselves have the same time in both.
    own = {mp: time for mp, time in times.items() if fits(share(mp, chosen).needed, platform, None)}
    return Best(fastest(own), fastest(times))
