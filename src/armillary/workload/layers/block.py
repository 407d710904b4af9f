"""Blocks, the components of layers: a norm, a projection, the core of attention.

The lists of a block are those of a `Layer`: "" in ``after`` is the input of the list, which in the list of the whole
layer is the last step of the block before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from armillary.workload.layers.layer import Layer, Step
from armillary.workload.layers.shard import Shard

Steps = tuple[Step, ...]


@dataclass(frozen=True)
class Block:
    """A part of a layer on one rank.

    Attributes:
        name: Unique in the layer.
        forward: Steps of the forward pass.
        backward: Steps that make the gradient of the input.
        weight: Steps that make the gradients of weights; each names steps of `backward`, if any, in its ``after``.
        parameters: As in `Layer`.
        partial: As in `Layer`.
        saved: Bytes kept from forward to backward without recomputation.
        dropped: Bytes of `saved` that selective recomputation makes again, by the whole of `forward`.
        working: Most bytes that a step of the forward pass reads and writes, what is saved included.
        back: Most bytes that a step of the backward pass needs beside what is saved and the gradient of the residual;
            None: as `working`.
    """

    name: str
    forward: Steps = ()
    backward: Steps = ()
    weight: Steps = ()
    parameters: Mapping[str, int] = field(default_factory=dict)
    partial: int = 0
    saved: int = 0
    dropped: int = 0
    working: int = 0
    back: int | None = None


def layer(name: str, shard: Shard, blocks: Sequence[Block], boundary: int, cache: int = 0) -> Layer:
    """Return the layer of some blocks; full recomputation is left to `recomputed`."""
    forward = _chained((block.name, block.forward) for block in blocks)
    parameters: Counter[str] = Counter()
    for block in blocks:
        parameters.update(block.parameters)
    if not shard.training:
        working = max(block.working for block in blocks)
        return Layer(name, forward, parameters=parameters, working=working, boundary=boundary, cache=cache)
    back: list[tuple[str, Steps]] = []
    again = 0
    for block in reversed(blocks):
        # As late as possible: right before the block's own backward pass.
        if shard.recompute == "selective" and block.dropped:
            back.append((f"again.{block.name}", block.forward))
            again += block.dropped
        back.append((block.name, block.backward))
    return Layer(
        name,
        forward,
        _chained(back),
        _chained((block.name, _added(shard, block)) for block in reversed(blocks)),
        parameters,
        sum(block.partial for block in blocks),
        saved=sum(block.saved for block in blocks) - again,
        working=_beyond(shard, blocks),
        back=_beyond(shard, blocks, boundary),
        shapes=frozenset(
            (gemm.m, gemm.n)
            for block in blocks
            for step in block.weight
            for gemm in step.gemms
            if shard.dummies
        ),
        low=sum(
            gemm.m * gemm.n * gemm.batch
            for block in blocks
            for step in block.weight
            for gemm in step.gemms
            if step.precision in ("fp8", "fp4")
        ),
        boundary=boundary,
    )


def _beyond(shard: Shard, blocks: Sequence[Block], boundary: int | None = None) -> int:
    """Return the most bytes that blocks need beyond what all of them save.

    While a block runs forward, later ones have saved nothing yet; while it runs backward, they have freed it.

    Args:
        shard: With selective recomputation a block drops what it makes again right before its backward pass.
        blocks: In the order of the forward pass.
        boundary: Bytes of the gradient of the residual, which bypasses the blocks of a backward pass; None: forward.
    """
    kept = [block.saved - block.dropped * (shard.recompute == "selective") for block in blocks]
    most = until = 0
    for block, own in zip(blocks, kept, strict=True):
        if boundary is None:
            most = max(most, until + block.working)
        until += own
        if boundary is not None:
            needs = block.working if block.back is None else block.back
            most = max(most, until + block.saved - own + needs + boundary)
    return max(0, most - until)


def _added(shard: Shard, block: Block) -> Steps:
    """Return the steps of a block's weights, with a kernel that accumulates gradients if no GEMM does."""
    count = sum(block.parameters.values())
    if shard.fused or not shard.training or not block.weight or not count:
        return block.weight
    # Reads the new gradient, reads and writes the sum.
    return (*block.weight, Step("accumulate", bytes=count * (shard.element + 2 * shard.gradient)))


def recomputed(layer: Layer, kept: int, idle: int = 0) -> Layer:
    """Return the layer that keeps only its input, of `kept` bytes, and runs forward again before its backward pass.

    It does not repeat the last `idle` steps.
    """
    again = layer.forward[: len(layer.forward) - idle]
    return replace(
        layer,
        backward=_chained([("again", again), ("", layer.backward)]),
        saved=kept,
        # All that the layer would have kept exists while its backward pass runs.
        working=layer.working + layer.saved,
        back=None if layer.back is None else layer.back + layer.saved,
    )


def _chained(lists: Iterable[tuple[str, Steps]]) -> Steps:
    """Join lists, prefixing the names of their steps."""
    result: list[Step] = []
    for name, steps in lists:
        prefix, before = f"{name}." if name else "", result[-1].name if result else ""
        for step in steps:
            after = step.after
            if after is not None:
                # "" named the list's own input; in the joined list that is the last step of the block before.
                after = tuple(dict.fromkeys(prefix + each if each else before for each in after))
            result.append(replace(step, name=prefix + step.name, after=after))
    return tuple(result)
