"""Low-rank adapters (LoRA) of requests: two further kernels beside each adapted projection, and their weights.

Engines compute the tokens of all adapters of a step together (S-LoRA, Punica): one kernel multiplies each token by A of
its adapter, one by B, and adds what comes to the result of the projection. Both read the weights of each adapter that a
step has. All adapters stay on the device, and requests choose them equally often, at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from armillary.base import portable
from armillary.base.errors import InputError
from armillary.base.units import format_bytes
from armillary.serving.capacity import Capacity
from armillary.workload.layers.layer import Step
from armillary.workload.layers.of_model import inference_layers
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

PROJECTIONS = ("qkv", "out", "down", "q.up", "mlp.up", "mlp.down", "mixer.in", "mixer.out")
"""GEMMs that have adapters: projections of attention, linear layers and dense feed-forward layers, no experts."""
MOST, MOST_RANK, USUAL_RANK = 4096, 512, 16
ELEMENT = 2
"""Bytes of a weight of an adapter, and of an element between both kernels."""


@dataclass(frozen=True)
class Adapters:
    """Adapters of a service.

    Attributes:
        count: How many there are.
        rank: Columns of A, rows of B.
    """

    count: int
    rank: int

    def touched(self, tokens: int) -> float:
        """Return how many adapters so many tokens have on average, if each is of a request of its own."""
        return self.count * (1 - portable.power(1 - 1 / self.count, float(tokens)))

    def beside(self, steps: Sequence[Step]) -> list[Step]:
        """Return the kernels of a layer with those of its adapters behind each projection."""
        found = []
        for step in steps:
            found.append(step)
            name = step.name.removesuffix(".gemm")
            if name == step.name or name not in PROJECTIONS:
                continue
            gemm = step.gemms[0]
            half = self.touched(gemm.m) * self.rank * ELEMENT
            shrink = half * gemm.k + ELEMENT * gemm.m * (gemm.k + self.rank)
            expand = half * gemm.n + ELEMENT * gemm.m * (self.rank + 2 * gemm.n)
            found += [Step(f"{name}.lora.a", bytes=int(shrink)), Step(f"{name}.lora.b", bytes=int(expand))]
        return found

    def held(self, capacity: Capacity, model: Decoder, plan: Plan, stages: int) -> Capacity:
        """Return the memory of a device that keeps them, too; of several pipeline stages it has those of its layers.

        Raises:
            InputError: they leave no room for a block.
        """
        size = 0
        for layer in inference_layers(model, plan, tokens=1, context=1, batch=1):
            for step in layer.forward:
                if step.name.endswith(".gemm") and step.name.removesuffix(".gemm") in PROJECTIONS:
                    size += self.rank * (step.gemms[0].n + step.gemms[0].k)
        found = replace(capacity, weights=capacity.weights - (-self.count * ELEMENT * size // stages))
        if found.blocks < 1:
            raise InputError(
                f"lora {self.count}: adapters of {format_bytes(found.weights - capacity.weights)} leave no room for "
                "keys and values, expected fewer or of lower lora-rank"
            )
        return found

    def note(self) -> str:
        """Return what is assumed of them."""
        return (
            f"{self.count} adapters of rank {self.rank} stay on the device, in bf16, and requests choose them equally "
            "often; two kernels beside each projection, but of experts, move their bytes at the rate of the memory, "
            "and were not measured, so means have no interval; requests that begin alike have the same adapter"
        )


def adapters_of(count: int, rank: int | None) -> Adapters | None:
    """Return the adapters of a service; None: there are none.

    Raises:
        InputError: a number is out of range, or a rank is given without adapters.
    """
    if not 0 <= count <= MOST:
        raise InputError(f"lora {count}: expected a number of adapters from 0 to {MOST:,}")
    if rank is not None and not count:
        raise InputError(f"lora-rank {rank}: expected it with lora above 0 only, a number of adapters")
    if rank is not None and not 1 <= rank <= MOST_RANK:
        raise InputError(f"lora-rank {rank}: expected a whole number from 1 to {MOST_RANK}")
    return Adapters(count, rank or USUAL_RANK) if count else None
