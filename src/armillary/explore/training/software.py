"""Training software by name: what its plans are made of, and what it adds to kernels and collectives.

A data file ``software/NAME.yaml`` has constants, which were fitted to measured steps, and under ``plan`` what a plan is
unless it says otherwise. One with ``base`` adds to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from armillary.base.errors import InputError, nearest, one_of
from armillary.compute.machine import Machine
from armillary.explore.training.constants import TERMS
from armillary.explore.training.fitted import UNKNOWN, Fitted, constants_of, document_of, stack_names
from armillary.platform.files.preset import merged

NAMES = (
    "megatron-core", "nemo", "torchtitan", "fsdp2", "llm-foundry", "deepspeed", "maxtext", "megatron-lm-2022",
)  # fmt: skip
"""What a user may name; other files are of single sets of measurements."""
TRANSFORMER_ENGINE = ("megatron-core", "nemo")
"""Those whose GEMMs in fp8 and fp4 run in Transformer Engine, by one of its recipes."""
SHARDED = ("fsdp", "hsdp", "zero-3")
"""Shardings of weights, which PyTorch's own software has and Megatron is rarely run with."""


@dataclass(frozen=True)
class Software:
    """A training software on a device.

    Attributes:
        name: Its name.
        title: For people.
        plan: What a plan is unless it says otherwise.
        fitted: Its constants on the device.
        base: The software whose constants it takes, as it has none; "": it has its own.
    """

    name: str
    title: str
    plan: Mapping[str, Any]
    fitted: Fitted
    base: str = ""


def software_of(name: str, device: str) -> Software:
    """Return a training software on a device.

    Args:
        name: One of `NAMES`, or a file of ``armillary calibrate``.
        device: Name of the GPU's constants.

    Raises:
        InputError: there is none of that name, or its file is malformed.
    """
    if name not in stack_names() and not name.endswith((".yaml", ".yml")):
        raise InputError(
            f"no software '{name}'{nearest(name, NAMES)}, expected {one_of(NAMES)}, or a file of `armillary calibrate`"
        )
    data = document_of(name).data
    borrowed = "" if data.get("devices") else str(data.get("base") or "")
    return Software(
        name, str(data.get("title", name)), software_plan(name), constants_of(name, device), borrowed
    )


def software_on(name: str, machine: Machine) -> Software:
    """Return a training software on a machine, see `software_of`.

    Where messages are moved nothing slows collectives as a whole: the software has no terms there, and how far off its
    steps are is not known.
    """
    found = software_of(name, machine.device)
    if not machine.moves_messages:
        return found
    kernels = found.fitted.constants.changed(dict.fromkeys(TERMS, 0.0))
    return replace(found, fitted=replace(found.fitted, constants=kernels, spread=UNKNOWN))


def software_plan(name: str) -> dict[str, Any]:
    """Return what a plan of a software is unless it says otherwise."""
    data = document_of(name).data
    base = data.get("base")
    found: dict[str, Any] = merged(software_plan(base) if base else {}, data.get("plan") or {})
    return found


def usual(software: str, plan: Mapping[str, Any]) -> str:
    """Return the software that a plan is run with if nobody says: that of the machine, or one that shards weights."""
    sharding = (plan.get("data") or {}).get("sharding") if isinstance(plan.get("data"), Mapping) else None
    if sharding in SHARDED and software in ("", "megatron-core", "nemo"):
        return "torchtitan"
    return software or "megatron-core"
