"""Blocks, the components of layers: a norm, a projection, the core of attention.

The lists of a block are those of a `Layer`: "" in ``after`` is the input of the list, which in the list of the whole
layer is the last step of the block before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from armillary.workload.layers.layer import Layer, Step
from armillary.workload.layers.shard import Shard
from armillary.workload.plan.schema import ELEMENT

Steps = tuple[Step, ...]


@dataclass(frozen=True)
class Result:
    """What a kernel of a block makes, which recomputation may keep instead of making it again.

    Attributes:
        share: Of the kernel's work, in units that all results of the block have in common: columns of a GEMM.
        bytes: Of the result.
    """

    share: int
    bytes: int


@dataclass(frozen=True)
class Block:
    """A part of a layer on one rank.

    Attributes:
        name: Unique in the layer.
        forward: Steps of the forward pass.
        backward: Steps that make the gradient of the input.
        weight: Steps that make the gradients of weights; each names steps of `backward`, if any, in its ``after``.
        parameters: As in `Layer`.
        frozen: As in `Layer`.
        partial: As in `Layer`.
        low: Frozen parameters that GEMMs read in a precision below that in which they are kept.
        operand: Bytes of `saved` that only the gradient of its weight needs.
        for_weights: Steps of `backward` that only that gradient needs.
        saved: Bytes kept from forward to backward without recomputation.
        dropped: Bytes of `saved` that selective recomputation makes again, by the whole of `forward`.
        working: Most bytes that a step of the forward pass reads and writes, what is saved included.
        back: Most bytes that a step of the backward pass needs beside what is saved and the gradient of the residual;
            None: as `working`.
        results: Of its kernel, by the names of ``keep`` of a plan.
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
    results: Mapping[str, Result] = field(default_factory=dict)
    frozen: Mapping[str, int] = field(default_factory=dict)
    low: int = 0
    operand: int = 0
    for_weights: tuple[str, ...] = ()


@dataclass(frozen=True)
class Again:
    """What a layer makes again in its backward pass.

    Attributes:
        before: Name of a block -> blocks that run again right before its backward pass, in order.
        dropped: Name of a block -> bytes of `saved` that it does not keep.
    """

    before: Mapping[str, Sequence[Block]] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)


NOTHING = Again()


def layer(
    name: str, shard: Shard, blocks: Sequence[Block], boundary: int, cache: int = 0, again: Again = NOTHING
) -> Layer:
    """Return the layer of some blocks, which makes some of them `again`; full recomputation is left to `recomputed`."""
    forward = _chained((block.name, block.forward) for block in blocks)
    parameters: Counter[str] = Counter()
    frozen: Counter[str] = Counter()
    for block in blocks:
        parameters.update(block.parameters)
        frozen.update(block.frozen)
    if not shard.training:
        working = max(block.working for block in blocks)
        return Layer(name, forward, parameters=parameters, working=working, boundary=boundary, cache=cache)
    back: list[tuple[str, Steps]] = []
    both: list[tuple[str, Steps, Steps]] = []
    for block in reversed(blocks):
        # As late as possible: right before the backward pass of the block that needs it.
        for each in again.before.get(block.name, ()):
            back.append((f"again.{each.name}", each.forward))
            both.append((*back[-1], ()))
        back.append((block.name, block.backward))
        both.append((*back[-1], _added(shard, block)))
    return Layer(
        name,
        forward,
        _chained(back),
        _chained((block.name, _added(shard, block)) for block in reversed(blocks)),
        parameters,
        sum(block.partial for block in blocks),
        saved=sum(block.saved for block in blocks) - sum(again.dropped.values()),
        working=_beyond(again, blocks),
        back=_beyond(again, blocks, boundary),
        shapes=frozenset(
            (gemm.m, gemm.n)
            for block in blocks
            for step in block.weight
            for gemm in step.gemms
            if shard.dummies
        ),
        low=sum(block.low for block in blocks)
        + sum(
            gemm.m * gemm.n * gemm.batch
            for block in blocks
            for step in block.weight
            for gemm in step.gemms
            if step.precision in ("fp8", "fp4")
        ),
        boundary=boundary,
        frozen=frozen,
        in_order=() if shard.backward == "any" else _in_order(both, shard.backward == "serial"),
    )


def _beyond(again: Again, blocks: Sequence[Block], boundary: int | None = None) -> int:
    """Return the most bytes that blocks need beyond what all of them save.

    While a block runs forward, later ones have saved nothing yet; while it runs backward, they have freed it.

    Args:
        again: What is dropped, and made again right before the backward pass that needs it.
        blocks: In the order of the forward pass.
        boundary: Bytes of the gradient of the residual, which bypasses the blocks of a backward pass; None: forward.
    """
    kept = [block.saved - again.dropped.get(block.name, 0) for block in blocks]
    most = until = 0
    for block, own in zip(blocks, kept, strict=True):
        if boundary is None:
            most = max(most, until + block.working)
        until += own
        if boundary is not None:
            needs = block.working if block.back is None else block.back
            most = max(most, until + block.saved - own + needs + boundary)
    return max(0, most - until)


def _in_order(parts: Iterable[tuple[str, Steps, Steps]], serial: bool) -> Steps:
    """Join the backward passes of blocks, each gradient of a weight right behind the kernels of its own block.

    A stream runs kernels in the order of the program, so kernels of the next block wait for it; only collectives of its
    own block run beside it.

    Args:
        parts: Name of each block, steps that make the gradient of its input, and that of its weights.
        serial: Whether a block with collectives of tp runs one step after the other.
    """
    result: list[Step] = []
    # "" is the input of the whole list.
    before: tuple[str, ...] = ("",)
    for name, back, weight in parts:
        if not (back or weight):
            continue
        # What a step without `after` follows: the one before it in its own list.
        follows = {step.name: (last.name,) for last, step in pairwise(back)}
        follows |= {step.name: (last.name,) for last, step in pairwise(weight)}
        if weight and back:
            follows[weight[0].name] = (back[-1].name,)
        kernels = max((i for i, step in enumerate(back) if not step.axes), default=-1) + 1
        steps, alone = [*back[:kernels], *weight, *back[kernels:]], False
        if serial and any(step.axes == "tp" for step in back):
            steps, alone = [*back, *weight], True
            follows = {step.name: (last.name,) for last, step in pairwise(steps)}
        for step in steps:
            after = None if alone else step.after
            if after is None:
                after = follows.get(step.name, ("",))
            named = [place for each in after for place in ([f"{name}.{each}"] if each else before)]
            result.append(step.named(f"{name}.{step.name}", tuple(dict.fromkeys(named))))
        ends = [part[-1].name for part in (back, weight) if part]
        before = (*(() if back else before), *(f"{name}.{each}" for each in ends))
    return tuple(result)


def _added(shard: Shard, block: Block) -> Steps:
    """Return the steps of a block's weights, with a kernel that accumulates gradients if no GEMM does."""
    count = sum(block.parameters.values())
    if shard.fused or not shard.training or not block.weight or not count:
        return block.weight
    # Reads the new gradient, reads and writes the sum.
    return (*block.weight, Step("accumulate", bytes=count * (shard.element + 2 * shard.gradient)))


def recomputed(layer: Layer, shard: Shard, blocks: Sequence[Block], kept: int) -> Layer:
    """Return the layer that keeps only its input, of `kept` bytes, and runs `blocks` again before its backward pass.

    Results that the plan keeps are kept besides, and not made again.
    """
    again = _chained((block.name, _again(shard, block)) for block in blocks)
    found = [result.bytes for block in blocks for name, result in block.results.items() if name in shard.keep]
    return replace(
        layer,
        backward=_chained([("again", again), ("", layer.backward)]),
        in_order=layer.in_order and _chained([("again", again), ("", layer.in_order)]),
        saved=kept + sum(found),
        # All that the layer would have kept exists while its backward pass runs.
        working=layer.working + layer.saved,
        back=None if layer.back is None else layer.back + layer.saved,
    )


def _again(shard: Shard, block: Block) -> Steps:
    """Return the steps that make what is not kept of a block's results: fewer columns of its GEMM."""
    whole = sum(result.share for result in block.results.values())
    left = sum(result.share for name, result in block.results.items() if name not in shard.keep)
    if left == whole:
        return block.forward
    if not left:
        return ()
    kept = [name in shard.keep for name in block.results]
    return tuple(
        step if not step.gemms
        else _without(shard, step, kept) if len(step.gemms) == len(kept) > 1
        else _narrower(shard, step, left, whole)
        for step in block.forward
    )  # fmt: skip


def _without(shard: Shard, step: Step, kept: Sequence[bool]) -> Step:
    """Return a kernel with a GEMM for each result, without those of results that are kept."""
    gone = [each for each, keeps in zip(step.gemms, kept, strict=True) if keeps]
    size = sum(
        (each.m + each.n) * each.k * ELEMENT[step.precision] + each.m * each.n * shard.element
        for each in gone
    )
    return replace(
        step,
        flops=step.flops - sum(each.operations for each in gone),
        bytes=step.bytes - size,
        gemms=tuple(each for each, keeps in zip(step.gemms, kept, strict=True) if not keeps),
    )


def _narrower(shard: Shard, step: Step, left: int, whole: int) -> Step:
    """Return a GEMM with `left` of `whole` columns: its left operand is read whole."""
    gemms = tuple(each._replace(n=each.n * left // whole) for each in step.gemms)
    columns = sum(each.batch * each.calls * (each.k * ELEMENT[step.precision] + each.m * shard.element)
                  * (old.n - each.n) for each, old in zip(gemms, step.gemms, strict=True))  # fmt: skip
    return replace(step, flops=step.flops * left // whole, bytes=max(0, step.bytes - columns), gemms=gemms)


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
            result.append(step.named(prefix + step.name, after))
    return tuple(result)
