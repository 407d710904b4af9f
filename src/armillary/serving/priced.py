"""Step times of a model on a machine: every kernel and collective of a pass.

What inference engines have kernels of their own for is timed by `armillary.serving.kernels`. Of the rest a pass of one
layer of each kind is put into one trace, for all sizes of steps one after another, and simulated once. Layers of a kind
take the same, and follow each other, so a step is their sum. Attention is timed apart, as it depends
on what each sequence has in the cache and all else only on how many tokens there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from armillary.engine import simulate
from armillary.platform.model import Platform
from armillary.serving.adapters import Adapters
from armillary.serving.kernels import STEP_NS, Kernels
from armillary.serving.step_table import Ints, StepTable
from armillary.serving.taken import (
    ATTENTION,
    OTHER,
    TOGETHER,
    Taken,
    graphs_of,
    is_routed,
    issue_ns,
    of_attention,
    take,
)
from armillary.trace import Trace
from armillary.workload.emit.rank import Rank
from armillary.workload.emit.template import piece
from armillary.workload.layers.layer import Layer, Precision, Step
from armillary.workload.layers.of_model import inference_layers
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.numbers import stored
from armillary.workload.plan.ranks import rank_grid
from armillary.workload.plan.schema import Plan

CLOSE = 1024
"""Tokens up to which steps are timed at most 16 tokens apart."""
DECODING = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
CHUNKS = (0, 1, 16, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
"""New tokens between which attention is linear: it grows with their square, which a line from 2 to 3 exceeds by 4 %."""
BEFORE = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
"""Tokens before them. The line through 0 and the first goes on below 0: several prompts have fewer scores than one."""
CONTEXTS = (1, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
"""Tokens before a sequence that decodes: attention is linear in the bytes of the cache."""


def priced(
    model: Decoder,
    plan: Plan,
    platform: Platform,
    *,
    budget: int,
    sequences: int,
    longest: int,
    captured: Sequence[int] = (),
    overhead_ns: int | None = None,
    kernels: Kernels | None = None,
    ranks: int = 1,
    drafts: int = 0,
    adapters: Adapters | None = None,
    attention: Precision | None = None,
) -> StepTable:
    """Return the times of steps.

    Args:
        model: A decoder.
        plan: Of inference; its batches do not matter.
        platform: Where it runs.
        budget: Most tokens of a step.
        sequences: Most sequences that run at a time.
        longest: Most tokens of a sequence.
        captured: Sizes to which steps are filled up, by CUDA graphs of them; beyond the largest nothing is.
        overhead_ns: What each step takes besides; None: what was measured of the engine.
        kernels: Those that the engine has of its own; None: none is known.
        ranks: Of a replica that have requests of their own; tokens and sequences are those of each.
        drafts: Tokens that a step checks behind the last one of each sequence that decodes.
        adapters: Of requests (LoRA).
        attention: Precision of its projections; None: as the plan says of all GEMMs.

    Raises:
        InputError: the plan is impossible for the model.
    """
    tokens = _sizes(budget)
    one = [_layers(model, plan, 1, 1, count) for count in tokens]
    counts = _counts(sequences * (1 + drafts))
    heads = [_layers(model, plan, 1, 1, count)[-1:] for count in counts]
    chunks = [*(each for each in CHUNKS if each < budget), budget]
    before = [0, BEFORE[0], *(each for each in BEFORE[1:] if each < longest)]
    decoding = [each for each in DECODING if each <= sequences]
    contexts = [each for each in CONTEXTS if each < longest] or [1]
    prefill = [_prompt(model, plan, max(1, new), past) for new in chunks for past in before]
    decode = [_answers(model, plan, past, max(1, many), 1 + drafts) for many in decoding for past in contexts]
    passes = [*(each[:-1] for each in one), *heads, *prefill, *decode]

    def run(layer: Layer) -> list[Step]:
        found = as_engines_run(projected(layer.forward, attention))
        return adapters.beside(found) if adapters else found

    own, attending, joint = _timed(passes, plan, platform, kernels, ranks, run)
    first, second = len(one), len(one) + len(heads)
    third = second + len(prefill)
    dense, together = (_fill_up(_each(tokens, each[:first], budget), captured) for each in (own, joint))
    head = _each(counts, own[first:second], sequences * (1 + drafts))
    step, sequence = (overhead_ns or 0, 0)
    if overhead_ns is None and kernels:
        step, sequence = STEP_NS
    head += sequence * np.arange(len(head))
    head[0] = 0
    of_prompts = attending[second:third].reshape(len(chunks), len(before))
    if model.attention.latent and not model.attention.sparse:
        # Whole prompts were timed: of their scores those of the new tokens count.
        new, past = np.maximum(1, np.array(chunks))[:, None], np.array(before)[None]
        scaled = np.rint(of_prompts * (1 - (past / (new + past)) ** 2)).astype(np.int64)
        of_prompts = np.maximum(of_prompts[:, :1], scaled)
    of_answers = attending[third:].reshape(len(decoding), len(contexts))
    of_prompts[np.array(chunks) == 0] = 0
    of_answers[np.array(decoding) == 0] = 0
    both = of_prompts[:, :, None, None] + of_answers[None, None]
    axes = tuple(np.array(each, np.int64) for each in (chunks, before, decoding, contexts))
    issued = (0, 0, 0)
    if kernels:
        count = sum(issue_ns(run(layer), kernels) for layer in one[0])
        issued = (count, *graphs_of(kernels.engine, captured[-1] if captured else 0))
    more = (int(model.attention.sparse is not None), drafts, model.layers)
    joined = together if ranks > 1 else np.zeros(1, np.int64)
    return StepTable(dense + step, head, axes, both * 1000, (*issued, *more), joined)  # type: ignore[arg-type]


def _prompt(model: Decoder, plan: Plan, new: int, past: int) -> list[Layer]:
    """Return the layers of `new` tokens of a prompt behind `past` ones, without embedding and head.

    With latent attention tokens behind others would be computed as in decoding; engines expand the keys instead, as for
    a whole prompt. Where it chooses keys, it reads small vectors as in decoding.
    """
    tokens = new + past if model.attention.latent and not model.attention.sparse else new
    return _layers(model, plan, tokens, new + past, 1)[1:-1]


def _answers(model: Decoder, plan: Plan, past: int, many: int, tokens: int) -> list[Layer]:
    """Return the layers of `tokens` tokens of `many` sequences that decode, without embedding and head.

    A linear layer moves its state for each token, as for sequences of their own.
    """
    found = _layers(model, plan, tokens, past + tokens, many)[1:-1]
    if tokens > 1 and model.linear:
        each = _layers(model, plan, 1, past + 1, many * tokens)[1:-1]
        pairs = enumerate(zip(found, each, strict=True))
        found = [one if model.mixes(at) == "linear" else all_of for at, (all_of, one) in pairs]
    return found


def _sizes(most: int) -> list[int]:
    """Return sizes so close that kernels hardly change between them: their tiles have 64 or 128 rows."""
    found = [*range(1, 65), *range(72, 257, 8), *range(272, CLOSE + 1, 16), *range(CLOSE + 256, 4097, 256)]
    found += range(5120, most + 1024, 1024)
    return [each for each in found if each < most] + [most]


def _counts(most: int) -> list[int]:
    """Return numbers of sequences for the head, which reads its weights for few of them."""
    found = [*range(1, 17), *range(24, 65, 8), *range(80, 257, 16), *range(320, most + 64, 64)]
    return [each for each in found if each < most] + [most]


def _each(sizes: Sequence[int], ns: Ints, most: int) -> Ints:
    """Return ns at 0, 1, 2 ... `most`: of the next size that was timed, as kernels fill up their tiles.

    From `CLOSE` on, where a tile more is little, they are on the line between two sizes.
    """
    all_of = np.arange(most + 1)
    stepped: Ints = ns[np.searchsorted(np.array(sizes), all_of)]
    straight = np.rint(np.interp(all_of, sizes, ns)).astype(np.int64)
    return np.asarray(np.where(all_of > CLOSE, straight, stepped))


def _fill_up(ns: Ints, captured: Sequence[int]) -> Ints:
    """Return ns where steps are filled up to the sizes of CUDA graphs."""
    to = np.arange(len(ns))
    points = np.array([each for each in sorted(captured) if each < len(ns)], np.int64)
    if len(points):
        small = to <= points[-1]
        to[small] = points[np.searchsorted(points, to[small])]
    result: Ints = ns[to]
    return result


def _layers(model: Decoder, plan: Plan, new: int, context: int, batch: int) -> list[Layer]:
    return inference_layers(model, plan, tokens=new, context=context, batch=batch)


QUANTISED = {"fp8": "delayed", "fp4": "nvfp4"}
"""Precision of a GEMM -> recipe by which the kernel before it has quantised its operand, as engines fuse that."""


def as_engines_run(steps: Sequence[Step]) -> list[Step]:
    """Return the kernels of a layer as inference engines run them; in training most of these are apart.

    The GEMMs of experts are one kernel. A norm adds the residual before it: it reads two vectors of each token and
    writes two, in place of three and two (vLLM's ``fused_add_rms_norm``). Operands in fp8 and fp4 are quantised by the
    kernel that makes them.
    """
    found = []
    named = {name for step in steps for name in step.after or ()}
    for step in steps:
        name, _, last = step.name.rpartition(".")
        if last == "add" and name.endswith("residual") and step.name not in named:
            continue
        # Routed and shared experts are summed before one all-reduce (``DeepseekV2MoE.forward`` of vLLM).
        if step.name == "shared.down.reduce" and step.name not in named:
            continue
        if last == "norm" and name in ("attention.norm", "mlp.norm"):
            step = replace(step, bytes=2 * step.bytes)
        elif step.gemms and step.precision in QUANTISED:
            step = replace(step, scaling=QUANTISED[step.precision])
        # The compute model goes by the last word of a name: see `armillary.compute.gpu.model.LINEAR`.
        if any(each.batch > 1 for each in step.gemms) and step.name not in named:
            step = replace(step, name=f"{name}.grouped")
        found.append(step)
    return found


PROJECTIONS = ("qkv", "q", "down", "q.up", "kv.up", "out")
"""Parts of a layer whose GEMM is a projection of attention."""


def projected(steps: Sequence[Step], precision: Precision | None) -> list[Step]:
    """Return the kernels of a layer, with projections of attention in a precision of their own; None: as they are."""
    found = []
    for step in steps:
        name, _, last = step.name.rpartition(".")
        if precision and last == "gemm" and name in PROJECTIONS and step.precision != precision:
            (gemm,) = step.gemms
            sizes = gemm.m * gemm.k, gemm.k * gemm.n
            more = sum(stored(size, precision) - stored(size, step.precision) for size in sizes)
            step = replace(step, precision=precision, bytes=step.bytes + more)
        found.append(step)
    return found


def _timed(
    passes: Iterable[Sequence[Layer]],
    plan: Plan,
    platform: Platform,
    kernels: Kernels | None,
    ranks: int,
    run: Callable[[Layer], list[Step]],
) -> Ints:
    """Return (kinds, passes) ns of each pass, of each kind of kernels: one simulation, in which they follow each other.

    Kinds are `OTHER`, `ATTENTION`, and, where `ranks` have requests of their own, `TOGETHER`.
    """
    taken = Taken()
    grid = rank_grid(plan)
    rank = Rank("steps", grid)
    before: list[int] = []
    # (pass, times, first node, end, nodes of attention, nodes of experts) of each distinct layer.
    placed: list[tuple[int, int, int, int, list[int], list[int]]] = []
    count = 0
    for number, layers in enumerate(passes):
        for layer, times in Counter(layers).items():
            steps = run(layer)
            if kernels:
                steps = take(steps, kernels, plan.parallel.tp, taken, number, times)
                if not steps:
                    continue
            made = piece(steps)
            base = rank.piece(made, before)
            before = [base + node for node in made.last]
            fused = {step.name for step in steps if of_attention(step)}
            names = [node.name for node in made.template.nodes]
            inside = [base + at for at, name in enumerate(names) if name in fused]
            joint = [base + at for at, name in enumerate(names) if ranks > 1 and is_routed(name)]
            placed.append((number, times, base, base + len(names), inside, joint))
        count = number + 1
    graph = rank.graph()
    trace = Trace((graph,), np.zeros(plan.ranks, np.int32), grid)
    timeline = simulate(trace, platform)
    start, end = timeline.node_start, timeline.node_end
    found = np.zeros((3, count), np.int64)
    tick = timeline.info["tick_ns"]
    for number, times, first, last, inside, joint in placed:
        whole = end[first:last].max() - start[first:last].min()
        parts = [(end[each] - start[each]).sum() for each in (inside, joint)]
        for kind, took in ((OTHER, whole - sum(parts)), (ATTENTION, parts[0]), (TOGETHER, parts[1])):
            found[kind, number] += times * took * tick
    if kernels:
        found += np.rint(taken.sums(kernels, count)).astype(np.int64)
    return found
