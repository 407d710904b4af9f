"""What a plan leaves open is chosen, and said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from armillary.base.errors import InputError
from armillary.explore.sweep.memory import needed
from armillary.explore.training.candidates import candidates
from armillary.explore.training.machine import Machine
from armillary.platform.files.preset import merged
from armillary.workload.models import Model, default_sequence
from armillary.workload.pipeline.tasks import DEFERRING
from armillary.workload.plan.schema import Plan

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


def completed(given: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a plan with what a software does unless they say otherwise.

    Raises:
        InputError: there is no batch.
    """
    if given.get("batch") is None:
        raise InputError("plan: missing key 'batch': samples of one step, over all replicas")
    schedule = (given.get("pipeline") or {}).get("schedule")
    if schedule in DEFERRING and "parallel" in usual:
        # Their gradients of weights follow on their own, so that no order within a backward pass is left to choose.
        own = {key: value for key, value in usual["parallel"].items() if key != "backward"}
        usual = {**usual, "parallel": own}
    whole: dict[str, Any] = merged(usual, given)
    return whole


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
            problem = str(error)
            continue
        if bytes_ <= capacity:
            return values, [_sentence(values, open_, "the simplest plan that fits")]
        # What does not fit may still be run: the one that lacks least.
        if bytes_ < least:
            least, found = bytes_, values
    if found is None:
        raise InputError(
            f"no plan of batch {given['batch']} on {machine.npus:,} devices is possible: "
            f"{problem or 'the batch is no multiple of any number of replicas'}"
        )
    return found, [_sentence(found, open_, "no plan that was tried fits, this one lacks least")]


def _sentence(values: Mapping[str, Any], open_: Sequence[tuple[str, ...]], why: str) -> str:
    texts = [f"{path[-1]} {_at(values, path)}" for path in open_ if _at(values, path) not in (None, 1)]
    virtual = (values.get("pipeline") or {}).get("virtual")
    texts += [f"{virtual} virtual stages"] if virtual else []
    return f"{', '.join(texts) or 'one rank holds the model'}: {why}, `armillary plan` finds the fastest"


def _at(values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = values
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
