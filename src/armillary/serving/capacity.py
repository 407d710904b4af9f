"""How many blocks of keys and values fit beside the weights, as vLLM finds it: what a share of the memory leaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from armillary.base.errors import InputError
from armillary.base.units import format_bytes
from armillary.workload.layers.of_model import inference_layers
from armillary.workload.memory.inference import serving
from armillary.workload.models import Model
from armillary.workload.plan.schema import Plan


@dataclass(frozen=True)
class Capacity:
    """Memory of a device of a replica, in bytes.

    Attributes:
        device: All of it.
        share: Of it that the engine may use.
        weights: Of the model on this device.
        working: What a step of the most tokens needs besides, with the device's context and buffers of NCCL.
        per_token: Keys and values of a token, on average over a sequence.
        block: Tokens of a block.
    """

    device: int
    share: float
    weights: int
    working: int
    per_token: float
    block: int

    @cached_property
    def cache(self) -> int:
        """Bytes for keys and values; may be negative."""
        return int(self.device * self.share) - self.weights - self.working

    @property
    def blocks(self) -> int:
        """Blocks of keys and values; at least 0."""
        return max(0, int(self.cache // (self.per_token * self.block)))


def capacity_of(
    model: Model, plan: Plan, device: int, share: float, *, budget: int, block: int, tokens: int
) -> Capacity:
    """Return how the memory of a device is used.

    Args:
        model: A decoder.
        plan: Of inference, without pipeline stages.
        device: Bytes of its memory.
        share: Of it that the engine may use.
        budget: Most tokens of a step.
        block: Tokens of a block.
        tokens: Of a usual sequence: windows and linear layers keep less of longer ones.

    Raises:
        InputError: the plan is impossible for the model, or there is no room for a block.
    """
    layers = inference_layers(
        model, plan, tokens=min(budget, tokens), context=tokens, batch=max(1, budget // tokens)
    )
    # The allocator's gaps are given back before the cache is laid out.
    held = serving([layers], plan, 0, 0, fragmentation=0.0)
    weights = int(held.timeline["weights"][0])
    # Logits are those of the last tokens of sequences only.
    one = inference_layers(model, plan, tokens=1, context=tokens, batch=1)
    found = Capacity(
        device, share, weights, held.peak - weights + held.outside.total,
        sum(layer.cache for layer in one) / tokens, block,
    )  # fmt: skip
    if found.blocks < 1:
        raise InputError(
            f"{model.name} does not fit: of {format_bytes(device)} of a device {100 * share:g} % may be used, weights "
            f"take {format_bytes(weights)} and a step of {budget:,} tokens {format_bytes(found.working)}, which leaves "
            f"no room for keys and values; expected a larger tp, weights in fewer bits, or a larger memory fraction"
        )
    return found
