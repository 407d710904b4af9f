"""Kernels as counts of elements, and layers that run them one after another.

Activations and weights are of the type of the GEMMs (of bf16 where these are fp8), weight gradients of their
own. Every product with weights takes the same operations for the gradient of its input as for that of its weights, also
the first one of a model, whose input needs none: sums are those of `armillary.workload.models.operations`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armillary.base.errors import InputError
from armillary.trace.gemm import Gemm
from armillary.workload.layers.layer import Layer, Step
from armillary.workload.models.operations import HEAD, SCORES, flops
from armillary.workload.models.schema import Model
from armillary.workload.plan.numbers import gradient, weight
from armillary.workload.plan.schema import Plan

REPLICAS = "dp+cp"
"""Ranks that have the same weights."""


@dataclass(frozen=True)
class Kernel:
    """One kernel of the forward pass and its kernels of the backward pass; sizes are in elements.

    Attributes:
        name: Unique in its layer.
        forward: Elements read and written by the forward pass.
        backward: Elements read and written for the gradient of the input; 0 if it has none.
        operands: Activations and gradients read for the gradient of the weights.
        weights: Weights with a gradient, which is added to that of earlier microbatches.
        parameters: Weights, and biases and scales whose gradients other kernels compute in passing.
        saved: Elements kept for the backward pass; an output counts with the kernel whose input it is.
        held: Input and output, whose gradients exist at the same time.
        macs: Multiply-adds of the forward pass.
        both: Whether it multiplies two activations, so that the gradient of the input takes twice the operations.
        part: Part of the model, as `operations.flops` names it; decides whether it is recomputed.
        masks: Bytes of masks, which are also kept.
        shape: The GEMM that the kernel computes, if any; the implicit one of a convolution.
    """

    name: str
    forward: int
    backward: int = 0
    operands: int = 0
    weights: int = 0
    parameters: int = 0
    saved: int = 0
    held: int = 0
    macs: int = 0
    both: bool = False
    part: str = ""
    masks: int = 0
    shape: Gemm | None = None


def product(
    name: str,
    macs: int,
    inputs: int,
    weights: int,
    outputs: int,
    *,
    bias: int = 0,
    reads: int = 1,
    besides: int = 0,
    saved: int | None = None,
    part: str = "",
    shape: Gemm | None = None,
) -> Kernel:
    """Return a product of activations with weights.

    Args:
        name: Of the kernel.
        macs: Multiply-adds.
        inputs: Elements.
        weights: Elements.
        outputs: Elements.
        bias: Further parameters.
        reads: How often all weights are read.
        besides: Elements that element-wise work in the same kernel reads and writes, each way.
        saved: Elements; absent: the inputs.
        part: See `Kernel`.
        shape: See `Kernel`.
    """
    operands = inputs + outputs
    moved = operands + reads * weights + besides
    # The gradient of the weights needs the input; a caller whose input is kept elsewhere says so.
    kept = inputs if saved is None else saved
    parameters = weights + bias
    return Kernel(
        name, moved, moved, operands, weights, parameters, kept, operands, macs, part=part, shape=shape
    )


def gemm(name: str, rows: int, inputs: int, outputs: int, *, bias: int = 0, part: str = "") -> Kernel:
    """Return the product of (rows, inputs) activations with (inputs, outputs) weights; a bias costs nothing more."""
    return product(
        name,
        rows * inputs * outputs,
        rows * inputs,
        inputs * outputs,
        rows * outputs,
        bias=bias,
        part=part,
        shape=Gemm(rows, outputs, inputs),
    )


def recomputed(plan: Plan, kernel: Kernel) -> bool:
    """Return whether the backward pass runs a kernel of the forward pass again."""
    # The head is never repeated: its results are needed at once.
    if plan.recompute == "selective":
        return kernel.part == SCORES
    return plan.recompute == "full" and kernel.part != HEAD


@dataclass(frozen=True)
class Kernels:
    """Turns kernels into steps under the precision of a plan."""

    plan: Plan

    @property
    def element(self) -> int:
        """Bytes of an activation or weight."""
        return weight(self.plan)

    def forward(self, kernel: Kernel, after: tuple[str, ...] | None = None) -> Step:
        """Return the step of the forward pass."""
        gemms = (kernel.shape,) if kernel.shape else ()
        return self._step(kernel.name, 2 * kernel.macs, self.element * kernel.forward, after, gemms)

    def backward(self, kernel: Kernel, after: tuple[str, ...] | None = None) -> Step:
        """Return the step that makes the gradient of the input."""
        flops = 2 * kernel.macs * (2 if kernel.both else 1)
        gemms: tuple[Gemm, ...] = ()
        if kernel.shape:
            # Of a product of two activations both sides have a gradient.
            gemms = (kernel.shape.left(), kernel.shape.right())[: 1 + kernel.both]
        return self._step(f"{kernel.name} backward", flops, self.element * kernel.backward, after, gemms)

    def weight(self, kernel: Kernel) -> Step:
        """Return the step that makes the gradient of the weights."""
        moved = self.element * kernel.operands + 2 * gradient(self.plan) * kernel.weights
        after = (f"{kernel.name} backward",) if kernel.backward else None
        gemms: tuple[Gemm, ...] = ()
        if kernel.shape:
            # What was done one after the other is there now: one product sums over all of it.
            one = kernel.shape.right()
            gemms = (one._replace(k=one.k * one.calls, calls=1),)
        return self._step(f"{kernel.name} weight", 2 * kernel.macs, moved, after, gemms)

    def layer(self, name: str, kernels: Sequence[Kernel], *, inputs: int, outputs: int) -> Layer:
        """Return a layer that runs kernels one after the other.

        Args:
            name: Of the layer.
            kernels: In the order of the forward pass.
            inputs: Elements that full recomputation keeps.
            outputs: Elements that go on to the next layer.
        """
        again = [kernel for kernel in kernels if recomputed(self.plan, kernel)]
        backward = [self.forward(kernel) for kernel in again]
        backward += [self.backward(kernel) for kernel in reversed(kernels) if kernel.backward]
        weight = [self.weight(kernel) for kernel in reversed(kernels) if kernel.weights]
        # Full recomputation keeps the input in place of what is repeated; a layer with little to save keeps
        # that instead.
        saved, dropped = self.saved(kernels), self.saved(again)
        kept = self.element * inputs if dropped and self.plan.recompute == "full" else 0
        return Layer(
            name,
            tuple(self.forward(kernel) for kernel in kernels),
            tuple(backward),
            tuple(weight),
            {REPLICAS: sum(kernel.parameters for kernel in kernels)},
            saved=min(saved, saved - dropped + kept),
            working=self.working(kernels) + max(0, dropped - kept),
            boundary=self.element * outputs,
        )

    def saved(self, kernels: Sequence[Kernel]) -> int:
        """Return the bytes that kernels keep for the backward pass."""
        return sum(self.element * kernel.saved + kernel.masks for kernel in kernels)

    def working(self, kernels: Sequence[Kernel]) -> int:
        """Return the most bytes of gradients of activations that exist at a time."""
        return self.element * max(kernel.held for kernel in kernels)

    def _step(
        self, name: str, flops: int, size: int, after: tuple[str, ...] | None, gemms: tuple[Gemm, ...]
    ) -> Step:
        return Step(name, flops, size, self.plan.numbers.compute, after=after, gemms=gemms)


def check_plan(model: Model, plan: Plan, divided: tuple[str, ...] = ()) -> None:
    """Check the parts of a plan that depend on the kind of model.

    Args:
        model: The model.
        plan: The plan.
        divided: Those of tp, cp and ep that divide this kind of model.

    Raises:
        InputError: another of them is more than 1, or a sequence, causal mask or selective recomputation is asked of
            a model that has none.
    """
    works = " and ".join(["dp, pp" if divided else "dp", *(divided or ["pp"])])
    for axis in ("tp", "cp", "ep"):
        size = getattr(plan.parallel, axis)
        if size > 1 and axis not in divided:
            raise InputError(
                f"{axis} {size}: expected 1, '{model.name}' of kind '{model.kind}' is divided by {works} only"
            )
    for name in ("keep", "recompute_every", "compiled"):
        if name in plan.model_fields_set:
            raise InputError(
                f"{name}: '{model.name}' of kind '{model.kind}' has no such layers, expected none"
            )
    flops(model, plan.microbatch, plan.sequence, recomputation=plan.recompute, causal=plan.causal)
