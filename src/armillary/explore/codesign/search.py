"""Best-first branch and bound over machines, one workload at a time."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import fsum, inf
from pathlib import Path

from armillary.base.document import Source
from armillary.base.errors import InputError
from armillary.base.kinds import check_kinds
from armillary.compute.machine import Machine
from armillary.explore.codesign.found import Beyond, Design
from armillary.explore.codesign.kept import Kept
from armillary.explore.codesign.load import Codesign, load_codesign
from armillary.explore.codesign.page import ShownDesigns
from armillary.explore.codesign.workload import Taken, Tell
from armillary.explore.codesign.worth import NEEDED, TITLES, Worth, amount, worth
from armillary.explore.training.choose import SlowerError


@dataclass(order=True)
class _Branch:
    """A machine, of which more and more is known."""

    rank: tuple[float, float, int]
    """Its bound, negative; USD; its number: the least is looked at next."""
    machine: Machine = field(compare=False)
    worth: Worth = field(compare=False)
    least: list[float] = field(compare=False)
    """By workload: s of a unit, simulated or at least."""
    taken: dict[int, Taken] = field(compare=False, default_factory=dict)

    @property
    def bound(self) -> float:
        """Goodput at most."""
        return -self.rank[0]


def plan_machine(
    source: Source,
    *,
    capital: str | None = None,
    cost_per_year: str | None = None,
    power: str | None = None,
    most: int | None = None,
    store: str | Path | None = None,
    progress: Tell | None = None,
) -> ShownDesigns:
    """Return which machine within a budget does the most of a mix of training and serving.

    Args:
        source: File of a mix, machines and a budget, or its content (`armillary.explore.codesign.schema`).
        capital: What a machine costs to buy at most, such as "5 MUSD"; None: as in the file, as for the others.
        cost_per_year: What it costs a year at most, with electricity at full power.
        power: What it takes at most with every NPU busy, such as "60 kW".
        most: Machines to look at; None: until the best is proved.
        store: File that keeps what is simulated, to go on from there.
        progress: Called with what is done, how many are done, and of how many.

    Raises:
        InputError: the file is wrong, no machine is within the budget, or the mix is possible on none.
    """
    check_kinds({"most": most, "store": store}, plan_machine.__annotations__)
    asked = load_codesign(source, {"capital": capital, "cost_per_year": cost_per_year, "power": power})
    with Kept(store, asked.folder) as kept:
        return _Search(asked, kept, progress or (lambda what, done, of: None)).run(most)


class _Search:
    def __init__(self, asked: Codesign, kept: Kept, tell: Tell) -> None:
        self.asked, self.kept, self.tell = asked, kept, tell
        self.unit: list[float] = []
        """By workload: weight over the s that a unit takes on the reference machine."""
        self.designs: list[tuple[tuple[float, float, int], Design]] = []

    def run(self, most: int | None) -> ShownDesigns:
        asked = self.asked
        # What costs nothing to find out comes first: a wrong key should not cost the time of a simulation.
        priced = self._priced()
        reference = self._reference()
        open_, outside = self._branches(priced)
        affordable, ideal = len(open_), open_[0].bound
        begun, given_up, left, left_bound = set[int](), 0, 0, 0.0
        rejected: dict[str, str] = {}
        while open_ and open_[0].bound > self.best:
            branch = heapq.heappop(open_)
            number = branch.rank[2]
            if number not in begun and most is not None and len(begun) >= most:
                left, left_bound = left + 1, max(left_bound, branch.bound)
                continue
            begun.add(number)
            try:
                self._next(branch)
            except SlowerError:
                given_up += 1
                continue
            except InputError as error:
                rejected[branch.machine.name] = str(error)
                continue
            if len(branch.taken) == len(asked.mix):
                self.designs.append((branch.rank, self._design(branch.machine, branch.worth, branch.taken)))
                self.tell("simulated", len(self.designs), len(self.designs) + len(open_))
            elif branch.bound > self.best:
                heapq.heappush(open_, branch)
            else:
                given_up += 1
        if not self.designs:
            if not rejected:
                raise asked.document.error(("mix",), "no machine was looked at, expected a larger --most")
            name, why = next(iter(rejected.items()))
            raise asked.document.error(
                ("mix",), f"it is possible on no machine within the budget; {name}: {why}"
            )
        # Begun, and beaten meanwhile.
        given_up += sum(each.rank[2] in begun for each in open_)
        designs = tuple(design for _, design in sorted(self.designs, key=lambda each: each[0]))
        # Of those that were left, some are beaten by what was found later.
        alive = left_bound > self.best
        beyond = {
            name: Beyond(len(better), max(better))
            for name, bounds in outside.items()
            if (better := [each for each in bounds if each > self.best])
        }
        return ShownDesigns(
            asked, designs, reference, sum(each.space.size for each in asked.entries), affordable, given_up,
            left if alive else 0, left_bound if alive else 0.0, ideal, beyond, rejected,
        )  # fmt: skip

    @property
    def best(self) -> float:
        """Greatest goodput so far."""
        return max((design.goodput for _, design in self.designs), default=0.0)

    def _reference(self) -> Design:
        asked, machine = self.asked, self.asked.reference
        taken: dict[int, Taken] = {}
        for number, each in enumerate(asked.mix):
            try:
                taken[number] = self._take(number, machine, inf)
            except InputError as error:
                raise asked.document.error(
                    ("mix", number), f"{each.name} on {machine.name}, which goodput is relative to: {error}; "
                    "expected another workload or plan, or a machine that can: reference"
                ) from None  # fmt: skip
        self.unit = [each.weight / taken[number].seconds for number, each in enumerate(asked.mix)]
        return self._design(machine, Worth(None, None, None), taken)

    def _priced(self) -> list[tuple[Machine, Worth, list[str]]]:
        """Return all machines, what they cost and take, and the budgets that they break.

        Raises:
            InputError: costs do not say what counts against a budget, or all machines break one.
        """
        asked, total = self.asked, sum(each.space.size for each in self.asked.entries)
        found: list[tuple[Machine, Worth, list[str]]] = []
        near, nearest = inf, ""
        for place, entry in enumerate(asked.entries):
            for machine in entry.machines():
                try:
                    own = worth(machine.platform, entry.costs)
                except InputError as error:
                    raise asked.document.error(("machines", place, "costs"), str(error)) from None
                times: dict[str, float] = {}
                for name, most in asked.budget.items():
                    if (value := own.of(name)) is None:
                        raise asked.document.error(
                            ("machines", place, "costs"),
                            f"they do not say what counts against budget {name}, expected {NEEDED[name]}",
                        )
                    times[name] = value / most
                worst = max(times, key=lambda name: times[name])
                if times[worst] < near:
                    near = times[worst]
                    nearest = f"{machine.name}: {TITLES[worst]} {amount(worst, own.of(worst) or 0.0)}"
                found.append((machine, own, [name for name, each in times.items() if each > 1]))
                self.tell("priced", len(found), total)
        if near > 1:
            raise asked.document.error(("budget",), f"no machine is within it; the nearest is {nearest}")
        return found

    def _branches(
        self, priced: list[tuple[Machine, Worth, list[str]]]
    ) -> tuple[list[_Branch], dict[tuple[str, ...], list[float]]]:
        """Return machines within the budget, best bound first, and bounds of the others by the budgets they break."""
        found: list[_Branch] = []
        outside: dict[tuple[str, ...], list[float]] = {}
        for number, (machine, own, over) in enumerate(priced):
            least = [each.least(machine) for each in self.asked.mix]
            bound = self._goodput(least)
            if not over:
                cost = own.cost_per_year or own.capital or own.power or 0.0
                found.append(_Branch((-bound, cost, number), machine, own, least))
            else:
                outside.setdefault(tuple(over), []).append(bound)
        heapq.heapify(found)
        return found, outside

    def _goodput(self, seconds: list[float]) -> float:
        whole = fsum(unit * each for unit, each in zip(self.unit, seconds, strict=True))
        return 1 / whole if whole else inf

    def _next(self, branch: _Branch) -> None:
        """Simulate the workload of a machine that takes most of the mix, of those that are left.

        Raises:
            SlowerError: it takes so long that the machine cannot be the best.
            InputError: it is impossible.
        """
        mix = self.asked.mix
        number = max(
            (each for each in range(len(mix)) if each not in branch.taken),
            key=lambda each: (self.unit[each] * branch.least[each], -each),
        )
        within = inf
        if self.designs:
            rest = fsum(
                unit * each
                for at, (unit, each) in enumerate(zip(self.unit, branch.least, strict=True)) if at != number
            )  # fmt: skip
            within = (1 / self.best - rest) / self.unit[number]
        branch.taken[number] = self._take(number, branch.machine, within)
        branch.least[number] = branch.taken[number].seconds
        branch.rank = (-self._goodput(branch.least), *branch.rank[1:])

    def _take(self, number: int, machine: Machine, within: float) -> Taken:
        workload = self.asked.mix[number]
        return self.kept.take(workload, machine, lambda: workload.take(machine, within, self.tell))

    def _design(self, machine: Machine, own: Worth, taken: Mapping[int, Taken]) -> Design:
        each = tuple(taken[number] for number in range(len(self.asked.mix)))
        times = tuple(unit * one.seconds for unit, one in zip(self.unit, each, strict=True))
        ends = [one.interval for one in each]
        interval = None
        if all(one is not None for one in ends):
            slow, fast = (
                fsum(unit * one[end] for unit, one in zip(self.unit, ends, strict=True) if one)
                for end in (1, 0)
            )
            interval = (1 / slow, 1 / fast)
        return Design(machine, own, each, times, interval)
