"""Blocks, of which layers are made: a norm, a projection, the core of attention.

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
        forward: Steps.
        backward: Steps.
        weight: Steps; each names steps of `backward` in its ``after``, or `backward` is empty.
        parameters: As in `Layer`.
        partial: As in `Layer`.
        saved: Bytes kept from forward to backward without recomputation.
        dropped: Bytes of them that selective recomputation makes again, by the whole of `forward`.
        working: Bytes of what a step reads and writes that nothing keeps, at most.
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


def layer(name: str, shard: Shard, blocks: Sequence[Block], boundary: int, cache: int = 0) -> Layer:
    """Make a layer of blocks, without recomputation of the whole."""
    forward = _chained((block.name, block.forward) for block in blocks)
    parameters: Counter[str] = Counter()
    for block in blocks:
        parameters.update(block.parameters)
    working = max(block.working for block in blocks)
    if not shard.training:
        return Layer(name, forward, parameters=parameters, working=working, boundary=boundary, cache=cache)
    back: list[tuple[str, Steps]] = []
    again = 0
    for block in reversed(blocks):
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
        working=working + again,
        boundary=boundary,
    )


def _added(shard: Shard, block: Block) -> Steps:
    """Return the steps of a block's weights, with the kernel that adds their gradients up where no GEMM does."""
    count = sum(block.parameters.values())
    if shard.fused or not shard.training or not block.weight or not count:
        return block.weight
    return (*block.weight, Step("accumulate", bytes=count * (shard.element + 2 * shard.gradient)))


def recomputed(layer: Layer, kept: int, idle: int = 0) -> Layer:
    """Return the layer that keeps only its input, of `kept` bytes, and runs forward again before its backward pass.

    The last `idle` steps are left out.
    """
    again = layer.forward[: len(layer.forward) - idle]
    return replace(
        layer,
        backward=_chained([("again", again), ("", layer.backward)]),
        saved=kept,
        working=layer.working + layer.saved,
    )


def _chained(lists: Iterable[tuple[str, Steps]]) -> Steps:
    """Join lists, putting a name before those of their steps."""
    result: list[Step] = []
    for name, steps in lists:
        prefix, before = f"{name}." if name else "", result[-1].name if result else ""
        for step in steps:
            after = step.after
            if after is not None:
                after = tuple(dict.fromkeys(prefix + each if each else before for each in after))
            result.append(replace(step, name=prefix + step.name, after=after))
    return tuple(result)
