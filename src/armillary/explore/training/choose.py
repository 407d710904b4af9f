"""Which plan trains a model fastest on a machine: all that are possible are screened, those that may win simulated."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from armillary.base.document import Source
from armillary.base.errors import InputError
from armillary.base.garbage import uncollected
from armillary.base.hints import show
from armillary.base.kinds import check_kinds
from armillary.base.units import format_bytes, format_time
from armillary.compute.machine import Machine, machine_of
from armillary.explore.search.bound import StepBound
from armillary.explore.sweep.memory import needed
from armillary.explore.training.candidates import candidates, left_out, why_none
from armillary.explore.training.defaults import completed, with_recipe, with_sequence
from armillary.explore.training.fastest import Rejected, Timed, shortest, timed
from armillary.explore.training.levels import taken, unshared
from armillary.explore.training.plan_keys import nested
from armillary.explore.training.prediction import Prediction, plans_block
from armillary.explore.training.software import Software, software_on, usual
from armillary.explore.training.step import platform_of
from armillary.explore.training.train import plan_of, step_of
from armillary.platform.files.preset import merged
from armillary.report.memory_fit import Memory
from armillary.report.page.blocks import Block, table
from armillary.report.page.shown import Shown
from armillary.report.table import Parts, ResultTable
from armillary.workload.models import Model, model_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from armillary.engine.common.timeline import Timeline
    from armillary.explore.what_if import Tried
    from armillary.report.lower_bound import Bound

Progress = Callable[[str, int, int], None]
"""Called with what is done, how many are done, and of how many."""
Seen = Callable[[Mapping[str, Any], float], None]
"""Called with the keys of each plan that was simulated, and its time in s."""
SHARDINGS = {"zero-1": ("zero-1", "fsdp"), "fsdp": ("fsdp",)}
"""Sharding of a software -> what else it has, that is worth trying."""
SLACK = 1 - 1e-3
"""A bound is that of a whole step, a time that of a steady state: this far they may be apart."""


class SlowerError(InputError):
    """No plan takes as little time as was asked for.

    Attributes:
        seconds: That all plans take at least.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no plan takes less than {format_time(seconds * 1e9)}")
        self.seconds = seconds


@dataclass(frozen=True, repr=False)
class Choice(Shown):
    """The best plans of a model on a machine.

    Attributes:
        plans: Best first.
        rejected: The others, with the reason of each.
        simulated: Of how many the time is known.
        assumptions: What nobody said and holds for all of them.
    """

    plans: tuple[Prediction, ...]
    rejected: tuple[Rejected, ...]
    simulated: int
    assumptions: tuple[str, ...]

    @property
    def best(self) -> Prediction:
        """The fastest."""
        return self.plans[0]

    @property
    def step_time(self) -> float:
        """Time of a step of the best plan, in s."""
        return self.best.step_time

    @property
    def interval(self) -> tuple[float, float]:
        """Between which times, in s, 9 of 10 measured steps of the best plan are expected."""
        return self.best.interval

    @property
    def breakdown(self) -> Parts:
        """Part of a step of the best plan -> s, as of all results."""
        return self.best.breakdown

    @property
    def mfu(self) -> float:
        """Of the best plan, as of all results."""
        return self.best.mfu

    @property
    def memory(self) -> Memory:
        """Of the best plan, as of all results."""
        return self.best.memory

    @property
    def bound(self) -> Bound:
        """Of the best plan, as of all results."""
        return self.best.bound

    @property
    def collectives(self) -> ResultTable:
        """Of the best plan, as of all results."""
        return self.best.collectives

    def timeline(self, *, whole: bool = False) -> Timeline:
        """Return that of the best plan, as of all results."""
        return self.best.timeline(whole=whole)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure | None:
        """Draw the best plan, as of all results."""
        return self.best.plot(path)

    def tried(self) -> list[Tried]:
        """Return what changes of the best plan do, as of all results."""
        return self.best.tried()

    def __repr__(self) -> str:
        """Return three lines: the best plan with its memory, and how many were tried."""
        first, memory, last = repr(self.best).split("\n")
        return f"{first}\n{memory}\n{last}; the best of {self.count:,} plans, {self.simulated:,} simulated"

    @property
    def count(self) -> int:
        """How many plans there were."""
        return len(self.plans) + len(self.rejected)

    @property
    def title(self) -> str:
        """Model, machine and batch."""
        return f"Plans of {self.best.title}"

    def blocks(self, *, changes: bool = True) -> list[Block]:
        """Return the blocks of the page: the best plan, all plans, why the others lose, and the best run."""
        first, second, *rest = self.best.blocks(changes=changes)
        kinds: dict[str, list[str]] = {}
        for each in self.rejected:
            kinds.setdefault(each.kind, []).append(each.why)
        columns = (("plans", "count"), ("why", "text"), ("for example", "text"))
        title = f"The {len(self.plans)} best of {self.count:,} plans"
        lost = [[len(whys), kind, whys[0]] for kind, whys in kinds.items()]
        return [
            first, plans_block(title, self.plans),
            *([table("Why the others are not among them", columns, lost)] if lost else []), second, *rest,
        ]  # fmt: skip


def plan(
    model: str | Model,
    machine: Source | Machine,
    *,
    batch: int | None = None,
    software: str = "",
    graph: str = "",
    among: Iterable[Mapping[str, Any]] | None = None,
    top: int = 10,
    progress: Progress | None = None,
    seen: Seen | None = None,
    within: float = inf,
    **keys: Any,
) -> Choice:
    """Return the plans that train a model fastest.

    Args:
        model: Name of a model, of its file, or the model.
        machine: See `armillary.train`.
        batch: Samples of a step; may be left out where all plans of `among` have one.
        software: What it is trained with; by default what suits machine and plan.
        graph: See `armillary.train`.
        among: Keys of plans; only these are ranked, whether they fit into memory or not.
        top: Plans to return.
        progress: See `Progress`.
        seen: See `Seen`; not called for plans of `among`.
        within: s within which a step is of use: if the bounds of all plans are above, none is simulated.
        keys: Of a plan, see `armillary.train`; they are the same in all plans that are tried.

    Raises:
        InputError: a name or key is wrong, or no plan is possible.
        SlowerError: no plan takes as little as `within`.
    """
    check_kinds(
        {"software": software or "", "graph": graph, "top": top, "within": within}, plan.__annotations__
    )
    if top < 1:
        raise InputError(f"top: got {top}, expected 1 or more")
    if among is not None and (not isinstance(among, Iterable) or isinstance(among, str | Mapping)):
        raise InputError(f"among: got {show(among)}, expected several mappings of keys to values")
    read = model_of(model)
    own = machine if isinstance(machine, Machine) else machine_of(machine)
    found = taken(own, graph)
    # No cut of its levels beats a device with all of its links in each.
    free = unshared(own) if found is not own else found
    given = nested(keys | ({"batch": batch} if batch is not None else {}))
    tell = progress or (lambda what, done, of: None)
    if among is not None:
        among = [with_sequence(read, merged(given, nested(each)))[0] for each in among]
    given, assumed = with_sequence(read, given)
    if among is not None:
        ranked = _ranked(read, found, given, list(among), software, top, tuple(assumed), tell)
        return ranked if software else _named(ranked, found)
    used = software_on(software or usual(found.software, given), found)
    if not software:
        assumed.append(f"software {used.name}: {used.title}")
    whole = completed(given, used.plan, read)
    named = (given.get("data") or {}).get("sharding") is not None
    plan_of(whole, found)  # wrong keys are refused before any is tried
    whole, scaled = with_recipe(whole, used.name, found.device)
    assumed += scaled
    assumed += [said for said in (left_out(read, found, whole),) if said]
    ways = [whole] if named else _shardings(whole, used)
    searched = _searched(
        read, found, free, used, whole, ways, top, tuple(assumed), tell, seen or (lambda plan, time: None), within
    )  # fmt: skip
    return searched if software else _named(searched, found)


def _named(choice: Choice, machine: Machine) -> Choice:
    """Say of plans which software they were compared in, where `armillary.train` would take another for them."""
    plans = []
    for each in choice.plans:
        own, usually = each.software.name, usual(machine.software, each.step.plan)
        said = (
            f"all plans are compared in {own}; for this one `armillary train` takes {usually}, unless --software {own} "
            "is given"
        )
        plans.append(each if own == usually else replace(each, assumptions=(*each.assumptions, said)))
    return replace(choice, plans=tuple(plans))


def _ranked(
    model: Model, machine: Machine, given: Mapping[str, Any], among: Sequence[Mapping[str, Any]], software: str,
    top: int, assumed: tuple[str, ...], tell: Progress,
) -> Choice:  # fmt: skip
    known: list[Timed] = []
    rejected = []
    whole = [merged(given, nested(each)) for each in among]
    # One software for all: they are to be compared.
    kinds = {usual(machine.software, each) for each in whole}
    used = software_on(software or (kinds.pop() if len(kinds) == 1 else usual(machine.software, {})), machine)
    for done, (each, own) in enumerate(zip(among, whole, strict=True)):
        try:
            values, _ = with_recipe(completed(own, used.plan, model), used.name, machine.device)
            known.append(timed(model, machine, used, values))
        except InputError as error:
            rejected.append(Rejected(each, "impossible", str(error)))
        tell("simulated", done + 1, len(among))
    if not known:
        raise InputError(f"no plan is possible: {rejected[0].why}" if rejected else "no plans to rank")
    known.sort(key=lambda each: each.seconds)
    best, slower = shortest(model, machine, used, known, top, assumed)
    return Choice(best, (*slower, *rejected), len(known), assumed)


def _searched(
    model: Model, machine: Machine, free: Machine, software: Software, given: Mapping[str, Any],
    ways: Iterable[Mapping[str, Any]], top: int, assumed: tuple[str, ...], tell: Progress, seen: Seen,
    within: float,
) -> Choice:  # fmt: skip
    tried = [each for way in ways for each in candidates(model, machine, way)]
    waiting, rejected = _screened(model, free, software, tried, tell)
    if not waiting:
        raise InputError(_impossible(model, given, machine, rejected))
    if waiting[0][0] * SLACK > within:
        raise SlowerError(waiting[0][0] * SLACK)
    known: list[Timed] = []
    for done, (bound, values) in enumerate(waiting):
        limit = known[top - 1].seconds if len(known) >= top else float("inf")
        # Bounds grow: neither this plan nor any after it can be among the best.
        if bound * SLACK > limit:
            rejected += [
                Rejected(
                    each,
                    "cannot be faster, by its lower bound",
                    f"at least {format_time(least * 1e9)}, plan {top} takes {format_time(limit * 1e9)}",
                )
                for least, each in waiting[done:]
            ]
            break
        try:
            known.append(timed(model, machine, software, values))
            seen(values, known[-1].seconds)
        except InputError as error:
            rejected.append(Rejected(values, "impossible", str(error)))
        known.sort(key=lambda each: each.seconds)
        tell("simulated", done + 1, len(waiting))
    if not known:
        raise InputError(_impossible(model, given, machine, rejected))
    best, slower = shortest(model, machine, software, known, top, assumed)
    return Choice(best, (*rejected, *slower), len(known), assumed)


def _shardings(given: Mapping[str, Any], software: Software) -> list[dict[str, Any]]:
    """Return plans whose sharding nobody named, with each way to share weights that a software has."""
    section = given.get("data") or {}
    own = section.get("sharding")
    # The software's own may be another of its ways.
    if own is None or own != (software.plan.get("data") or {}).get("sharding"):
        return [{**given}]
    return [{**given, "data": {**section, "sharding": each}} for each in SHARDINGS.get(own, (own,))]


@uncollected()
def _screened(
    model: Model, machine: Machine, software: Software, tried: Sequence[dict[str, Any]], tell: Progress
) -> tuple[list[tuple[float, dict[str, Any]]], list[Rejected]]:
    """Return (least seconds, plan) of plans that are possible and fit, the most promising first, and the others.

    Args:
        model: The model.
        machine: As fast as any plan finds it.
        software: What it is trained with.
        tried: Keys of the plans.
        tell: See `Progress`.
    """
    capacity = machine.platform.npu.memory.capacity or float("inf")
    bound: StepBound | None = None
    waiting, rejected = [], []
    for done, values in enumerate(tried):
        plan = plan_of(values, machine)
        try:
            bytes_ = needed(model, plan)
        except InputError as error:
            rejected.append(Rejected(values, "impossible", str(error)))
            continue
        if bytes_ > capacity:
            why = f"needs {format_bytes(bytes_)} of {format_bytes(int(capacity))}"
            rejected.append(Rejected(values, "does not fit into memory", why))
            continue
        if problem := _pointless(values):
            rejected.append(Rejected(values, "slower", problem))
            continue
        # Plans of a search have one precision, so the constants of the software make one machine for all of them.
        bound = bound or StepBound(platform_of(step_of(model, machine, values), software.fitted.constants))
        waiting.append((bound.ticks(model, plan) * 1e-9, values))
        tell("screened", done + 1, len(tried))
    return sorted(waiting, key=lambda each: each[0]), rejected


def _pointless(values: Mapping[str, Any]) -> str:
    sharded = (values.get("data") or {}).get("sharding") == "fsdp"
    if sharded and values.get("parallel", {}).get("pp", 1) > 1:
        return "fsdp gathers weights anew for each microbatch of a pipeline"
    return ""


def _impossible(
    model: Model, given: Mapping[str, Any], machine: Machine, rejected: Sequence[Rejected]
) -> str:
    why = rejected[0].why if rejected else why_none(model, machine, given)
    return (
        f"no plan of batch {given['batch']} on {machine.npus:,} devices of {machine.name} is possible: {why}"
    )
