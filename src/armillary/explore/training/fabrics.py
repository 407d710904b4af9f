"""Which of several machines trains a model fastest, for how much, and whether the model can tell them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Any

from armillary.base.document import Source
from armillary.base.errors import InputError
from armillary.base.portable import exp, hypot
from armillary.compute.machine import Machine, machine_of
from armillary.explore.cost import Costs, measures_of, price, use_of
from armillary.explore.cost.measures import HOURS_PER_YEAR, price_per_hour
from armillary.explore.cost.price import bill_of, counted_dimensions
from armillary.explore.training.choose import Progress, plan
from armillary.explore.training.interval import deviation
from armillary.explore.training.levels import check_how, how_for, places_of, unshared
from armillary.explore.training.parts import exposed
from armillary.explore.training.plan_keys import PlanError, nested
from armillary.explore.training.prediction import Prediction, log_ratio
from armillary.explore.training.step import simulated
from armillary.explore.training.train import predicted, step_of
from armillary.report.lower_bound import bound
from armillary.workload.models import Model, model_of
from armillary.workload.plan.request import keys_of

TIERS = "tiers of switches: the costs have no `switches`, so that a GB/s of a device costs the same on every graph"


@dataclass(frozen=True)
class Fabric:
    """A machine of a comparison.

    Attributes:
        prediction: Of the step, by its fastest plan, or by the plan that was given.
        bound_s: Least time of this plan on this machine in s, by any algorithm of its collectives.
        cost_per_year: USD of the machine and what it draws; None: not known.
        power_w: Mean power of a step; None: not known.
        cost_high: The same where switches and cables of its graph are bought dearly.
        bill: Switches and cables of its graph outside of hosts, "leaf switches: 8 x …".
        unknown: What the costs do not say and is therefore not counted.
    """

    prediction: Prediction
    bound_s: float
    cost_per_year: float | None
    power_w: float | None
    unknown: tuple[str, ...] = ()
    cost_high: float | None = None
    bill: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the machine."""
        return self.prediction.machine.name


@dataclass(frozen=True)
class Verdict:
    """A machine against the fastest.

    Attributes:
        slower: Its step over that of the fastest, less 1.
        interval: Between which 9 of 10 measured ratios are expected, less 1.
        differs: Whether the difference is larger than the model can tell.
        shared: Whether device and software are the same, so that their errors cancel.
    """

    slower: float
    interval: tuple[float, float]
    differs: bool
    shared: bool


@dataclass(frozen=True)
class Fabrics:
    """Machines compared, in the order they were given.

    Attributes:
        fabrics: The machines.
        verdicts: What each is against the fastest.
        same_costs: Whether one file of costs holds for all of them.
    """

    fabrics: tuple[Fabric, ...]
    verdicts: tuple[Verdict, ...]
    same_costs: bool = False

    @property
    def fastest(self) -> Fabric:
        """The one of the shortest step."""
        return min(self.fabrics, key=lambda each: each.prediction.step_time_s)


def compare_machines(
    model: str | Model,
    machines: Sequence[Source],
    *,
    costs: Sequence[Costs] = (),
    software: str = "",
    graph: str = "",
    progress: Progress | None = None,
    **keys: Any,
) -> Fabrics:
    """Compare machines by the time of a training step of a model.

    Args:
        model: Name of a model, of its file, or the model.
        machines: Two or more, see `armillary.train`.
        costs: None, one for all machines, or one for each.
        software: What it is trained with; by default what suits machine and plan.
        graph: How networks that are graphs are taken, see `armillary.train`.
        progress: See `armillary.explore.training.choose.Progress`.
        keys: Of a plan, see `armillary.train`. If they say how the model is parallel, that is the plan on all
            machines; else each takes its fastest.

    Raises:
        InputError: a name or key is wrong, or no plan is possible on one of the machines.
    """
    if len(machines) < 2:
        raise InputError(f"got {len(machines)} machine, expected two or more to compare")
    if len(costs) not in (0, 1, len(machines)):
        raise InputError(
            f"got {len(costs)} costs for {len(machines)} machines, expected one for all, or one for each"
        )
    check_how(graph)
    read, given = model_of(model), nested(keys)
    prices: list[Costs | None] = [*costs] * (len(machines) if len(costs) == 1 else 1) or [None] * len(
        machines
    )
    # All machines are read before any is simulated: a wrong name should not cost the time of the others.
    found = [machine_of(machine) for machine in machines]
    fabrics = []
    for machine, cost in zip(found, prices, strict=True):
        try:
            fabrics.append(_fabric(read, machine, given, software, cost, graph, progress))
        except PlanError:  # of the plan, whatever the machine
            raise
        except InputError as error:
            raise type(error)(f"{machine.name}: {error}") from error
    best = min(fabrics, key=lambda each: each.prediction.step_time_s)
    return Fabrics(
        tuple(fabrics),
        tuple(_verdict(read, each, best) for each in fabrics),
        len(costs) == 1,
    )


def _fabric(
    model: Model, machine: Machine, given: Mapping[str, Any], software: str, costs: Costs | None,
    graph: str, progress: Progress | None,
) -> Fabric:  # fmt: skip
    graph = how_for(machine, graph)
    if "parallel" in given:
        best = predicted(model, machine, given, software, graph)
    else:
        best = plan(model, machine, software=software, graph=graph, top=1, progress=progress, **given).best
    plan_keys, constants = _keys(best), best.software.fitted.constants
    timeline = simulated(step_of(model, best.machine, plan_keys), constants)
    freely = timeline
    if best.approximate:
        freely = simulated(step_of(model, unshared(machine), plan_keys), constants)
    least = bound(freely).ticks * 1e-9
    if costs is None:
        return Fabric(best, least, None, None)
    used, levels = use_of(timeline), machine.platform.dimensions
    # What pieces of a level move, the level moves, whose links have a price.
    places = places_of(best.machine.platform.dimensions, levels)
    moved = [
        fsum(each for each, at in zip(used.moved, places, strict=True) if at == d) for d in range(len(levels))
    ]
    platform, bought = machine.platform, price(machine.platform, costs)
    known = measures_of(replace(used, moved=tuple(moved)), platform, costs)
    power = known.get("power")
    low, high = (
        None if hourly is None else hourly * HOURS_PER_YEAR * costs.utilisation
        for hourly in (
            known.get("price_per_hour"),
            price_per_hour(costs, used.npus, bought.high if bought.items else None, power),
        )
    )
    counted = bool(counted_dimensions(platform, costs))
    return Fabric(
        best, least, low, power,
        bought.missing if counted or platform.topology is None else (*bought.missing, TIERS),
        high,
        tuple(f"{row.name}: {row.detail}" for row in bill_of(platform, costs)[0]),
    )  # fmt: skip


def _keys(one: Prediction) -> dict[str, Any]:
    return {key: value for key, value in keys_of(one.plan).items() if key != "ranks"}


def _verdict(model: Model, fabric: Fabric, fastest: Fabric) -> Verdict:
    """Return what a machine is against the fastest.

    What a software and a device do to all plans alike cancels where they are the same; what remains is what the steps
    of the software differ by, of both, what follows from how much more the one exposes of communication, and what
    levels are off by.
    """
    one, best = fabric.prediction, fastest.prediction
    shared = one.machine.device == best.machine.device != "" and one.software.name == best.software.name
    if fabric is fastest:
        return Verdict(0.0, (0.0, 0.0), False, True)
    if shared:
        known = one.software.fitted.spread
        more = exposed(one.parts) - exposed(best.parts)
        spread = hypot(known.step, known.step, known.exposed * more)
    else:
        spread = hypot(*(_deviation(model, each) for each in (one, best)))
    low, high = log_ratio(one, best, spread)
    return Verdict(
        one.step_time_s / best.step_time_s - 1, (exp(low) - 1, exp(high) - 1), not low <= 0 <= high, shared
    )


def _deviation(model: Model, one: Prediction) -> float:
    return deviation(step_of(model, one.machine, _keys(one)), one.software, one.parts)
