"""What a search for a machine found: designs, what binds, and how far another may be better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import fsum

from armillary.base.portable import hypot, log
from armillary.compute.machine import Machine
from armillary.explore.codesign.load import Codesign
from armillary.explore.codesign.workload import Taken
from armillary.explore.codesign.worth import Worth
from armillary.explore.training.fitted import NORMAL


@dataclass(frozen=True)
class Design:
    """A machine on which the whole mix was simulated.

    Attributes:
        machine: The machine.
        worth: What it costs and takes.
        taken: What each workload takes, in the order of the mix.
        times: Time of each workload in that of the mix on the reference machine: they add up to 1 / goodput.
        interval: Between which 9 of 10 measured goodputs are expected, the reference as predicted; None: not known.
    """

    machine: Machine
    worth: Worth
    taken: tuple[Taken, ...]
    times: tuple[float, ...]
    interval: tuple[float, float] | None

    @property
    def name(self) -> str:
        """Name of the machine."""
        return self.machine.name

    @cached_property
    def goodput(self) -> float:
        """How much of the mix it does in the time in which the reference machine does it once."""
        return 1 / fsum(self.times)

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of the time of the mix that each workload takes."""
        return tuple(time * self.goodput for time in self.times)

    def differs(self, other: Design) -> bool:
        """Return whether two designs differ by more than the model can tell.

        What it errs on a device it errs on both, if both have it.
        """
        return abs(log(self.goodput / other.goodput)) > NORMAL * hypot(
            self._spread(other), other._spread(self)
        )

    def _spread(self, other: Design) -> float:
        if self.machine.device and self.machine.device == other.machine.device:
            return fsum(share * each.own for share, each in zip(self.shares, self.taken, strict=True))
        if self.interval is None:
            return float("inf")
        return log(self.interval[1] / self.interval[0]) / (2 * NORMAL)


@dataclass(frozen=True)
class Beyond:
    """Machines that break the same budgets, and may be better than the best within.

    Attributes:
        count: How many.
        most: Their greatest goodput, at most.
    """

    count: int
    most: float


@dataclass(frozen=True)
class Designs:
    """The result of a search for a machine.

    Attributes:
        asked: Mix, machines and budget.
        designs: Machines on which the whole mix was simulated: best first, of equal ones the cheaper.
        reference: The machine that goodput is relative to.
        points: Machines of the space.
        affordable: Those within the budget.
        given_up: Those of which a simulated workload, or a bound of its plans, was enough.
        left: Those that were not looked at though they may be better, as the search was ended.
        left_bound: Their greatest goodput, at most.
        ideal: The greatest goodput of any machine within the budget, by peaks of operations and memory alone.
        beyond: Budgets -> machines that break these, and no others.
        rejected: Machine -> why the mix is impossible there.
    """

    asked: Codesign
    designs: tuple[Design, ...]
    reference: Design
    points: int
    affordable: int
    given_up: int
    left: int
    left_bound: float
    ideal: float
    beyond: Mapping[tuple[str, ...], Beyond]
    rejected: Mapping[str, str]

    @property
    def best(self) -> Design:
        """The machine of the greatest goodput."""
        return self.designs[0]

    @property
    def cheapest(self) -> Design:
        """Of the designs that the model cannot tell from the best, that which takes least of the first budget."""
        name = next(iter(self.asked.budget))
        alike = [each for each in self.designs if each is self.best or not each.differs(self.best)]
        return min(alike, key=lambda each: (each.worth.of(name) or 0.0, -each.goodput))

    @property
    def gap(self) -> float:
        """By how much, as a share, another machine of the space within the budget may be better; 0: none is."""
        return max(0.0, self.left_bound / self.best.goodput - 1) if self.left else 0.0
