"""The layers of a stack of GEMMs and convolutions."""

from __future__ import annotations

from dataclasses import replace

from armillary.base.errors import InputError
from armillary.trace import CollectiveType
from armillary.workload.layers.layer import Layer, Step
from armillary.workload.layers.nets.kernels import Kernels, check_plan, gemm
from armillary.workload.layers.nets.resnet import convolution
from armillary.workload.layers.shard import divisors, near
from armillary.workload.models.schema import Stack, StackLayer
from armillary.workload.plan.schema import Plan


def stack_layers(model: Stack, plan: Plan) -> list[Layer]:
    """Return the layers for one microbatch; repeated ones are one object.

    With tp the columns of every weight are divided: ranks all-gather the outputs and all-reduce the gradients of the
    input (column parallel, arXiv 1909.08053, section 3). Convolutions are not divided.

    Raises:
        InputError: the plan does not go with such a model.
    """
    check_plan(model, plan, ("tp",))
    made: dict[tuple[str, StackLayer], Layer] = {}
    names: set[str] = set()
    layers: list[Layer] = []
    for number, each in enumerate(model.layers):
        part = each.name or f"layer {number}"
        # Layers that differ in their place only are one object; a name used twice for different ones gets a number.
        key = (each.name or "", each.model_copy(update={"name": None, "repeat": 1}))
        if key not in made:
            name = f"{part} ({number})" if part in names else part
            names.add(name)
            made[key] = _layer(each, name, part, plan)
        layers += [made[key]] * each.repeat
    return layers


def _layer(each: StackLayer, name: str, part: str, plan: Plan) -> Layer:
    tp, batch, made = plan.parallel.tp, plan.microbatch, Kernels(plan)
    if each.conv2d:
        conv = each.conv2d
        if tp > 1:
            raise InputError(
                f"tp {tp}: expected 1, layer '{name}' is a convolution, and only a gemm is divided"
            )
        kernel = convolution("convolution", conv, batch, part)
        return made.layer(name, [kernel], inputs=kernel.saved, outputs=batch * conv.outputs * conv.pixels)
    assert each.gemm is not None
    own = each.gemm
    if own.n % tp:
        best = near(tp, divisors(own.n))
        raise InputError(f"tp {tp}: expected a divisor of n {own.n} of layer '{name}' (nearest: {best})")
    rows, columns = batch * own.m, own.n // tp
    kernel = gemm("product", rows, own.k, columns, bias=own.bias * columns, part=part)
    layer = made.layer(name, [kernel], inputs=rows * own.k, outputs=rows * own.n)
    if tp == 1:
        return layer
    outputs, inputs = made.element * rows * columns, made.element * rows * own.k
    gather = Step("gather", collective=CollectiveType.ALL_GATHER, axes="tp", size=outputs)
    reduce = Step("reduction", collective=CollectiveType.ALL_REDUCE, axes="tp", size=inputs)
    return replace(layer, forward=(*layer.forward, gather), backward=(*layer.backward, reduce))
