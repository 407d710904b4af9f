"""Simulate the cases of a sweep, each on its own on an otherwise idle machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from armillary.base.errors import InputError, nearest, one_of
from armillary.engine import simulate
from armillary.engine.common.nodes import ASTRA_SIM_OPERATIONS
from armillary.engine.common.timeline import KINDS, Timeline
from armillary.report.communication import bandwidths
from armillary.report.plain import nanoseconds
from armillary.workload.micro import COLLECTIVES, Case
from armillary.workload.micro.messages import busiest, trips

if TYPE_CHECKING:
    from armillary.platform.model import Platform


@dataclass(frozen=True)
class Result:
    """What one case took."""

    case: Case
    time_ns: float
    """Time until the last rank is done; half of it for a ping-pong."""
    alone_ns: float | None = None
    """Time of the collective without the compute node."""
    compute_ns: float | None = None
    """Time of the compute node beside the collective."""
    ratio: float | None = None
    """Requested time of the compute node over that of the collective."""
    warnings: tuple[str, ...] = ()
    """What the simulation assumed."""

    @property
    def bandwidths(self) -> tuple[float | None, float | None]:
        """(Algorithm, bus) bandwidth in bytes per ns; None beside compute, and where none is agreed.

        Of a collective see `armillary.report.communication.bandwidths`. Of messages: the bytes of one, and those
        through the busiest direction of a port, ÷ time.
        """
        if self.ratio is not None or not self.time_ns or not self.case.size:
            return None, None
        if self.case.test in COLLECTIVES:
            return bandwidths(self.case.test, self.case.members, self.case.comm_size, self.time_ns)
        rate = self.case.size / self.time_ns
        return rate, rate * busiest(self.case.test, self.case.members)

    @property
    def hidden(self) -> float | None:
        """Share of the shorter one, collective or compute node, that the other hid; None where it ran alone."""
        if self.alone_ns is None or self.compute_ns is None:
            return None
        return (self.alone_ns + self.compute_ns - self.time_ns) / min(self.alone_ns, self.compute_ns)

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain JSON values; bandwidths in bytes per ns, which is GB/s."""
        algorithm, bus = self.bandwidths
        return {
            **self.case.facts(), "ratio": self.ratio, "time_ns": self.time_ns, "alone_ns": self.alone_ns,
            "compute_ns": self.compute_ns, "hidden": self.hidden, "algorithm_bandwidth": algorithm,
            "bus_bandwidth": bus,
        }  # fmt: skip


def measure(cases: Iterable[Case], platform: Platform, *, profile: str = "physical") -> list[Result]:
    """Simulate `cases`; groups of the platform give way to theirs.

    Raises:
        InputError: the profile does not model one of them, or the machine replays recorded times.
    """
    found = list(cases)
    _check(found, platform, profile)
    results = []
    for case in found:
        timeline = _run(case, platform, profile)
        # A ping-pong is two messages: half of it is one.
        results.append(Result(case, _time(timeline) / trips(case.test), warnings=_warnings(timeline)))
    return results


def measure_beside(
    results: Sequence[Result], ratios: Iterable[float], platform: Platform, *, profile: str = "physical"
) -> list[Result]:
    """Simulate the collectives of `results` again, each beside compute nodes of its time x `ratios`.

    Raises:
        InputError: see `measure`.
    """
    asked = list(ratios)
    found = []
    # Each collective beside compute nodes that take a share, or a multiple, of its own time.
    for alone in results:
        for ratio in asked if alone.case.test in COLLECTIVES else ():
            # 1 ns at least: a node of 0 ns would not overlap.
            case = replace(alone.case, compute_ns=max(1, round(alone.time_ns * ratio)))
            timeline = _run(case, platform, profile)
            found.append(
                Result(case, _time(timeline), alone.time_ns, _computed(timeline), ratio, _warnings(timeline))
            )
    return found


def _check(cases: Iterable[Case], platform: Platform, profile: str) -> None:
    if platform.compute.replay:
        raise InputError(
            f"{platform.source or 'platform'}: replay-only: nothing is recorded in a micro-benchmark; expected a "
            "machine that models communication"
        )
    for test in dict.fromkeys(case.test for case in cases if case.test in COLLECTIVES):
        if profile == "astra-sim" and test not in ASTRA_SIM_OPERATIONS:
            raise InputError(
                f"{test}: profile astra-sim does not model it; expected {one_of(ASTRA_SIM_OPERATIONS)}"
                f"{nearest(test, ASTRA_SIM_OPERATIONS)}, or profile physical"
            )


def _run(case: Case, platform: Platform, profile: str) -> Timeline:
    # A compute node states its duration, which a roofline would ask FLOPs for.
    # Groups of the platform would be taken for those of the case.
    machine = replace(platform, groups={}, compute=replace(platform.compute, model="", options={}))
    return simulate(case.trace(), machine, profile=profile)


def _time(timeline: Timeline) -> float:
    return float(nanoseconds(timeline, timeline.total_ticks))


def _warnings(timeline: Timeline) -> tuple[str, ...]:
    return tuple(timeline.info["warnings"])


def _computed(timeline: Timeline) -> float:
    longest = 0
    for cls in range(len(timeline.finish)):
        start, end = timeline.spans(cls)
        # The longest over classes of ranks: all run the same node.
        mine = timeline.table(cls).kind == KINDS.index("compute")
        longest = max(longest, int((end - start)[mine].max(initial=0)))
    return float(nanoseconds(timeline, longest))
