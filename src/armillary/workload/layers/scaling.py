"""Kernels that quantise the operands of GEMMs in fp8 and fp4, and collectives of what they have quantised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from armillary.trace import CollectiveType
from armillary.workload.layers.block import Block, Steps
from armillary.workload.layers.layer import Step
from armillary.workload.layers.shard import Shard
from armillary.workload.plan.scaling import AMAX, RECIPES, Recipe

LOW = ("fp8", "fp4")


def with_scaling(shard: Shard, blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks of a layer with the kernels of the plan's recipe; without one, as they are."""
    if not shard.recipe:
        return list(blocks)
    recipe = RECIPES[shard.recipe]
    behind = [False, *(recipe.behind and each.name.endswith("norm") for each in blocks[:-1])]
    return [_scaled(shard, recipe, *each) for each in zip(blocks, behind, strict=True)]


def _scaled(shard: Shard, recipe: Recipe, block: Block, behind: bool) -> Block:
    """Return a block that quantises the gradient of its output, and its input unless the kernel before it does."""
    own = next((step for step in block.forward if _low(step)), None)
    if own is None:
        return block
    shape = own.gemms[0]
    rows, columns_out = shape.m * shape.batch, sum(each.n for each in own.gemms)
    # Frozen weights have no gradient, for which tensors would be quantised along their columns.
    columns = any(_low(step) for step in block.weight)
    # Vectors of each expert are a tensor of their own.
    each = shape.batch > 1 and not (recipe.grouped and shard.quantise == "joined")
    tensors = shape.batch if each else 0
    there = () if behind else _quantised(shard, recipe, block.forward, (), rows * shape.k, columns, tensors)
    back = (
        _quantised(shard, recipe, block.backward, block.for_weights, rows * columns_out, columns, tensors)
        if block.backward
        else ()
    )
    ways = 2 if recipe.both and columns else 1
    return replace(
        block,
        forward=_after(shard, recipe, there, block.forward, (), ways=1),
        backward=_after(shard, recipe, back, block.backward, block.for_weights, ways=ways),
        weight=tuple(_known(shard, step) for step in block.weight),
    )


def _low(step: Step) -> bool:
    return step.precision in LOW and bool(step.gemms)


def _known(shard: Shard, step: Step) -> Step:
    if not _low(step):
        return step
    # Each GEMM of a loop may follow kernels that turn the scales of its operands.
    turned = RECIPES[shard.recipe].turned if shard.recipe and shard.quantise == "apart" else 0
    return replace(step, scaling=shard.recipe or "", looped=step.looped * (1 + turned))


def _gathers(step: Step) -> bool:
    return step.collective is CollectiveType.ALL_GATHER and step.axes == "tp"


def _quantised(
    shard: Shard,
    recipe: Recipe,
    steps: Steps,
    apart: Sequence[str],
    elements: int,
    columns: bool,
    tensors: int,
) -> Steps:
    """Return the kernels that quantise the tensor that the GEMM of `steps` reads.

    Args:
        shard: The share of this rank.
        recipe: The recipe.
        steps: Of a pass.
        apart: Names of those that another GEMM needs.
        elements: Of the tensor, whole.
        columns: Whether the gradient of a weight needs it along its columns.
        tensors: How many tensors of experts it consists of, each quantised by kernels of its own; 0: it is one.
    """
    # What is gathered, ranks have in parts.
    parts = any(_gathers(step) and step.name not in apart for step in steps)
    own = elements // shard.tp if parts else elements
    found: list[Step] = []
    for name, each in recipe.kernels.items():
        moved = each - recipe.last_saves * (name == recipe.last and not columns)
        if moved:
            found.append(Step(name, bytes=ceil(own * moved), looped=tensors))
        if name == "amax" and parts and recipe.reduces:
            found.append(Step("amax reduce", collective=CollectiveType.ALL_REDUCE, axes="tp", size=AMAX))
    return tuple(found)


def _after(shard: Shard, recipe: Recipe, made: Steps, steps: Steps, apart: Sequence[str], ways: int) -> Steps:
    """Return `made` and then `steps`: their gathers carry what is quantised, their GEMMs know that operands are.

    Args:
        shard: The share of this rank.
        recipe: The recipe.
        made: Kernels that quantise.
        steps: Of a pass.
        apart: Names of those that another GEMM needs, whose operand the forward pass has quantised.
        ways: 2 where the tensor is gathered along its rows and along its columns.
    """
    found = []
    for step in steps:
        own = _known(shard, step)
        if _gathers(step):
            times = 1 if step.name in apart else ways
            own = replace(own, size=ceil(step.size * recipe.element * times / shard.element))
        if made and step.after is not None and step.name not in apart:
            own = replace(own, after=tuple(each or made[-1].name for each in step.after))
        found.append(own)
    return (*made, *found)
