"""The layers of a model under a plan, dispatched by the kind of model."""

from __future__ import annotations

from functools import singledispatch

from armillary.base.errors import InputError
from armillary.workload.layers.experts import check_keys
from armillary.workload.layers.layer import Layer
from armillary.workload.models.schema import Decoder, Dlrm, Gnmt, Model, Resnet, Stack, Vit
from armillary.workload.plan.schema import Plan


def layers_of(model: Model, plan: Plan, place: int = 0) -> list[Layer]:
    """Return the layers of a model, sized for one rank and one microbatch of a training step, in order.

    Embedding, layers, head (norm, output GEMM and loss). Layers that are alike are one object.

    Args:
        model: The model.
        plan: How it is spread and run.
        place: Coordinate of the rank along the axis of `variants`.

    Raises:
        InputError: the plan is impossible for the model.
    """
    if plan.lora and not isinstance(model, Decoder):
        raise InputError(f"lora of '{model.name}': expected a model of kind 'decoder', got '{model.kind}'")
    if plan.numbers.recipe and not isinstance(model, Decoder):
        raise InputError(
            f"numbers.recipe of '{model.name}': expected a model of kind 'decoder', got '{model.kind}'"
        )
    check_keys(plan, model)
    return _layers(model, plan, place)


def variants(model: Model, plan: Plan) -> tuple[str, list[int]]:
    """Return the axis along which ranks of a stage have different layers, and for each coordinate the first equal one.

    Along ep experts may have different loads, along dp ranks may have different tables; else all ranks equal rank 0.
    """
    if isinstance(model, Decoder) and model.experts and plan.experts.skew:
        return "ep", list(range(plan.parallel.ep))
    if isinstance(model, Dlrm):
        from armillary.workload.layers.nets.dlrm import table_shares

        found = table_shares(model, plan)
        return "dp", [found.index(share) for share in found]
    return "dp", [0]


def inference_layers(model: Model, plan: Plan, *, tokens: int, context: int, batch: int) -> list[Layer]:
    """Return the layers of one forward pass that makes a token for each sequence, sized for one rank.

    Args:
        model: A decoder.
        plan: How it is spread; sizes of batches and recomputation do not matter.
        tokens: New tokens of a sequence: the prompt at first, then 1.
        context: Keys that the last of them sees; what is in the cache after the pass.
        batch: Sequences of this replica.

    Raises:
        InputError: the plan is impossible for the model, or it is no decoder.
    """
    if not isinstance(model, Decoder):
        raise InputError(
            f"inference of '{model.name}': expected a model of kind 'decoder', got '{model.kind}'"
        )
    check_keys(plan, model)
    from armillary.workload.layers.decoder import decoder_inference

    return decoder_inference(model, plan, tokens, context, batch)


# Imports stand inside, so that a trace of one kind of model does not load the modules of all.
@singledispatch
def _layers(model: Model, plan: Plan, place: int) -> list[Layer]:
    raise TypeError(f"not a model: {model!r}")


@_layers.register
def _decoder(model: Decoder, plan: Plan, place: int) -> list[Layer]:
    from armillary.workload.layers.decoder import decoder_layers

    return decoder_layers(model, plan, place)


@_layers.register
def _vit(model: Vit, plan: Plan, place: int) -> list[Layer]:
    from armillary.workload.layers.vit import vit_layers

    return vit_layers(model, plan, place)


@_layers.register
def _resnet(model: Resnet, plan: Plan, place: int) -> list[Layer]:
    from armillary.workload.layers.nets.resnet import resnet_layers

    return resnet_layers(model, plan)


@_layers.register
def _gnmt(model: Gnmt, plan: Plan, place: int) -> list[Layer]:
    from armillary.workload.layers.nets.gnmt import gnmt_layers

    return gnmt_layers(model, plan)


@_layers.register
def _stack(model: Stack, plan: Plan, place: int) -> list[Layer]:
    from armillary.workload.layers.nets.stack import stack_layers

    return stack_layers(model, plan)


@_layers.register
def _dlrm(model: Dlrm, plan: Plan, place: int) -> list[Layer]:
    from armillary.workload.layers.nets.dlrm import dlrm_layers

    return dlrm_layers(model, plan, place)
