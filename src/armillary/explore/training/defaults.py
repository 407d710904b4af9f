"""What a plan leaves open is chosen, and said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from armillary.base.errors import InputError, one_of
from armillary.compute.gpu.device import load_gpu
from armillary.compute.machine import Machine
from armillary.explore.sweep.memory import needed
from armillary.explore.training.candidates import candidates, why_none
from armillary.explore.training.plan_keys import PlanError
from armillary.explore.training.software import TRANSFORMER_ENGINE
from armillary.platform.files.preset import merged
from armillary.workload.models import Model, default_sequence
from armillary.workload.models.schema import Decoder, Vit
from armillary.workload.pipeline.tasks import DEFERRING
from armillary.workload.plan.scaling import RECIPES
from armillary.workload.plan.schema import Plan

VIRTUAL = ("pipeline", "virtual")
CHOSEN = (
    ("parallel", "tp"),
    ("parallel", "pp"),
    ("parallel", "cp"),
    ("parallel", "ep"),
    ("microbatch",),
    ("recompute",),
)
"""Keys of a plan that are chosen together where they are left out."""


USUAL_SEQUENCE = 8192
"""Tokens of a sequence unless a plan says: what models are pre-trained with, before their context is made longer."""


def with_sequence(model: Model, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the keys of a plan with the tokens of a sequence, and a sentence where they were left out."""
    own = default_sequence(model)
    if given.get("sequence") is not None or own is None:
        return {**given}, []
    length = min(own, USUAL_SEQUENCE)
    why = "the model's own" if length == own else f"as models are pre-trained; this one reads up to {own:,}"
    return {**given, "sequence": length}, [f"sequence {length:,}, {why}"]


def completed(
    given: Mapping[str, Any], usual: Mapping[str, Any], model: Model | None = None
) -> dict[str, Any]:
    """Return the keys of a plan with what a software does unless they say otherwise.

    What the keys, or the model, rule out is no default: nobody asked for it.

    Args:
        given: The keys.
        usual: What a plan of the software is unless it says otherwise.
        model: What is trained; None: any decoder.

    Raises:
        PlanError: there is no batch.
    """
    if given.get("batch") is None:
        raise PlanError((), "missing key 'batch': samples of one step, over all replicas", ("batch",))
    schedule, sharding = _at(given, ("pipeline", "schedule")), _at(given, ("data", "sharding"))
    ruled_out: list[tuple[str, ...]] = []
    # Their gradients of weights follow on their own, so that no order within a backward pass is left to choose;
    # graphs of parameter servers have no such order either.
    overlapped = _at(usual, ("parallel", "backward")) == "serial" and _at(given, ("parallel", "overlap"))
    if schedule in DEFERRING or sharding == "parameter-server" or overlapped:
        ruled_out.append(("parallel", "backward"))
    if schedule == "pipedream":  # it updates after every microbatch, which only ddp can
        ruled_out.append(("data", "sharding"))
    if model is not None and not isinstance(model, Decoder):
        ruled_out.append(("causal",))
        if not isinstance(model, Vit):  # no scores to leave out
            ruled_out += [("recompute",)] if usual.get("recompute") == "selective" else []
    own = {**usual}
    for section, *key in ruled_out:
        if not key:
            own.pop(section, None)
        elif section in own:
            own[section] = {name: value for name, value in own[section].items() if name not in key}
    whole: dict[str, Any] = merged(own, given)
    return whole


def with_recipe(given: Mapping[str, Any], software: str, device: str) -> tuple[dict[str, Any], list[str]]:
    """Return the keys of a plan with how operands of fp8 or fp4 are scaled, and a sentence where they did not say.

    Args:
        given: The keys.
        software: Name of the software; one without Transformer Engine has no default.
        device: Name of the constants of the machine's kernels; "": not known.

    Raises:
        InputError: the device has no such GEMMs.
    """
    numbers = dict(given.get("numbers") or {})
    compute, own = numbers.get("compute", "bf16"), numbers.get("recipe")
    peaks = load_gpu(device).peaks if device else {}
    # Scales of 16 or 32 values are applied by tensor cores, of which those with fp4 are the first.
    small = "fp4" in peaks
    if own in SMALL and device and not small:
        raise InputError(
            f"numbers.recipe {own}: {device} scales whole tensors and blocks of 128, expected "
            f"{one_of([each for each in RECIPES if each not in SMALL])}"
        )
    if own or compute not in ("fp8", "fp4") or not device or software not in TRANSFORMER_ENGINE:
        return {**given}, []
    chosen_ = "nvfp4" if compute == "fp4" else "mx" if small else "current"
    if chosen_ == "nvfp4" and not small:
        return {**given}, []
    text = f"recipe {chosen_} of {compute}, usual on {device}: kernels quantise operands before GEMMs"
    return {**given, "numbers": {**numbers, "recipe": chosen_}}, [text]


SMALL = ("mx", "nvfp4")
"""Recipes with scales of a few values."""


def chosen(model: Model, machine: Machine, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the keys of a whole plan, and a sentence about those that were chosen.

    The simplest plan that fits into memory, see `armillary.explore.training.candidates`; if none does, the one that
    lacks least.

    Raises:
        InputError: no plan is possible with the keys that are given.
    """
    open_ = [path for path in CHOSEN if _at(given, path) is None]
    # What is given says at least how the model is shared: then that is what is meant, and the rest are defaults.
    if any(path not in open_ for path in CHOSEN[:2]):
        return {**given}, []
    capacity = machine.platform.npu.memory.capacity or float("inf")
    least, found, problem = float("inf"), None, ""
    for values in candidates(model, machine, given):
        plan = Plan.model_validate({"ranks": machine.npus, **values})
        try:
            bytes_ = needed(model, plan)
        except InputError as error:
            problem = problem or str(error)  # of the simplest plan
            continue
        if bytes_ <= capacity:
            return values, [_sentence(given, values, open_, "the simplest plan that fits")]
        # What does not fit may still be run: the one that lacks least.
        if bytes_ < least:
            least, found = bytes_, values
    if found is None:
        raise InputError(
            f"no plan of batch {given['batch']} on {machine.npus:,} devices is possible: "
            f"{problem or why_none(model, machine, given)}"
        )
    return found, [_sentence(given, found, open_, "no plan that was tried fits, this one lacks least")]


def unchosen(given: Mapping[str, Any]) -> list[str]:
    """Return a sentence about the keys that a plan leaves at their defaults because it says how a model is shared."""
    left = [path[-1] for path in CHOSEN if _at(given, path) is None]
    if not left:
        return []
    return [
        f"{', '.join(left)} as by default, since the plan says how the model is shared: `armillary plan` with the same "
        "options finds what fits"
    ]


def _sentence(
    given: Mapping[str, Any], values: Mapping[str, Any], open_: Sequence[tuple[str, ...]], why: str
) -> str:
    texts = [f"{path[-1]} {_at(values, path)}" for path in open_ if _at(values, path) not in (None, 1)]
    virtual = _at(values, VIRTUAL)
    texts += [f"{virtual} virtual stages"] if virtual and _at(given, VIRTUAL) is None else []
    return f"{', '.join(texts) or 'one rank holds the model'}: {why}, `armillary plan` finds the fastest"


def _at(values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = values
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
