"""The layers of a residual network: the stem, every block, and the classifier."""

from __future__ import annotations

from dataclasses import replace

from armillary.trace.gemm import Gemm
from armillary.workload.layers.layer import Layer
from armillary.workload.layers.nets.kernels import Kernel, Kernels, check_plan, gemm, product
from armillary.workload.models.operations import HEAD
from armillary.workload.models.resnet import convolutions, features
from armillary.workload.models.schema import Conv2d, Resnet
from armillary.workload.plan.schema import Plan


def resnet_layers(model: Resnet, plan: Plan) -> list[Layer]:
    """Return the layers for one microbatch; blocks of one shape are one object.

    A batch norm and the ReLU after it are one kernel, which keeps only its input and finds the sign again. It reads
    the input twice, for the statistics and for the result, and likewise input and gradient in the backward pass. At
    the end of a block it adds the shortcut.

    Raises:
        InputError: the plan does not go with such a model.
    """
    check_plan(model, plan)
    made = Kernels(plan)
    batch = plan.microbatch
    blocks: dict[str, list[tuple[str, Conv2d]]] = {}
    for name, each in convolutions(model):
        # Names are those of `models.resnet.convolutions`: ``stage 1 block 2 reduce``; the 3x3 one has no role.
        block, _, role = name.partition(" block ")
        number, _, role = role.partition(" ")
        blocks.setdefault(f"{block} block {number}" if number else block, []).append((role or "middle", each))
    layers: list[Layer] = []
    alike: dict[tuple[tuple[str, Conv2d], ...], Layer] = {}
    for name, convs in blocks.items():
        key = tuple(convs)
        if key not in alike:
            alike[key] = (
                _stem(made, convs[0][1], batch) if name == "stem" else _block(made, name, convs, batch)
            )
        layers.append(alike[key])
    return [*layers, _head(made, model, convs[-1][1].pixels, batch)]


def convolution(name: str, each: Conv2d, batch: int, part: str = "") -> Kernel:
    """Return the kernel of a convolution."""
    return product(
        name,
        batch * each.weights * each.pixels,
        batch * each.inputs * each.height * each.width,
        each.weights,
        batch * each.outputs * each.pixels,
        bias=each.bias * each.outputs,
        part=part,
        # The implicit GEMM: output pixels by output channels, summed over the window and the inputs of a group.
        shape=Gemm(
            batch * each.pixels, each.outputs // each.groups, each.weights // each.outputs, each.groups
        ),
    )


def _norm(name: str, each: Conv2d, batch: int) -> Kernel:
    size = batch * each.outputs * each.pixels
    return Kernel(f"{name} norm", 3 * size, 5 * size, parameters=2 * each.outputs, saved=size, held=2 * size)


def _stem(made: Kernels, each: Conv2d, batch: int) -> Layer:
    size = batch * each.outputs * each.pixels
    # Halved by the convolution and again by the pooling, rounded up.
    half = ((each.height + 1) // 2 + 1) // 2
    pooled = batch * each.outputs * half**2
    # The pooling keeps, beside its input, which of nine pixels was the largest.
    pool = Kernel(
        "max pooling", size + 2 * pooled, 2 * pooled + size, saved=size + pooled, held=size + pooled
    )
    kernels = [convolution("convolution", each, batch), _norm("convolution", each, batch), pool]
    return made.layer("stem", kernels, inputs=batch * each.inputs * each.height * each.width, outputs=pooled)


def _block(made: Kernels, name: str, convs: list[tuple[str, Conv2d]], batch: int) -> Layer:
    # So that the last kernel is the norm of ``expand``, which adds the shortcut; sorting is stable.
    shortcut_first = sorted(convs, key=lambda conv: conv[0] != "shortcut")
    kernels = []
    for role, each in shortcut_first:
        kernels += [convolution(role, each, batch), _norm(role, each, batch)]
    last, first = kernels[-1], dict(convs)["reduce"]
    inputs = batch * first.inputs * first.height * first.width
    # Forward it reads the shortcut; backward it writes the gradient for it, which is added to that of the input.
    kernels[-1] = replace(
        last, forward=last.forward + last.saved, backward=last.backward + last.saved + 2 * inputs
    )
    return made.layer(name, kernels, inputs=inputs, outputs=last.saved)


def _head(made: Kernels, model: Resnet, pixels: int, batch: int) -> Layer:
    width, classes = features(model), model.classes
    size, scores = batch * width * pixels, batch * classes
    pool = Kernel(
        "average pooling", size + batch * width, size + batch * width, held=size + batch * width, part=HEAD
    )
    loss = Kernel("softmax", 3 * scores, 2 * scores, saved=scores, held=2 * scores, part=HEAD)
    classifier = gemm("classifier", batch, width, classes, bias=classes, part=HEAD)
    return made.layer("head", [pool, classifier, loss], inputs=size, outputs=scores)
