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

    A step follows the one before it in its list, unless `after` names others ("" is the input of the list), so that
    independent kernels and communication overlap.

    Attributes:
        name: Unique in its list.
        flops: Operations of the kernel's GEMMs (2 per multiply-add); 0 for memory-bound kernels.
        bytes: Bytes that the kernel reads and writes.
        precision: Precision of its GEMMs.
        collective: Makes the step a collective over `axes` of `size` bytes, as Chakra counts `comm_size`.
        axes: Axis set of groups (`RankGrid.members`); for a message, the axis along which it is sent.
        size: Bytes of the communication.
        shift: Makes the step a message to the rank `shift` along `axes`, and one from the opposite side.
        pace: Thousandths of the links' bandwidth that a kernel reaches which sends itself; 0: a library sends.
        splits: Bytes to each member of an uneven all-to-all; their sum is `size`.
        after: Names of the steps of the same list that it waits for; None: the step before.
        gemms: The GEMMs of a kernel that does nothing else, including padding of groups.
        attention: Shape of a fused attention kernel.
        synchronises: Whether the CPU reads a result of the steps before it, and issues this one only then.
        scaling: Recipe by which other kernels have quantised the operands of its GEMMs; "": it finds or casts them.
        looped: Kernels of a loop over experts, one for each or more, which the CPU issues one by one; 0: there is none.
        gap: ns that the device takes, whatever else it is: the step stands for what such a loop loses.
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
    pace: int = 0
    after: tuple[str, ...] | None = None
    gemms: tuple[Gemm, ...] = ()
    attention: Attention | None = None
    synchronises: bool = False
    scaling: str = ""
    looped: int = 0
    gap: int = 0

    def named(self, name: str, after: tuple[str, ...] | None) -> Step:
        """Return the same step by another name, after other steps.

        As `dataclasses.replace` does, in a fifth of its time: layers join thousands of steps for each plan.
        """
        made = object.__new__(Step)
        vars(made).update(vars(self), name=name, after=after)
        return made


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer on one rank. Equal layers of a model are one object.

    The lists start when the activation (forward) or its gradient (backward) is available, and end with the last step.
    `backward` first recomputes, then makes the gradient of the input; `weight` makes the gradients of the weights (its
    ``after`` may also name steps of `backward`; without any it starts after the whole of `backward`).

    Attributes:
        name: For people, e.g. "layer", "embedding", "head"; layers that differ have different names.
        forward: Steps.
        backward: Steps.
        weight: Steps.
        in_order: `backward` and `weight` as one list, where kernels run in the order in which a framework issues them;
            empty: a gradient of a weight runs as soon as the rank has nothing else to do.
        parameters: Parameters on this rank, by the axes over which their gradients are summed, e.g.
            {"dp+cp": n, "edp": m}; "" for none.
        frozen: Parameters that are not trained, and have neither gradients nor optimizer, by the axes over which others
            would be summed: those over which a sharding divides them.
        partial: Parameters under the first key that every rank of tp holds while it computes only a part of their
            gradients, which are therefore also summed over tp.
        saved: Bytes kept from forward to backward for one microbatch, under the recomputation in force.
        working: Most further bytes that one of the steps needs while it runs, beyond `saved`.
        back: The same of the backward pass, which frees what is saved as it goes; None: as `working`.
        shapes: Inputs and outputs of weights whose gradients GEMMs accumulate: Transformer Engine returns a dummy
            gradient for each shape, and keeps it.
        low: Parameters that GEMMs read in a precision below that in which they are kept.
        boundary: Bytes of the activation passed to the next layer, on this rank.
        cache: Bytes kept for later tokens in inference (keys and values).
    """

    name: str
    forward: tuple[Step, ...]
    backward: tuple[Step, ...] = ()
    weight: tuple[Step, ...] = ()
    parameters: Mapping[str, int] = field(default_factory=dict)
    partial: int = 0
    saved: int = 0
    working: int = 0
    back: int | None = None
    shapes: frozenset[tuple[int, int]] = frozenset()
    low: int = 0
    boundary: int = 0
    cache: int = 0
    in_order: tuple[Step, ...] = ()
    frozen: Mapping[str, int] = field(default_factory=dict)

    @property
    def held(self) -> dict[str, int]:
        """Parameters on this rank, trained or not, by axes."""
        axes = dict.fromkeys((*self.parameters, *self.frozen))
        return {each: self.parameters.get(each, 0) + self.frozen.get(each, 0) for each in axes}

    @property
    def flops(self) -> int:
        """Operations of forward, backward and recomputation."""
        return sum(step.flops for steps in (self.forward, self.backward, self.weight) for step in steps)
