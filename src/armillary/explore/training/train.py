"""One training step, predicted: its time, what it is made of, the memory it needs, and what was assumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import fsum
from typing import Any

from pydantic import ValidationError

from armillary.base.document import Source
from armillary.base.errors import one_of
from armillary.base.kinds import check_kinds
from armillary.base.units import format_bytes, format_time, parse_bytes
from armillary.compute.gpu.device import load_gpu
from armillary.compute.machine import Machine, machine_of
from armillary.explore.training.constants import Constants
from armillary.explore.training.defaults import chosen, completed, unchosen, with_recipe, with_sequence
from armillary.explore.training.interval import interval_of
from armillary.explore.training.levels import cut_for, taken
from armillary.explore.training.mean_step import checkpoint, seconds
from armillary.explore.training.parts import parts_and_note
from armillary.explore.training.plan_keys import PlanError, nested
from armillary.explore.training.prediction import Prediction
from armillary.explore.training.software import Software, software_on, usual
from armillary.explore.training.step import Step
from armillary.platform.fields import first_problem
from armillary.report.memory_fit import Memory
from armillary.workload import models
from armillary.workload.generate import memory_of, model_flops
from armillary.workload.layers.embedding import ROWS, share_of
from armillary.workload.models import Model, model_of
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.effects import widened, without_effect
from armillary.workload.plan.schema import Plan


def train(
    model: str | Model, machine: Source | Machine, *, software: str = "", graph: str = "", **plan: Any
) -> Prediction:
    """Predict a training step.

    Args:
        model: Name of a model, of its file, or the model.
        machine: A preset, which may be counted (``64xdgx-h100``, ``512xh100``), a platform file or its content.
        software: What it is trained with; by default what suits machine and plan.
        graph: How a network that is a graph is taken, see `armillary.explore.training.levels`: messages, or levels,
            which are approximate; by default levels of more than 32 devices.
        plan: Keys of a plan as in ``workload.generate``; those of `plan_keys.ALONE` may stand beside their section.
            ``batch`` is needed. What is left out is chosen, and stands in the assumptions.

    Raises:
        InputError: a name or key is wrong, or the plan is impossible.
    """
    check_kinds({"software": software or "", "graph": graph}, train.__annotations__)
    read = model_of(model)
    found = machine if isinstance(machine, Machine) else machine_of(machine)
    return predicted(read, found, plan, software, graph)


def predicted(
    model: Model, machine: Machine, given: Mapping[str, Any], software: str = "", graph: str = ""
) -> Prediction:
    """Predict a step of the keys of a plan, see `train`.

    Raises:
        InputError: a key is wrong, or the plan is impossible.
    """
    return at_once(model, machine, given, software, graph)[1]()


def at_once(
    model: Model, machine: Machine, given: Mapping[str, Any], software: str = "", graph: str = ""
) -> tuple[Prediction, Callable[[], Prediction]]:
    """Return a step of the keys of a plan, and what says in its assumptions what a chosen software adds.

    The latter simulates the step again without the software, which takes as long as the step.

    Raises:
        InputError: a key is wrong, or the plan is impossible.
    """
    given, machine = nested(given), taken(machine, graph)
    used = software_on(software or usual(machine.software, given), machine)
    given, assumed = with_sequence(model, given)
    whole = completed(given, used.plan, model)
    plan_of(whole, machine)  # wrong keys are refused before any is chosen
    whole, scaled = with_recipe(whole, used.name, machine.device)
    values, reasons = chosen(model, machine, whole)
    found = of_plan(model, machine, used, values)
    if found.memory.fits is False and not reasons:
        reasons = unchosen(whole)
    others = (*scaled, *reasons, *found.assumptions)

    def completely() -> Prediction:
        said = () if software else (_adds(found),)
        return replace(found, assumptions=(*assumed, *said, *others))

    return replace(found, assumptions=(*assumed, *others)), completely


def _adds(found: Prediction) -> str:
    """Return what the software of a step adds to its kernels and collectives."""
    used = found.software
    # Checkpoints take what they take without the software.
    also = found.parts.get("checkpoint", 0.0)
    more = 100 * ((found.step_time_s - also) / (seconds(found.step, Constants()) - also) - 1)
    return f"software {used.name}: {used.title}; it adds {more:.0f} % to kernels and collectives alone"


def step_of(model: Model, machine: Machine, values: Mapping[str, Any]) -> Step:
    """Return a step of a plan on a machine."""
    return Step(model, values, machine.keys, machine.npus, machine.device)


def of_plan(
    model: Model,
    machine: Machine,
    software: Software,
    values: Mapping[str, Any],
) -> Prediction:
    """Predict a step of a whole plan.

    Raises:
        InputError: the plan is impossible.
    """
    plan = plan_of(values, machine)
    _check_offload(plan, machine)  # a wrong plan is refused before it is simulated
    machine = cut_for(machine, plan)
    return of_step(step_of(model, machine, values), machine, software)


def of_step(step: Step, machine: Machine, software: Software, assumed: tuple[str, ...] = ()) -> Prediction:
    """Return the prediction of a step whose plan is known to be possible, after what was assumed for it."""
    parts, note = parts_and_note(step, software.fitted.constants)
    model, plan = step.model, plan_of(step.plan, machine)
    time = fsum(parts.values())
    sequence = plan.sequence or models.default_sequence(model)
    needed = model_flops(model, plan) * plan.iterations
    peak = _peak(machine, plan)
    held, capacity = memory_of(model, plan), machine.platform.npu.memory.capacity
    return Prediction(
        model.name, machine, software, plan, time,
        interval_of(step, software, parts, machine.cut is not None),
        needed / time / machine.npus / peak if peak else float("nan"),
        Memory(
            int(held["allocated_bytes"]), int(held["reserved_bytes"]), int(held["needed_bytes"]),
            int(capacity) if capacity else None,
        ),
        parts,
        plan.batch * (sequence or 0) * plan.iterations,
        (
            *assumed, *without_effect(plan, model, software.plan), *_storage(step, software.fitted.constants),
            *_assumed(model, plan, machine, software), *((note,) if note else ()),
        ),
        step,
        partial(of_plan, model, machine, software),
    )  # fmt: skip


def _peak(machine: Machine, plan: Plan) -> float:
    """Return FLOP/s of a device in the precision of the GEMMs of a plan; 0: not known.

    What the machine states for the precision, else what its kernels can reach at most, else its peak for any.
    """
    peak, precision = machine.platform.npu.peak, plan.numbers.compute
    stated = peak if isinstance(peak, dict) else {"bf16": peak}
    of_device = load_gpu(machine.device).peaks if machine.device else {}
    return float(stated.get(precision) or of_device.get(precision) or stated["bf16"])


def plan_of(values: Mapping[str, Any], machine: Machine) -> Plan:
    """Return the plan of its keys.

    Raises:
        PlanError: a key is wrong.
    """
    ranks = values.get("ranks", machine.npus)
    if ranks != machine.npus:
        raise PlanError(
            ("ranks",), f"got {ranks}, expected {machine.npus:,}, the devices of machine {machine.name}"
        )
    try:
        plan = Plan.model_validate({"ranks": machine.npus, **values})
    except ValidationError as error:
        place, problem = first_problem(error)
        raise PlanError(place, problem or "missing", () if problem else place) from None
    precision = plan.numbers.compute
    # Said of the key: the compute model could only say it of a kernel.
    if machine.device and precision not in (peaks := load_gpu(machine.device).peaks):
        expected = f"{machine.device} has no peak of it; expected {one_of(peaks)}"
        raise PlanError(("numbers", "compute"), f"got '{precision}', but {expected}")
    return plan


def _check_offload(plan: Plan, machine: Machine) -> None:
    """Check that there is a memory for what a plan does not keep on the devices.

    Raises:
        PlanError: there is none.
    """
    if machine.platform.remote_memory.kind != "none":
        return
    for name, share in plan.offload.model_dump().items():
        if share:
            raise PlanError(
                ("offload", name),
                f"got {share:g}, expected 0: machine {machine.name} has no remote memory, as a platform file says "
                "with remote_memory, e.g. {kind: per-npu, bandwidth: 32 GB/s, latency: 1 us}",
            )


def _storage(step: Step, constants: Constants) -> list[str]:
    """Return what checkpoints cost, how samples are read, and how."""
    said = []
    if found := checkpoint(step, constants):
        count = step.plan["checkpoint_every"]
        every = f"every {count:,} steps" if count > 1 else "each step"
        beside = (
            f"beside which training goes on and takes {format_time(found.adds * 1e9)} longer; copying to the "
            "memory of the host is left out"
            if step.plan.get("checkpoint_async")
            else "and nothing runs beside it"
        )
        said.append(
            f"after {every} all devices write a checkpoint of "
            f"{format_bytes(found.total)} at the same time, up to {format_bytes(found.largest)} each, in "
            f"{format_time(found.lasts * 1e9)}, {beside}"
        )
    if size := step.plan.get("sample_size"):
        whole = int(parse_bytes(size)) if isinstance(size, str) else size
        said.append(
            f"the first pipeline stage reads {format_bytes(whole * step.plan['batch'])} of samples from storage during "
            "the step before"
        )
    return said


def _assumed(model: Model, plan: Plan, machine: Machine, software: Software) -> list[str]:
    """Return what is not known of model, plan, machine and software, and moves the answer."""
    found = [*widened(plan, model), *machine.assumptions, *machine.not_measured()]
    if plan.data.sharding == "parameter-server":
        found.append(
            "graphs of parameter servers have layers, not GEMMs: these take the peak of the data "
            "sheet, and no time of the CPU"
        )
    if not isinstance(model, Decoder):
        found.append(
            f"no step of a model of kind {model.kind} was measured: what {software.name} adds, and the interval, are "
            "those of decoders"
        )
    elif (rows := share_of(model.vocabulary, plan.parallel.tp)) % ROWS and machine.device:
        found.append(
            f"the vocabulary is not padded: GEMMs of {rows:,} rows on a rank are slower than of a multiple of {ROWS}"
        )
    if software.fitted.constants == Constants():
        where = machine.device or "this machine"
        found.append(f"no step of {software.name} on {where} was measured: it adds nothing to its kernels")
    elif software.base:
        found.append(f"{software.name} takes the constants of {software.base}")
    if machine.moves_messages:
        found.append(
            f"messages move over the network of {machine.name}, where no step was measured: what {software.name} adds "
            "to collectives, launches and iterations is left out"
        )
    return found
