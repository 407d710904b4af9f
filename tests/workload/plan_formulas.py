"""Formulas of plans: operations, and bytes and number of every collective by group of ranks.

The formulas are written here from their sources, apart from the code: Megatron-LM's tensor parallelism (arXiv
1909.08053, section 3), sequence parallelism (arXiv 2205.05198, section 4.2) and ``finalize_model_grads``; ZeRO (arXiv
1910.02054, section 7); FSDP (arXiv 2304.11277, section 3); interleaved pipelines (arXiv 2104.04473); ring attention
(arXiv 2310.01889); exchanged heads (arXiv 2309.14509, section 3.1, and Transformer Engine from 2.8 on); experts as in
Megatron-LM and DeepSeek-V3 (arXiv 2412.19437, sections 3.2.2 and 3.3.2).
"""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import NamedTuple

from armillary.workload.models import Decoder
from armillary.workload.plan.schema import Plan

Moved = Counter[tuple[str, str, str]]
"""Of all ranks together: (operation, group, "calls" or "bytes") -> number."""


class Size(NamedTuple):
    """What the formulas take from a plan of a decoder."""

    model: Decoder
    plan: Plan

    @property
    def tp(self) -> int:
        return self.plan.parallel.tp

    @property
    def divided(self) -> bool:
        """Whether sequence parallelism is on."""
        return self.plan.parallel.sequence and self.tp > 1

    @property
    def ranks(self) -> int:
        return self.plan.ranks

    @property
    def stage(self) -> int:
        """Ranks of a pipeline stage."""
        return self.plan.ranks // self.plan.parallel.pp

    @property
    def dp(self) -> int:
        return self.stage // self.tp // self.plan.parallel.cp

    @property
    def microbatches(self) -> int:
        return self.plan.batch // self.dp // self.plan.microbatch

    @property
    def element(self) -> int:
        return 4 if self.plan.numbers.compute == "fp32" else 2

    @property
    def gradient(self) -> int:
        return 4 if self.plan.numbers.gradients == "fp32" else 2

    @property
    def sequence(self) -> int:
        return self.plan.sequence or self.model.context

    @property
    def tokens(self) -> int:
        """Of a rank, within tensor-parallel products."""
        return self.plan.microbatch * self.sequence // self.plan.parallel.cp

    @property
    def own(self) -> int:
        """Of a rank, between them."""
        return self.tokens // self.tp if self.divided else self.tokens


def operations(size: Size) -> int:
    """Return 2 per multiply-add of every product, three times (forward, two gradients), and what is recomputed."""
    model, own = size.model, size.model.attention
    hidden, samples = model.hidden, size.plan.batch
    tokens = samples * size.sequence
    gated = 3 if model.activation in ("swiglu", "geglu") else 2
    total = 6 * tokens * hidden * model.vocabulary
    again = 2 if size.plan.recompute == "full" else 0
    for layer in range(model.layers):
        if own.latent:
            one = own.latent
            width = one.plain_size + one.rotary_size
            weights = hidden * (one.kv_rank + one.rotary_size)
            weights += one.kv_rank * own.heads * (one.plain_size + one.value_size)
            weights += own.heads * one.value_size * hidden
            weights += (
                one.query_rank * (hidden + own.heads * width)
                if one.query_rank
                else hidden * own.heads * width
            )
            pair = own.heads * (width + one.value_size)
        else:
            head, kv = own.head_size or hidden // own.heads, own.kv_heads or own.heads
            weights, pair = 2 * hidden * head * (own.heads + kv), 2 * own.heads * head
        if model.experts and model.has_experts(layer):
            mix = model.experts
            active = mix.top_k * mix.size + mix.shared * (mix.shared_size or mix.size)
            copies = 1 if size.divided else size.tp  # ranks with the same tokens route them all
            weights += gated * hidden * active + hidden * (mix.count + mix.shared_gate) * copies
        else:
            assert model.mlp
            weights += gated * hidden * model.mlp.size
        window = own.window if own.window and layer >= own.full_layers else size.sequence
        scores = samples * size.sequence * min(window, size.sequence) * pair
        total += (6 + again) * (weights * tokens + scores)
        if size.plan.recompute == "selective" and size.plan.attention != "flash":
            total += 2 * scores
    return total


class Dense(NamedTuple):
    """Parameters of one rank: of a layer, the embedding, the head; in brackets those every rank of tp holds."""

    layer: int
    embedding: int
    head: int
    partial: int
    partial_head: int


def dense(size: Size) -> Dense:
    """Return the parameters of a rank of a decoder without experts and without latent attention."""
    model, own, tp = size.model, size.model.attention, size.tp
    hidden, scale = model.hidden, 2 if model.norm == "layer" else 1
    assert model.mlp and not model.experts and not own.latent
    head, kv = own.head_size or hidden // own.heads, own.kv_heads or own.heads
    gated = 2 if model.activation in ("swiglu", "geglu") else 1
    columns = (own.heads + 2 * kv) * head // tp
    wide = gated * model.mlp.size // tp
    layer = hidden * columns + own.heads * head // tp * hidden + hidden * wide + model.mlp.size // tp * hidden
    layer += columns * (own.bias != "none") + wide * model.mlp.bias
    rows = hidden * (own.bias == "all") + hidden * model.mlp.bias
    norms = 2 * scale * hidden
    heads = 2 * head * scale * own.qk_norm
    tables = ceil(model.vocabulary / tp)
    partial = (norms + rows) * size.divided + heads * (tp > 1)
    return Dense(
        layer + rows + norms + heads,
        hidden * (tables + (model.learned_positions or 0)),
        scale * hidden + hidden * tables * (not model.tied or size.plan.parallel.pp > 1),
        partial,
        scale * hidden * size.divided,
    )


def add(found: Moved, operation: str, group: str, calls: int, size: int) -> None:
    """Count calls on ranks, each of `size` bytes."""
    if calls:
        found[operation, group, "calls"] += calls
        found[operation, group, "bytes"] += calls * size


def tensor(size: Size, layers: int) -> Moved:
    """Return what tensor parallelism moves: 2205.05198, figures 5 and 6; without sequence 1909.08053, figure 3."""
    found: Moved = Counter()
    if size.tp == 1:
        return found
    bytes_of = size.element * size.model.hidden
    whole, own = size.tokens * bytes_of, size.own * bytes_of
    again = size.plan.recompute == "full"
    runs = size.stage * size.microbatches
    if size.divided:
        # A column-parallel product gathers forward and backward, a row-parallel one backward; the reverse scatters.
        add(found, "all-gather", "tp", runs * layers * (2 + 4 + 2 * again), own)
        add(found, "reduce-scatter", "tp", runs * layers * (2 + 2 + 2 * again), whole)
        add(found, "all-gather", "tp", runs * (1 + 1 + 1), own)  # embedding backward; head both ways
        add(found, "reduce-scatter", "tp", runs * (1 + 1), whole)  # embedding forward; head backward
    else:
        add(found, "all-reduce", "tp", runs * layers * (2 + 2 + 2 * again), whole)
        add(found, "all-reduce", "tp", runs * 2, whole)
    found += losses(size)
    return found


def losses(size: Size) -> Moved:
    """Return what a vocabulary-parallel loss sums: maximum, target, sum of exponents; fused, it gathers all three."""
    found: Moved = Counter()
    runs = size.stage * size.microbatches
    if size.plan.loss == "fused":
        add(found, "all-gather", "tp", runs, size.tokens * 3 * 4)
    else:
        add(found, "all-reduce", "tp", runs * 3, size.tokens * 4)
    return found


def pipeline(size: Size) -> Moved:
    """Return messages: every boundary of virtual stages, forward and backward."""
    found: Moved = Counter()
    pp, virtual = size.plan.parallel.pp, size.plan.pipeline.virtual
    if pp > 1:
        boundary = size.own * size.model.hidden * size.element
        add(found, "send", "pp", 2 * (pp * virtual - 1) * size.stage * size.microbatches, boundary)
    return found


def context(size: Size, layers: int) -> Moved:
    """Return what ranks of cp exchange: keys and values round a ring, or gathered; or heads for sequence."""
    found: Moved = Counter()
    cp, own, head = size.plan.parallel.cp, size.model.attention, size.model.head_size
    if cp == 1:
        return found
    kv = 2 * (own.kv_heads or own.heads) * head // size.tp * size.tokens * size.element
    again = size.plan.recompute == "full"
    runs = size.stage * size.microbatches * layers
    if size.plan.parallel.context == "ring":
        # Backward keys and values go round once more, and sums of their gradients behind them.
        add(found, "send", "cp", runs * (cp - 1) * (3 + again), kv)
    elif size.plan.parallel.context == "all-to-all":
        # Queries and outputs have all heads, keys and values fewer. Forward q, k, v and o; backward the gradient of o,
        # then those of q, k, v: what is exchanged is what a rank holds, its own part included.
        heads = own.heads * head // size.tp * size.tokens * size.element
        add(found, "all-to-all", "cp", runs * (2 + 2 + 2 * again), heads)
        add(found, "all-to-all", "cp", runs * (2 + 2 + 2 * again), kv // 2)
    else:
        add(found, "all-gather", "cp", runs * (2 + again), kv)
        add(found, "reduce-scatter", "cp", runs, cp * kv)
    return found


def replicas(
    size: Size, parts: list[int], uses: int, group: str, ranks: int, held: int, layers: list[int]
) -> Moved:
    """Return what replicas of a stage move.

    Args:
        size: The plan.
        parts: Parameters of each pipeline stage, as one bucket.
        uses: Of a layer in a microbatch: forward and backward; a layer used twice in a row stays.
        group: Of replicas.
        ranks: Members of it.
        held: Ranks of a pipeline stage.
        layers: Parameters of every layer of the only stage, where layers are gathered.
    """
    found: Moved = Counter()
    kind, e, g = size.plan.data.sharding, size.element, size.gradient
    if ranks == 1:
        return found
    for part in parts:
        shard = ceil(part / ranks)
        if kind == "ddp":
            add(found, "all-reduce", group, held, part * g)
        elif kind in ("zero-1", "zero-2"):
            every = size.microbatches if kind == "zero-2" else 1
            add(found, "reduce-scatter", group, held * every, shard * ranks * g)
            add(found, "all-gather", group, held, shard * e)
    if kind in ("fsdp", "zero-3"):
        for place, part in enumerate(layers):
            # The last layer's backward follows its forward, and the first's forward the backward before it.
            times = size.microbatches * uses
            times -= size.microbatches * (place == len(layers) - 1) + (size.microbatches - 1) * (place == 0)
            add(found, "all-gather", group, held * times, ceil(part / ranks) * e)
            add(found, "reduce-scatter", group, held * size.microbatches, ceil(part / ranks) * ranks * g)
    return found


def partial(size: Size, stages: list[int], every: int, held: int) -> Moved:
    """Return the sums over tp at the end of a step (FSDP: of each layer and microbatch)."""
    found: Moved = Counter()
    for each in stages:
        if each:
            add(found, "all-reduce", "tp", held * every, each * size.gradient)
    return found


def norm_of_gradients(size: Size, experts: bool = False) -> Moved:
    """Return the sum of squares over all ranks that hold different parameters."""
    found: Moved = Counter()
    every = size.plan.data.sharding != "ddp" or experts
    members = size.ranks if every else size.tp * size.plan.parallel.pp
    if members > 1:
        add(found, "all-reduce", "tp+cp+dp+pp" if every else "tp+pp", size.ranks, 4)
    return found


def decoder(size: Size) -> Moved:
    """Return all that a dense decoder moves in a step."""
    own, pp, layers = dense(size), size.plan.parallel.pp, size.model.layers
    per_stage = layers // pp
    parts = [own.layer * per_stage + own.embedding * (k == 0) + own.head * (k == pp - 1) for k in range(pp)]
    shared = [own.partial * per_stage + own.partial_head * (k == pp - 1) for k in range(pp)]
    fsdp = size.plan.data.sharding in ("fsdp", "zero-3")
    each = [own.embedding, *[own.layer] * layers, own.head]
    found = tensor(size, layers) + pipeline(size) + context(size, layers) + norm_of_gradients(size)
    found += replicas(size, parts, 2, "dp+cp", size.stage // size.tp, size.stage, each)
    if fsdp and size.dp * size.plan.parallel.cp > 1:
        found += partial(size, [0, *[own.partial] * layers, own.partial_head], size.microbatches, size.stage)
    else:
        found += partial(size, shared, 1, size.stage)
    if size.model.tied and pp > 1:
        table = ceil(size.model.vocabulary / size.tp) * size.model.hidden
        add(found, "all-reduce", "pp.ends", 2 * size.stage, table * size.gradient)
    return found
