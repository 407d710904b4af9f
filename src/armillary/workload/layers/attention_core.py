"""The core of attention: scores, softmax, and their GEMM with the values.

It has no weights. Its backward pass takes twice the operations of the forward pass. That fused kernels compute the
scores once more is not counted, as in the published formulas; so selective recomputation, which does just that,
changes nothing for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from armillary.trace import CollectiveType
from armillary.trace.attention import Attention
from armillary.trace.gemm import Gemm
from armillary.workload.layers.attention_steps import in_steps
from armillary.workload.layers.block import Block, Result
from armillary.workload.layers.layer import Step
from armillary.workload.layers.linear import gather, scatter
from armillary.workload.layers.shard import Shard, check_divides

STATISTIC = 4
"""Bytes of the log-sum-exp that fused kernels keep per query and head."""


@dataclass(frozen=True)
class Heads:
    """Attention heads of one rank.

    Attributes:
        query: Heads of queries.
        kv: Heads of keys and values.
        key: Elements of a query or key head.
        value: Elements of a value head.
        window: Most keys that a query sees.
    """

    query: int
    kv: int
    key: int
    value: int
    window: int | None = None

    @property
    def kv_size(self) -> int:
        """Elements of the keys and values of a token."""
        return self.kv * (self.key + self.value)


def pairs(queries: int, keys: int, window: int | None, causal: bool) -> int:
    """Return how many scores the last `queries` of `keys` tokens have, with or without a causal mask."""
    seen = min(keys, window or keys)
    # A causal mask hides `lacking` of them from the first query, and one fewer from each later one.
    lacking = max(0, seen - (keys - queries + 1)) if causal else 0
    return seen * queries - lacking * (lacking + 1) // 2


def core(shard: Shard, heads: Heads) -> Block:
    """Return the core on one rank; ranks of cp have equal shares, as queries are distributed in zig-zag.

    Fractions of an operation are rounded up.
    """
    per_pair = 2 * heads.query * (heads.key + heads.value)
    seen = shard.batch * pairs(shard.queries, shard.keys, heads.window, shard.causal)
    flops = -(-seen * per_pair // shard.cp)
    if not shard.flash:
        return _unfused(shard, heads, seen)
    element, rows = shard.element, shard.tokens * heads.query
    lse = rows * STATISTIC
    kv_new = shard.tokens * heads.kv_size * element
    reach = min(shard.keys, heads.window or shard.keys)
    # Inference reads what the cache holds, within the window.
    kv_read = kv_new if shard.training else shard.cached(shard.batch * reach * heads.kv_size)
    q, out = rows * heads.key * element, rows * heads.value * element
    block = Block(
        "core",
        saved=q + kv_new + lse,
        working=q + out + kv_new,
        back=2 * out + q + kv_new,
        results={"attention": Result(1, out + lse)},
    )
    own = -(-shard.queries // shard.cp)
    shape = Attention(shard.batch, heads.query, heads.kv, own, reach, heads.key, heads.value)
    forward = Step("attend", flops, q + kv_read + out + lse, shard.high, attention=shape)
    back = Step(
        "attend",
        2 * flops,
        2 * (q + kv_new) + 2 * out + lse,
        shard.high,
        attention=shape._replace(backward=1),
    )
    if shard.cp == 1:
        return replace(block, forward=(forward,), backward=(back,))
    # Three ways to let all queries meet all keys: swap heads for sequence, pass keys round, or gather them all first.
    if shard.context == "all-to-all":
        return _exchanged(shard, heads, block, forward, back)
    if shard.context == "ring":
        first = _first_chunk(shard, heads, flops)
        return replace(
            block,
            forward=_ring(forward, shard.cp, first, q + out + lse, kv_new),
            backward=_ring_back(back, shard.cp, 2 * first, 2 * (q + out) + lse, kv_new),
            working=block.working + 2 * kv_new,
            back=2 * out + q + 5 * kv_new,
        )
    if shard.context == "all-gather-steps":
        repeated = shard.tokens * heads.query * (heads.key + heads.value) * element
        return in_steps(
            block, forward, back, shard.cp, first=_first_chunk(shard, heads, flops), own=q + out + lse, out=out,
            kv=kv_new, repeated=repeated,
        )  # fmt: skip
    whole = shard.cp * kv_new
    forward, back = (replace(step, bytes=step.bytes + whole - kv_new) for step in (forward, back))
    return replace(
        block,
        # The backward pass gathers again rather than keep the keys and values of all ranks.
        forward=(gather("gather", "cp", kv_new), forward),
        backward=(gather("gather", "cp", kv_new), back, scatter("scatter", "cp", whole)),
        working=block.working + whole,
        back=2 * out + q + kv_new + 2 * whole,
    )


def _exchanged(shard: Shard, heads: Heads, block: Block, forward: Step, back: Step) -> Block:
    """Return the core where ranks of cp swap their part of the sequence for a part of the heads, and back.

    DeepSpeed-Ulysses (arXiv 2309.14509, section 3.1), as Transformer Engine runs it (``cp_comm_type="a2a"``): queries,
    keys and values are exchanged one by one, and the output back. The backward pass exchanges the gradient of the
    output and back those of queries, keys and values; the output after the exchange is kept beside that before it
    (from version 2.8 on), so it is not exchanged again. Each exchange has a copy before it, which makes the parts of
    each rank contiguous, and one after it, which puts the zig-zag of the sequence in order.

    Args:
        shard: The share of this rank.
        heads: Of this rank before the exchange.
        block: Without steps.
        forward: The kernel, with operations and bytes of this rank.
        back: The same of the backward pass.

    Raises:
        InputError: cp does not divide the heads of a rank.
    """
    for name, count in (("heads", heads.query), ("kv_heads", heads.kv)):
        check_divides("cp", shard.cp, f"{name} of a rank", count)
    rows, element, cp = shard.tokens, shard.element, shard.cp
    parts = {
        "q": rows * heads.query * heads.key * element,
        "k": rows * heads.kv * heads.key * element,
        "v": rows * heads.kv * heads.value * element,
    }
    out, whole = rows * heads.query * heads.value * element, sum(parts.values())
    shape = Attention(
        shard.batch, heads.query // cp, heads.kv // cp, shard.queries,
        min(shard.keys, heads.window or shard.keys), heads.key, heads.value,
    )  # fmt: skip

    def there(sizes: Mapping[str, int]) -> list[Step]:
        moved = sum(sizes.values())
        return [
            Step("split", bytes=2 * moved),
            *(_all_to_all(f"exchange {name}", size) for name, size in sizes.items()),
            Step("order", bytes=2 * moved),
        ]

    def here(sizes: Mapping[str, int]) -> list[Step]:
        moved = sum(sizes.values())
        return [
            Step("reorder", bytes=2 * moved),
            *(_all_to_all(f"exchange back {name}", size) for name, size in sizes.items()),
            Step("join", bytes=2 * moved),
        ]

    return replace(
        block,
        forward=(*there(parts), replace(forward, attention=shape), *here({"out": out})),
        backward=(*there({"out": out}), replace(back, attention=shape._replace(backward=1)), *here(parts)),
        saved=block.saved + out,
        working=block.working + whole + out,
        back=2 * (out + whole),
    )


def _all_to_all(name: str, size: int) -> Step:
    return Step(name, collective=CollectiveType.ALL_TO_ALL, axes="cp", size=size)


def _unfused(shard: Shard, heads: Heads, seen: int) -> Block:
    """Return attention as separate kernels with scores in memory (arXiv 2205.05198, figure 3 and section 4.1)."""
    element, rows = shard.element, shard.tokens * heads.query
    q, out = rows * heads.key * element, rows * heads.value * element
    kv_tokens = shard.batch * shard.keys * heads.kv
    k, v = shard.cached(kv_tokens * heads.key), shard.cached(kv_tokens * heads.value)
    scores = rows * shard.keys
    # One byte per score.
    mask = scores if shard.dropout else 0
    held = scores * element
    kept = held + (mask + held if mask else 0)  # softmax; mask and the masked softmax
    up, down = (2 * seen * heads.query * size for size in (heads.key, heads.value))
    dropout = (Step("dropout", bytes=2 * held + scores),) if shard.dropout else ()
    precision = shard.high
    # GEMMs compute whole matrices; a mask is applied to the result.
    groups = shard.batch * heads.query
    first = Gemm(-(-rows // groups), shard.keys, heads.key, groups)
    second = Gemm(first.m, heads.value, shard.keys, groups)
    return Block(
        "core",
        (
            Step("scores", up, q + k + held, precision, gemms=(first,)),
            *_softmax(shard, scores, 2, ("float", "scale", "mask", "softmax", "half")),
            *dropout,
            Step("values", down, held + v + out, precision, gemms=(second,)),
        ),
        (
            Step("values", 2 * down, 2 * (held + v) + out, precision, gemms=(second.left(), second.right())),
            *dropout,
            *_softmax(shard, scores, 3, ("float", "softmax", "mask", "scale", "half")),
            Step("scores", 2 * up, 2 * (q + k) + held, precision, gemms=(first.left(), first.right())),
        ),
        saved=q + k + v + kept,
        dropped=kept,
        working=2 * held,
    )


def _softmax(shard: Shard, scores: int, tensors: int, order: Sequence[str]) -> list[Step]:
    """Return the steps between scores and probabilities, or between their gradients.

    Args:
        shard: With `eager`, scale, mask and casts are kernels of their own, in fp32.
        scores: Elements.
        tensors: What the softmax itself reads and writes.
        order: Of the kernels.
    """
    held, single = scores * shard.element, scores * 4
    if not shard.eager:
        return [Step("softmax", bytes=tensors * held)]
    sizes = {
        "float": held + single, "scale": 2 * single, "mask": 2 * single + scores, "softmax": tensors * single,
        "half": held + single,
    }  # fmt: skip
    return [Step(name, bytes=sizes[name]) for name in order]


def _first_chunk(shard: Shard, heads: Heads, flops: int) -> int:
    """Return the operations of a rank's queries on its own keys, where the mask hides the most."""
    # In zig-zag a rank has two pieces of this length, one early and one late.
    length = shard.queries // (2 * shard.cp)
    if not shard.causal or heads.window or shard.queries % (2 * shard.cp):
        # Without a plain causal mask all chunks are taken to be alike, with the remainder in the first.
        return flops - flops // shard.cp * (shard.cp - 1)
    # Two triangles of length (length + 1) / 2, and the late piece's square on the early one.
    return shard.batch * length * (2 * length + 1) * 2 * heads.query * (heads.key + heads.value)


def _ring(step: Step, cp: int, first: int, own: int, kv: int) -> tuple[Step, ...]:
    """Divide `step` into one chunk per rank of keys and values; each arrives while the chunk before is computed.

    Args:
        step: The step on all keys and values.
        cp: Ranks.
        first: Operations of the first chunk; the others are equal.
        own: Bytes that every chunk reads and writes besides keys and values.
        kv: Bytes of the keys and values of a rank, and of a message.
    """
    steps: list[Step] = []
    wait: tuple[str, ...]
    for chunk in range(cp):
        if chunk < cp - 1:  # two buffers: the one that receives must not be in use
            wait = (f"pass {chunk}", f"attend {chunk - 1}") if chunk else ("",)
            steps.append(Step(f"pass {chunk + 1}", axes="cp", size=kv, shift=1, after=wait))
        wait = (f"attend {chunk - 1}", f"pass {chunk}") if chunk else ("",)
        flops = first if chunk == 0 else _share(step.flops - first, cp - 1, chunk - 1)
        shape = step.attention and step.attention._replace(keys=-(-step.attention.keys // cp))
        steps.append(Step(f"attend {chunk}", flops, own + kv, step.precision, after=wait, attention=shape))
    return tuple(steps)


def _ring_back(step: Step, cp: int, first: int, own: int, kv: int) -> tuple[Step, ...]:
    """Divide the backward `step` likewise; gradient sums of keys and values follow these round the ring.

    Passes run in the opposite direction, from the keys and values that came last in the forward pass, so that each sum
    is complete when it is back at its own rank.
    """
    steps: list[Step] = []
    wait: tuple[str, ...]
    # A chunk reads keys and values and writes their gradients, hence twice the bytes; messages stay single.
    for each in _ring(step, cp, first, own, 2 * kv):
        chunk = int(each.name.split()[1])
        steps.append(replace(each, size=kv, shift=-1) if each.shift else each)
        if not each.shift and chunk < cp - 1:
            wait = (each.name, f"pass sum {chunk}") if chunk else (each.name,)
            steps.append(Step(f"pass sum {chunk + 1}", axes="cp", size=kv, shift=-1, after=wait))
    last = (f"attend {cp - 1}", f"pass sum {cp - 1}")
    return (*steps, Step("add", bytes=3 * kv, after=last))


def _share(total: int, parts: int, index: int) -> int:
    """Return part `index` of a total divided into integers, larger parts first."""
    return total // parts + (index < total % parts)
