"""Bytes of one parameter in each of its roles."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from armillary.workload.layers.layer import Precision
from armillary.workload.plan.schema import ELEMENT, Plan

FP32 = 4
"""Bytes of a gradient as the optimizer reads it, and of a master copy."""
MOMENTS = {"adam": 2, "momentum": 1, "sgd": 0, "none": 0}
"""fp32 numbers that the optimizer keeps per weight."""


BITS = {
    "fp32": Fraction(32),
    "bf16": Fraction(16),
    "fp8": 8 + Fraction(32, 128 * 128),
    "fp4": 4 + Fraction(8, 32),
}
"""Bits of a stored number with its share of a scale: in fp8 an fp32 scale per 128 x 128 weights (DeepSeek-V3, arXiv
2412.19437, section 3.3.2), in fp4 an 8-bit scale per 32 (MXFP4, OCP Microscaling Formats 1.0)."""


@dataclass(frozen=True)
class Stores:
    """Storage precisions of inference; training keeps everything in the precision of its activations."""

    weights: Precision
    embeddings: Precision
    cache: Precision
    activations: Precision


def stores(plan: Plan) -> Stores:
    """Return the precisions of a plan of inference, defaults filled in."""
    given = plan.numbers
    # Cache and activations stay in bf16 even if GEMMs are fp8: engines quantise operands on the way in.
    usual: Precision = "fp32" if given.compute == "fp32" else "bf16"
    weights = given.weights or given.compute
    return Stores(weights, given.embeddings or weights, given.cache or usual, given.activations or usual)


def stored(count: int, precision: Precision) -> int:
    """Return the bytes of `count` stored numbers and their scales, rounded up."""
    return ceil(count * BITS[precision] / 8)


def weight(plan: Plan) -> int:
    """Return the bytes of a weight as kernels use it in training; fp8 GEMMs work on weights kept in bf16."""
    return ELEMENT["fp32" if plan.numbers.compute == "fp32" else "bf16"]


def dispatch(plan: Plan) -> int:
    """Return the bytes of an element sent to experts: DeepSeek-V3 sends fp8 there, and bf16 back (§3.3.2)."""
    # Never wider than the activations themselves.
    return min(ELEMENT[plan.experts.dispatch or plan.numbers.compute], weight(plan))


def gradient(plan: Plan) -> int:
    """Return the bytes of a gradient."""
    return ELEMENT[plan.numbers.gradients]


def state(plan: Plan) -> int:
    """Return the bytes of optimizer state per weight: moments, and an fp32 copy of a weight that is not fp32."""
    if plan.optimizer == "none":
        return 0
    # True counts as one number: the master copy.
    return 4 * (MOMENTS[plan.optimizer] + (plan.numbers.compute != "fp32"))


def saved(plan: Plan) -> int:
    """Return the bytes per trained weight of a checkpoint: the weight as kernels use it, and the optimizer's states.

    The shards of FSDP are the master copy, and no other is written.
    """
    if plan.data.sharding in ("fsdp", "hsdp"):
        return FP32 + 4 * MOMENTS[plan.optimizer]
    return weight(plan) + state(plan)


def norm_traffic(plan: Plan) -> int:
    """Return the bytes per updated weight that the norm of gradients moves: it reads them in fp32.

    Megatron-LM's distributed optimizer first widens what was reduced in bf16; FSDP's gradients are as its shards.
    """
    widens = gradient(plan) < _read(plan) and plan.data.sharding not in ("fsdp", "hsdp")
    return _read(plan) + (gradient(plan) + FP32 if widens else 0)


def traffic(plan: Plan, *, clips: bool = True) -> int:
    """Return the bytes per weight that an update moves.

    Clipping reads and writes gradients; the update reads them, and reads and writes states; a copy from masters to the
    weights of kernels reads one and writes the other. FSDP casts its shards as it gathers them instead. The kernels of
    the three follow each other, and are one node.

    Args:
        plan: The plan.
        clips: Whether the norm is known by then; asynchronous pipelines have none.
    """
    clip = 2 * _read(plan) if clips and plan.clip else 0
    # Without a master copy the update reads and writes the weights themselves.
    single = plan.numbers.compute == "fp32"
    own = 2 * weight(plan) if single else 0
    copy = 0 if single or plan.data.sharding in ("fsdp", "hsdp") else FP32 + weight(plan)
    return clip + _read(plan) + 2 * state(plan) + own + copy


def _read(plan: Plan) -> int:
    """Return the bytes of a gradient as the optimizer reads it; one without moments reads what there is."""
    return FP32 if MOMENTS[plan.optimizer] else gradient(plan)


def cleared(plan: Plan) -> int:
    """Return the bytes per parameter of a rank that are set to 0 for the next step: buffers to which GEMMs add."""
    kept = plan.numbers.fused and plan.data.sharding in ("ddp", "zero-1")
    return gradient(plan) if plan.data.clear and kept else 0
