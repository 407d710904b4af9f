"""Pipeline stages of a replica: parts of the layers on devices of their own, which batches go through in turn.

As many batches run as there are stages, each with requests of its own (vLLM, ``--pipeline-parallel-size``). So a
replica of P stages is P lanes: each has the whole time of a step, 1/P of the requests and 1/P of the cache of all
devices, and hands hidden state and residual of its tokens from stage to stage. Lanes do not wait for each other here.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from armillary.base.errors import InputError
from armillary.compute.machine import Machine
from armillary.serving.capacity import Capacity
from armillary.serving.spread import Wanted
from armillary.serving.step_table import Ints, StepTable
from armillary.serving.transfer import Side, links_of
from armillary.workload.layers.layer import Layer
from armillary.workload.layers.of_model import inference_layers
from armillary.workload.layers.shard import divisors, near
from armillary.workload.memory.inference import weights_of
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

PASSED = 4
"""Bytes that a stage hands on for each element of a token: hidden state and residual in 16 bits."""


def check_stages(model: Decoder, machine: Machine, wanted: Wanted, tp: int) -> None:
    """Check that a replica can have pipeline stages.

    Raises:
        InputError: it cannot, or not together with what else was said.
    """
    pp = wanted.pp
    if pp == 1:
        return
    most = min(model.layers, machine.npus // tp)
    if not 1 <= pp <= most or machine.npus % (tp * pp):
        fits = [each for each in divisors(machine.npus // tp) if each <= model.layers]
        raise InputError(
            f"pp {pp}: expected a divisor of {machine.npus // tp:,}, the devices of machine {machine.name} by tp {tp}, "
            f"up to {model.layers} layers (nearest: {near(pp, fits)})"
        )
    for name, value, alone in (("dp", wanted.dp, 1), ("drafts", wanted.drafts, 0), ("ep", wanted.ep, 1)):
        if value != alone:
            raise InputError(f"pp {pp}: with {name} {value} it is not modelled, expected {name} {alone}")
    if wanted.attention_precision is not None:
        raise InputError(
            f"attention-precision {wanted.attention_precision}: with pp {pp} it is not modelled, expected none, or pp 1"
        )


def stages_of(layers: list[Layer], pp: int) -> list[list[Layer]]:
    """Return the layers of each stage, of equal numbers, and the embedding with the first, the head with the last."""
    inner = layers[1:-1]
    ends = [len(inner) * at // pp for at in range(pp + 1)]
    parts = [inner[begin:end] for begin, end in pairwise(ends)]
    parts[0] = [layers[0], *parts[0]]
    parts[-1] = [*parts[-1], layers[-1]]
    return parts


def of_stages(
    capacity: Capacity, model: Decoder, plan: Plan, pp: int, tokens: int, experts: float | None
) -> Capacity:
    """Return the memory of the device of the fullest stage; blocks are those of a lane.

    Args:
        capacity: Of a device with all layers.
        model: The model.
        plan: Of a lane.
        pp: Stages.
        tokens: Of a usual sequence.
        experts: Bits of a weight of routed experts; None: like all others.
    """
    parts = stages_of(inference_layers(model, plan, tokens=1, context=tokens, batch=1), pp)
    found = [
        replace(
            capacity,
            weights=weights_of(part, plan, experts),
            # All lanes have keys and values on the device.
            per_token=pp * sum(layer.cache for layer in part) / tokens,
        )
        for part in parts
    ]
    least = min(found, key=lambda each: each.blocks)
    if least.blocks < 1:
        raise InputError(
            f"{model.name} does not fit with pp {pp}: expected a larger tp or pp, or weights in fewer bits"
        )
    return least


def passed_ns(model: Decoder, machine: Machine, tp: int, pp: int, tokens: int) -> Ints:
    """Return (tokens + 1) ns in which steps of so many tokens are handed from stage to stage, in all."""
    sizes = PASSED * model.hidden * np.arange(tokens + 1, dtype=np.int64)
    total = np.zeros(tokens + 1, np.int64)
    for stage in range(pp - 1):
        links = links_of(machine.platform, Side(stage * tp, 1, tp, 1), Side((stage + 1) * tp, 1, tp, 1))
        # Each device sends its share of the tokens, which those of a stage hold alike.
        total += np.array([links.alone(int(each)) for each in sizes])
    total[0] = 0
    return total


def with_stages(table: StepTable, model: Decoder, machine: Machine, tp: int, pp: int) -> StepTable:
    """Return times of steps that go through stages."""
    return replace(table, dense=table.dense + passed_ns(model, machine, tp, pp, len(table.dense) - 1))
