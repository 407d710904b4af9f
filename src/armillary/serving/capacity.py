"""How many blocks of keys and values fit beside the weights, as each engine finds it.

vLLM gives the cache what a share of the memory leaves beside weights and a step; SGLang gives weights and cache a share
and steps the rest; TensorRT-LLM gives the cache a share of what weights and a step leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from armillary.base.errors import InputError
from armillary.base.units import format_bytes
from armillary.workload.layers.layer import Precision
from armillary.workload.layers.of_model import inference_layers
from armillary.workload.memory.inference import serving, weights_of
from armillary.workload.models import Model, parameters
from armillary.workload.plan.numbers import stored, stores
from armillary.workload.plan.schema import Plan

SHARE = 0.9
"""Of vLLM and TensorRT-LLM by default."""


@dataclass(frozen=True)
class Capacity:
    """Memory of a device of a replica, in bytes.

    Attributes:
        device: All that programs find.
        share: As the engine takes it, see above.
        engine: Of `armillary.serving.kernels.ENGINES`.
        weights: Of the model on this device.
        working: What a step of the most tokens needs besides, with the device's context and buffers of NCCL.
        per_token: Keys and values of a token, on average over a sequence.
        block: Tokens of a block.
    """

    device: int
    share: float
    engine: str
    weights: int
    working: int
    per_token: float
    block: int

    @cached_property
    def cache(self) -> int:
        """Bytes for keys and values; may be negative."""
        if self.engine == "trtllm":
            return int((self.device - self.weights - self.working) * self.share)
        if self.engine == "sglang":
            return min(int(self.device * self.share), self.device - self.working) - self.weights
        return int(self.device * self.share) - self.weights - self.working

    @property
    def blocks(self) -> int:
        """Blocks of keys and values; at least 0."""
        return max(0, int(self.cache // (self.per_token * self.block)))


def usual_share(engine: str, device: int, budget: int, sequences: int, tp: int) -> float:
    """Return the share of the memory that an engine takes if nothing is said.

    SGLang leaves free what it expects of steps (server_args.py: 512 MB, 1.5 MB a token of a chunk, 1/8 GiB a device
    of tp, 2 MB a sequence of the largest graph), 10 GiB at least.
    """
    if engine != "sglang":
        return SHARE
    largest = min(sequences, 256 if tp < 4 else 512)
    free = 512 * 2**20 + budget * 3 * 2**19 + tp * 2**27 + largest * 2**21
    return max(0.1, 1 - max(free, 10 * 2**30) / device)


def capacity_of(
    model: Model,
    plan: Plan,
    device: int,
    share: float,
    *,
    budget: int,
    block: int,
    tokens: int,
    engine: str = "vllm",
    experts: float | None = None,
    copies: float = 1.0,
    attention: Precision | None = None,
    least: bool = True,
) -> Capacity:
    """Return how the memory of a device is used.

    Args:
        model: A decoder.
        plan: Of inference, without pipeline stages.
        device: Bytes of its memory.
        share: As the engine takes it.
        budget: Most tokens of a step.
        block: Tokens of a block.
        tokens: Of a usual sequence: windows and linear layers keep less of longer ones.
        engine: Whose cache it is.
        experts: Bits of a weight of routed experts; None: like all others.
        copies: Experts on all devices, for each of the model.
        attention: Precision of the weights of its projections; None: like all others.
        least: Whether a block must fit.

    Raises:
        InputError: the plan is impossible for the model, or there is no room for a block.
    """
    layers = inference_layers(
        model, plan, tokens=min(budget, tokens), context=tokens, batch=max(1, budget // tokens)
    )
    # The allocator's gaps are given back before the cache is laid out.
    held = serving([layers], plan, 0, 0, fragmentation=0.0)
    inside = held.peak - int(held.timeline["weights"][0])
    weights = weights_of(layers, plan, experts, copies)
    if attention:
        count = parameters(model).attention // plan.parallel.tp
        usual = stores(plan).weights if experts is None else plan.numbers.compute
        weights += stored(count, attention) - stored(count, usual)
    # Logits are those of the last tokens of sequences only.
    one = inference_layers(model, plan, tokens=1, context=tokens, batch=1)
    found = Capacity(
        device, share, engine, weights, inside + held.outside.total,
        sum(layer.cache for layer in one) / tokens, block,
    )  # fmt: skip
    if least and found.blocks < 1:
        raise InputError(
            f"{model.name} does not fit: of {format_bytes(device)} of a device {100 * share:.3g} % may be used, "
            f"weights take {format_bytes(weights)} and a step of {budget:,} tokens {format_bytes(found.working)}, "
            "which leaves no room for keys and values; expected a larger tp, weights in fewer bits, or a larger memory "
            "fraction"
        )
    return found
