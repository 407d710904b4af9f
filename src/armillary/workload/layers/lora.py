"""Low-rank adapters (LoRA, arXiv 2106.09685): weights are frozen, and beside some of them A·B is trained.

Y = X·W + (X·A)·B with W of k x n, A of k x r and B of r x n. A frozen GEMM makes the gradient of its input only, and
keeps no operand for that of its weight. Where tp divides W by columns, it divides B alike and every rank has A; by
rows, it divides A, and every rank has B. So a rank's own (X·A)·B is its term of what the collectives of W complete, and
adapters have none of their own; of the matrix that every rank has, it makes a part of the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from armillary.base.errors import InputError
from armillary.workload.layers.block import Block
from armillary.workload.layers.layer import Step
from armillary.workload.layers.linear import gemms
from armillary.workload.layers.shard import Shard
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Lora

BLOCKS = {"qkv": "qkv", "out": "out", "up": "mlp.up", "down": "mlp.down"}
"""Target -> the block of its GEMM."""
BY_ROWS = ("out", "mlp.down")
"""Blocks whose weights tp divides by rows."""


def check_lora(model: Decoder, lora: Lora) -> None:
    """Check that a model has the targets.

    Raises:
        InputError: it has not.
    """
    missing = []
    if model.attention.latent:
        missing.append(("qkv", "has latent attention"))
    if model.experts:
        missing += [("up", "has experts"), ("down", "has experts")]
    for target, why in missing:
        if target in lora.targets:
            left = [each for each in BLOCKS if each not in dict(missing)]
            raise InputError(f"lora.targets {target}: '{model.name}' {why}, expected {' or '.join(left)}")


def adapter_parameters(model: Decoder, lora: Lora) -> int:
    """Return the trained parameters of a model with adapters: r (k + n) for each target of each layer."""
    own = model.attention
    query, kv = own.heads * model.head_size, model.kv_heads * model.head_size
    value = own.heads * own.latent.value_size if own.latent else query
    inner = model.mlp.size if model.mlp else 0
    ends = {
        "qkv": model.hidden + query + 2 * kv,
        "out": value + model.hidden,
        "up": model.hidden + inner * (2 if model.gated else 1),
        "down": inner + model.hidden,
    }
    return model.layers * lora.rank * sum(ends[target] for target in dict.fromkeys(lora.targets))


def with_adapters(shard: Shard, blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks of a layer with frozen weights, and adapters beside those that the plan names."""
    lora = shard.lora
    if lora is None:
        return list(blocks)
    targets = {BLOCKS[each] for each in lora.targets}
    return [_adapted(shard, block, lora.rank) if block.name in targets else frozen(block) for block in blocks]


def frozen(block: Block) -> Block:
    """Return a block without gradients of weights, and without what only these need."""
    return replace(
        block,
        backward=tuple(step for step in block.backward if step.name not in block.for_weights),
        weight=(),
        parameters={},
        frozen=block.parameters,
        partial=0,
        saved=block.saved - block.operand,
        low=_low(block),
    )


def _low(block: Block) -> int:
    return sum(
        gemm.m * gemm.n * gemm.batch
        for step in block.weight
        for gemm in step.gemms
        if step.precision in ("fp8", "fp4")
    )


def _adapted(shard: Shard, block: Block, rank: int) -> Block:
    """Return a GEMM with a frozen weight and an adapter of `rank`."""
    shapes = next(step for step in block.forward if step.name == "gemm").gemms
    m, k, n = shard.tokens, shapes[0].k, sum(each.n for each in shapes)
    down = _named("lora.down", gemms(shard, m, k, rank, precision=shard.high))
    up = _named("lora.up", gemms(shard, m, rank, n, precision=shard.high))
    added, summed = 3 * m * n * shard.element, 3 * m * k * shard.element
    gathered = [step.name for step in block.backward if step.name in block.for_weights]
    # B first: the gradient of X·A, which that of A needs, comes from it.
    weight = (
        replace(up[2], after=("lora.up.input",)),
        replace(down[2], after=("lora.up.input", *gathered)),
    )
    return replace(
        block,
        forward=_behind(block.forward, "gemm", (down[0], up[0], Step("lora.add", bytes=added))),
        backward=_behind(block.backward, "input", (up[1], down[1], Step("lora.sum", bytes=summed))),
        weight=weight,
        parameters={"dp+cp": rank * (k + n)},
        frozen=block.parameters,
        partial=(rank * (n if block.name in BY_ROWS else k)) * (shard.tp > 1),
        saved=block.saved + m * rank * shard.element,
        low=_low(block),
    )


def _named(name: str, steps: tuple[Step, Step, Step]) -> tuple[Step, Step, Step]:
    forward, back, weight = steps
    return (
        replace(forward, name=f"{name}.gemm"),
        replace(back, name=f"{name}.input"),
        replace(weight, name=f"{name}.weight"),
    )


def _behind(steps: Sequence[Step], name: str, more: Sequence[Step]) -> tuple[Step, ...]:
    at = next(i for i, step in enumerate(steps) if step.name == name) + 1
    return (*steps[:at], *more, *steps[at:])
