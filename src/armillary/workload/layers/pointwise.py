"""Kernels that are bound by memory: norms, activations, residuals."""

from __future__ import annotations

from armillary.workload.layers.block import Block
from armillary.workload.layers.layer import Step
from armillary.workload.layers.shard import Shard


def norm(shard: Shard, name: str, size: int, weights: int) -> Block:
    """Return a norm of the residual; its backward pass adds the gradient that goes past it."""
    held = shard.own * size * shard.element
    return Block(
        name,
        (Step("norm", bytes=2 * held),),
        (Step("norm", bytes=4 * held),),
        parameters={"dp+cp": weights},
        partial=weights * shard.sequence,
        saved=held,
        working=2 * held,
    )


def residual(shard: Shard, name: str, size: int) -> Block:
    """Return what adds to the residual, after dropout if there is any."""
    mask = shard.own * size if shard.dropout else 0
    held = shard.own * size * shard.element
    back = (Step("dropout", bytes=2 * held + mask),) if mask else ()
    return Block(name, (Step("add", bytes=3 * held + mask),), back, saved=mask, working=2 * held)


def activation(shard: Shard, name: str, rows: int, inputs: int, outputs: int) -> Block:
    """Return an activation function of `rows` vectors; gated ones have twice as many inputs as outputs."""
    read, written = rows * inputs * shard.element, rows * outputs * shard.element
    return Block(
        name,
        (Step("apply", bytes=read + written),),
        (Step("apply", bytes=2 * read + written),),
        saved=read,
        working=read + written,
    )
