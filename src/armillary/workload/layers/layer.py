"""One layer of a sharded model on one rank for one microbatch: its steps, and the memory that it keeps.

Layers are the common language between models, which make them, and schedules, memory and traces, which use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from armillary.trace import CollectiveType
from armillary.trace.attention import Attention
from armillary.trace.gemm import Gemm

Precision = Literal["fp32", "bf16", "fp8", "fp4"]


@dataclass(frozen=True)
class Step:
    """A kernel, or a collective or message between ranks.

    A step follows the one before it in its list, unless `after` names others ("" is the input of the list): so
    kernels and communication that do not need each other overlap.

    Attributes:
        name: Unique in its list.
        flops: Of the GEMMs of a kernel (2 per multiply-add); 0 for what is bound by memory.
        bytes: That the kernel reads and writes.
        precision: Of its GEMMs.
        collective: Makes the step a collective over `axes` of `size` bytes, as Chakra counts `comm_size`.
        axes: Axis set of groups (`RankGrid.members`); of a message the axis that it goes along.
        size: Bytes.
        shift: Makes the step a message to the rank `shift` along `axes`, and one from the opposite side.
        splits: Of an all-to-all of uneven parts: bytes to each member; their sum is `size`.
        after: Names of steps of the same list that it waits for; None: the step before.
        gemms: The GEMMs of a kernel, where it is nothing else; padding of groups included.
        attention: Shape of a kernel that is fused attention.
    """

    name: str
    flops: int = 0
    bytes: int = 0
    precision: Precision = "bf16"
    collective: CollectiveType | None = None
    axes: str = ""
    size: int = 0
    shift: int = 0
    splits: tuple[int, ...] = ()
    after: tuple[str, ...] | None = None
    gemms: tuple[Gemm, ...] = ()
    attention: Attention | None = None


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer on one rank. Equal layers of a model are one object.

    The lists start where the activation (forward) or its gradient (backward) is there, and end with the last step.
    `backward` makes the gradient of the input, with what is recomputed first; `weight` the gradients of the weights
    (its ``after`` may also name steps of `backward`; it starts after the whole of `backward` where it names none).

    Attributes:
        name: For people, e.g. "layer", "embedding", "head"; layers that differ have different names.
        forward: Steps.
        backward: Steps.
        weight: Steps.
        parameters: Of this rank, by the axes over which their gradients are summed, e.g. {"dp+cp": n, "edp": m};
            "" is none.
        partial: Of the parameters under the first key those that every rank of tp holds, while each makes only a part
            of their gradients: these are summed over tp, too.
        saved: Bytes kept from forward to backward for one microbatch, under the recomputation in force.
        working: Bytes that are needed besides while one of the steps runs, at most.
        boundary: Bytes of the activation that goes on to the next layer, on this rank.
        cache: Bytes that stay for later tokens in inference (keys and values).
    """

    name: str
    forward: tuple[Step, ...]
    backward: tuple[Step, ...] = ()
    weight: tuple[Step, ...] = ()
    parameters: Mapping[str, int] = field(default_factory=dict)
    partial: int = 0
    saved: int = 0
    working: int = 0
    boundary: int = 0
    cache: int = 0

    @property
    def flops(self) -> int:
        """Operations of forward, backward and recomputation."""
        return sum(step.flops for steps in (self.forward, self.backward, self.weight) for step in steps)
