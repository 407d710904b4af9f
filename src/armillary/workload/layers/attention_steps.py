"""Context parallelism of PyTorch (torch.distributed.tensor.experimental, `context_parallel` with ``allgather``).

Keys and values are repeated for the queries' heads and gathered, while a kernel attends to a rank's own ones. Then a
kernel attends to those of each other rank: all queries to half of the keys, or half of the queries to all, as queries
lie in zig-zag. What it finds is merged in fp32, in a kernel for each operation. The backward pass gathers again; sums
of the gradients of keys and values pass round the ring in fp32, and arrive at their own rank after as many passes as
there are ranks.
"""

from __future__ import annotations

from dataclasses import replace

from armillary.trace.attention import Attention
from armillary.workload.layers.block import Block
from armillary.workload.layers.layer import Step
from armillary.workload.layers.linear import gather

SINGLE = 4
"""Bytes of an element in fp32."""


def in_steps(
    block: Block,
    forward: Step,
    back: Step,
    cp: int,
    *,
    first: int,
    own: int,
    out: int,
    kv: int,
    repeated: int,
) -> Block:
    """Return the core of attention in as many kernels as there are ranks of cp.

    Args:
        block: Without steps.
        forward: The kernel on all keys and values, with operations of this rank.
        back: The same of the backward pass.
        cp: Ranks.
        first: Operations of the forward pass on a rank's own keys; those of others are equal.
        own: Bytes that each kernel of the forward pass reads and writes besides keys and values.
        out: Bytes of the output.
        kv: Bytes of the keys and values of a rank.
        repeated: The same with those of each head of queries.
    """
    assert forward.attention is not None
    element = 2 if forward.precision == "bf16" else SINGLE
    wide, sums = out // element * SINGLE, repeated // element * SINGLE
    # A cast, the difference to what was there, its product with a weight, and their difference.
    merged = (out + wide) + 3 * wide + 2 * wide + 3 * wide
    repeat = Step("repeat", bytes=kv + repeated)
    steps = [repeat, replace(gather("gather", "cp", repeated), after=("repeat",))]
    backward = list(steps)
    for chunk in range(cp):
        share = first if not chunk else _share(forward.flops - first, cp - 1, chunk - 1)
        shape = _part(forward.attention, cp, whole=not chunk)
        attend = replace(forward, name=f"attend {chunk}", flops=share, bytes=own + repeated, attention=shape)
        behind = f"merge {chunk - 1}" if chunk > 1 else f"attend {chunk - 1}"
        steps.append(replace(attend, after=(behind, "gather") if chunk else ("repeat",)))
        if chunk:
            steps.append(Step(f"merge {chunk}", bytes=merged))
        there = (f"sum {chunk - 1}", "gather") if chunk else ("repeat",)
        more = 2 * (attend.bytes + repeated)
        backward.append(
            replace(
                back, name=f"attend {chunk}", flops=2 * share, bytes=more, after=there,
                attention=shape._replace(backward=1),
            )
        )  # fmt: skip
        # Gradients are added to sums in fp32; those of keys and values are put behind each other.
        size = out + 2 * wide + repeated + 2 * sums + 2 * sums
        arrived = (f"pass {chunk}",) if chunk else ()
        backward.append(Step(f"sum {chunk}", bytes=size, after=(f"attend {chunk}", *arrived)))
        backward.append(Step(f"pass {chunk + 1}", axes="cp", size=sums, shift=1, after=(f"sum {chunk}",)))
    backward.append(Step("reduce", bytes=sums + kv, after=(f"pass {cp}", f"sum {cp - 1}")))
    return replace(
        block,
        forward=tuple(steps),
        backward=tuple(backward),
        working=block.working + (cp + 1) * repeated + wide,
        back=2 * out + 2 * wide + (cp + 1) * repeated + 3 * sums,
    )


def _part(shape: Attention, cp: int, *, whole: bool) -> Attention:
    """Return the shape of a kernel: a rank's own queries and keys, or half of its queries and the keys of another."""
    keys = -(-shape.keys // cp)
    queries = shape.queries if whole else -(-shape.queries // 2)
    return shape._replace(kv_heads=shape.heads, queries=queries, keys=keys)


def _share(total: int, parts: int, index: int) -> int:
    return total // parts + (index < total % parts)
