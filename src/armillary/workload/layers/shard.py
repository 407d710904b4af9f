"""The share of one rank of a microbatch, and the precisions in which it computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from armillary.base.errors import InputError
from armillary.workload.layers.layer import Precision
from armillary.workload.plan.experts import Dispatcher
from armillary.workload.plan.numbers import Stores, dispatch, gradient, stored, stores
from armillary.workload.plan.scaling import alignment
from armillary.workload.plan.schema import ELEMENT, Context, Lora, Plan


def divisors(number: int) -> list[int]:
    """Return the divisors of a number, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def near(wanted: int, possible: list[int]) -> int:
    """Return the possible number nearest to the one wanted."""
    return min(possible, key=lambda each: (abs(each - wanted), each))


@dataclass(frozen=True)
class Shard:
    """The share of one rank.

    Attributes:
        batch: Samples.
        queries: Tokens of a sample that the ranks of cp process together.
        keys: Tokens of a sample that the last query sees.
        tp: Ranks that share every matrix.
        sequence: Whether ranks of tp also share the residual (sequence parallelism).
        overlap: Whether they gather and scatter concurrently with the GEMMs.
        backward: What hides collectives inside a layer in the backward pass, see `Parallel`.
        cp: Ranks that share every sample.
        context: Whether ranks of cp pass keys and values round, gather them, or exchange heads for sequence.
        ep: Ranks that share the experts.
        etp: Ranks that share every expert.
        expert_rank: Coordinate of this rank along ep.
        skew: Exponent of the Zipf law of the experts' load.
        domain: Ranks of ep in a node, to which a token is sent once; None: it is sent to each expert.
        dispatch: Bytes of an element sent to experts.
        dispatcher: What sends tokens to experts, see `armillary.workload.layers.dispatcher`; None: a plain exchange.
        compute: Precision of large GEMMs.
        gradient: Bytes of an element of a weight's gradient.
        fused: Whether GEMMs accumulate gradients of weights themselves.
        flash: Whether attention scores stay on the chip.
        eager: Whether scale, mask and casts of the scores are separate kernels.
        causal: Whether to count only the scores that a causal mask keeps.
        dropout: Whether masks are kept.
        recompute: What the backward pass recomputes.
        keep: Results that full recomputation keeps.
        modules: What selective recomputation makes again; empty: scores of attention.
        recompute_every: Of so many layers one is recomputed.
        lora: What is trained beside frozen weights; None: all weights.
        compiled: Whether element-wise operations are fused into one kernel each.
        separate: Whether projections of one input are GEMMs of their own.
        adds: Whether GEMMs add gradients of weights to those of other microbatches; otherwise they write them as they
            are, and what reduces them widens them.
        early_stop: Whether recomputation ends with the last result that the backward pass needs.
        training: Whether there is a backward pass.
        loss: ``fused``: the gradient of the logits overwrites them; ``softmax``: it overwrites their probabilities in
            fp32; ``dense``: it is apart from both; ``eager``: it is, and each operation is a kernel.
        dummies: Whether GEMMs that accumulate gradients return others for autograd.
        recipe: How operands in fp8 or fp4 are scaled; None: each GEMM casts its own.
        align: Tokens to a multiple of which those of an expert are padded.
        quantise: How operands of experts are quantised, see `armillary.workload.plan.scaling.Recipe`.
    """

    batch: int
    queries: int
    keys: int
    tp: int
    sequence: bool
    overlap: bool
    backward: Literal["any", "in-order", "serial"]
    cp: int
    context: Context
    ep: int
    etp: int
    expert_rank: int
    skew: float
    domain: int | None
    dispatch: int
    compute: Precision
    gradient: int
    fused: bool
    flash: bool
    eager: bool
    causal: bool
    dropout: bool
    recompute: Literal["none", "selective", "full"]
    early_stop: bool
    training: bool
    loss: Literal["fused", "softmax", "dense", "eager"]
    dummies: bool
    keep: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    recompute_every: int = 1
    compiled: bool = True
    separate: bool = False
    adds: bool = True
    lora: Lora | None = None
    recipe: str | None = None
    align: int = 1
    quantise: str = "joined"
    dispatcher: Dispatcher | None = None
    stores: Stores | None = None
    """Storage precisions of inference; None in training."""

    @property
    def tokens(self) -> int:
        """Tokens between the collectives of tp."""
        return self.batch * self.queries // self.cp

    @property
    def own(self) -> int:
        """Tokens of the residual on this rank."""
        return self.tokens // self.tp if self.sequence else self.tokens

    @property
    def distinct(self) -> bool:
        """Whether no two ranks have the same tokens of the residual."""
        return self.sequence or self.tp == 1

    @property
    def element(self) -> int:
        """Bytes of an activation's element: fp8 is for GEMM operands only, unless the plan stores activations in it."""
        if self.stores:
            return ELEMENT[self.stores.activations]
        return 4 if self.compute == "fp32" else 2

    def cached(self, count: int) -> int:
        """Return the bytes of `count` elements of keys and values that a pass reads."""
        return stored(count, self.stores.cache) if self.stores else count * self.element

    @property
    def high(self) -> Precision:
        """Precision of GEMMs that stay out of fp8: attention, router, head."""
        return "fp32" if self.compute == "fp32" else "bf16"

    @property
    def operand(self) -> int:
        """Bytes of an operand of a large GEMM."""
        return ELEMENT[self.compute]


def training_shard(
    plan: Plan, sequence: int, expert_rank: int, *, longest: int | None = None, fixed: bool = False
) -> Shard:
    """Return the share of a rank of one microbatch of a training step.

    Args:
        plan: The plan.
        sequence: Tokens of a sample.
        expert_rank: Of the rank along ep.
        longest: Most tokens that the model takes, or None.
        fixed: Whether the model takes exactly this number of tokens.

    Raises:
        InputError: the sequence cannot be divided by cp and, with sequence parallelism, tp.
    """
    own = plan.parallel
    # Sequence parallelism divides the tokens of cp once more.
    divided = own.sequence and own.tp > 1
    unit = own.cp * (own.tp if divided else 1)
    if sequence % unit:
        below, above = max(unit, sequence // unit * unit), (sequence // unit + 1) * unit
        best = near(sequence, [below] if longest and above > longest else [below, above])
        terms = f"cp {own.cp} x tp {own.tp}" if divided else f"cp {own.cp}"
        whole = "parallel.sequence: false" if divided and sequence % own.cp == 0 else ""
        nearest = f" cp: {near(own.cp, divisors(sequence))}" if fixed else f": {best}"
        hint = f"nearest: {whole}" if fixed and whole else f"nearest{nearest}" + f", or {whole}" * bool(whole)
        raise InputError(f"sequence {sequence}: expected a multiple of {terms} = {unit} ({hint})")
    if own.cp > 1 and plan.attention != "flash":
        raise InputError(f"attention {plan.attention}: expected flash with cp {own.cp}")
    return _shard(plan, plan.microbatch, sequence, sequence, divided, expert_rank, training=True)


def inference_shard(plan: Plan, tokens: int, context: int, batch: int, *, divided: bool) -> Shard:
    """Return the share of a rank of one forward pass of `batch` sequences.

    Args:
        plan: The plan.
        tokens: New tokens of a sequence.
        context: Keys that the last of them sees.
        batch: Sequences.
        divided: Whether ranks of tp share the tokens outside of GEMMs.

    Raises:
        InputError: a number is not possible.
    """
    own = plan.parallel
    for name, number, least in (("tokens", tokens, 1), ("batch", batch, 1), ("context", context, tokens)):
        if number < least:
            raise InputError(f"{name} {number}: expected at least {least}")
    if own.cp > 1:
        raise InputError(f"cp {own.cp}: inference does not divide sequences, expected 1")
    divided = divided and own.tp > 1
    if divided and batch * tokens % own.tp:
        total = batch * tokens
        best = near(batch, [b for b in range(1, batch + own.tp + 1) if b * tokens % own.tp == 0])
        raise InputError(
            f"batch {batch} x tokens {tokens} = {total}: expected a multiple of tp {own.tp}, which share the tokens "
            f"as etp is not tp (nearest batch: {best})"
        )
    return _shard(plan, batch, tokens, context, divided, 0, training=False)


def _shard(
    plan: Plan, batch: int, queries: int, keys: int, divided: bool, expert_rank: int, *, training: bool
) -> Shard:
    own, torch = plan.parallel, plan.data.sharding in ("fsdp", "hsdp")
    if not 0 <= expert_rank < own.ep:
        raise InputError(f"expert rank {expert_rank}: expected 0 to {own.ep - 1}")
    return Shard(
        batch=batch,
        queries=queries,
        keys=keys,
        tp=own.tp,
        sequence=divided,
        overlap=own.overlap and training,
        backward=own.backward,
        cp=own.cp,
        context=own.context,
        ep=own.ep,
        etp=own.etp or own.tp,
        expert_rank=expert_rank,
        skew=plan.experts.skew,
        domain=plan.experts.domain,
        dispatch=dispatch(plan),
        compute=plan.numbers.compute,
        gradient=gradient(plan),
        fused=plan.numbers.fused,
        flash=plan.attention == "flash",
        eager=plan.attention == "eager",
        causal=plan.causal,
        dropout=plan.dropout and training,
        recompute=plan.recompute,
        keep=tuple(plan.keep),
        modules=tuple(plan.recompute_modules),
        recompute_every=plan.recompute_every,
        compiled=plan.compiled or not training,
        early_stop=plan.early_stop,
        training=training,
        # Megatron-LM's cross entropy writes the gradient into the softmax; PyTorch's, which goes with FSDP, does not.
        loss=plan.loss if plan.loss != "unfused" else "dense" if torch else "softmax",
        dummies=plan.numbers.fused and not torch,
        separate=plan.projections == "separate" and training,
        # FSDP2 reduces the gradients of each microbatch, unless it holds weights for the whole step.
        adds=not (
            plan.data.copies and plan.data.reshard and plan.data.sharding in ("zero-3", "fsdp", "hsdp")
        ),
        lora=plan.lora,
        recipe=plan.numbers.recipe,
        align=alignment(plan),
        quantise=plan.experts.quantise,
        dispatcher=plan.experts.dispatcher,
        stores=None if training else stores(plan),
    )


def check_divides(axis: str, ranks: int, name: str, size: int) -> None:
    """Check that `ranks` along an axis divide a size.

    Raises:
        InputError: they do not.
    """
    if size % ranks:
        best = near(ranks, divisors(size))
        raise InputError(f"{axis} {ranks}: expected a divisor of {name} {size} (nearest: {best})")
