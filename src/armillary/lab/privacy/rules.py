"""An attack by rules: what an expert reads from a single trace without having seen another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from armillary.lab.privacy.facts import Circle, Facts, facts_of, work_of
from armillary.trace.columns import NodeType
from armillary.trace.gemm import GEMM
from armillary.trace.graph import Graph
from armillary.trace.trace import Trace

_STEP = 64
"""Hidden sizes are multiples of it."""
_MANY = 0.15
"""Collectives per kernel above which they belong to the layers rather than to the weights."""


@dataclass(frozen=True)
class Guess:
    """A guessed attribute of the workload, and the reason."""

    attribute: str
    value: int | None
    why: str


def attack(trace: Trace) -> list[Guess]:
    """Return the guesses about the workload of a trace; a value is None where no rule applies.

    Raises:
        InputError: the trace cannot be read.
    """
    facts = facts_of(trace)
    inner = _inner(facts)
    tp = inner.size if inner else 1
    dp = max(1, trace.n_ranks // (tp * facts.stages * facts.ring))
    graph = max(trace.graphs, key=lambda each: int(work_of(each)[0].sum()))
    # Stages in the middle send activations and gradients; the first and the last send one message a microbatch.
    sends = min(int((each.types == NodeType.COMM_SEND_NODE).sum()) for each in trace.graphs)
    layers, why_layers = _layers(graph, facts.stages, sends if facts.stages > 1 else 0)
    hidden, why_hidden = _hidden(graph, inner, tp)
    return [
        Guess("hidden", hidden, why_hidden),
        Guess("layers", layers, why_layers),
        Guess(
            "tp",
            tp,
            f"groups of {tp} run the most collectives" if inner else "no group runs collectives in layers",
        ),
        Guess("pp", facts.stages, f"messages join {facts.stages} ranks of different graphs"),
        Guess(
            "dp",
            dp,
            f"{trace.n_ranks} ranks ÷ tp ÷ pp" + (f" ÷ a ring of {facts.ring}" if facts.ring > 1 else ""),
        ),
    ]


def _inner(facts: Facts) -> Circle | None:
    """Return the groups that share layers (tensor parallelism): neighbours that run many collectives."""
    kernels = [int((graph.types == NodeType.COMP_NODE).sum()) for graph in facts.trace.graphs]
    average = float(np.dot(kernels, facts.ranks)) / facts.trace.n_ranks
    several = [circle for circle in facts.circles if circle.size > 1]
    found = max(several, key=lambda circle: circle.calls, default=None)
    return found if found and found.calls >= _MANY * average and found.stride == 1 else None


def _tokens(graph: Graph) -> Counter[tuple[int, int]]:
    """Return how often each kernel, identified by (operations, bytes), occurs; pointwise kernels are left out."""
    operations, moved = work_of(graph)
    return Counter(
        {
            pair: count
            for pair, count in Counter(zip(operations.tolist(), moved.tolist(), strict=True)).items()
            if pair[0] > 2**20
        }
    )


def _layers(graph: Graph, stages: int, sends: int) -> tuple[int | None, str]:
    """Count a motif: kernels of layers occur once per layer and microbatch, those around them once per microbatch."""
    tokens = _tokens(graph)
    if not tokens:
        return None, "no kernel names its operations"
    weight = Counter[int]()
    for (operations, _), count in tokens.items():
        weight[count] += operations * count
    # The number of occurrences in which most operations are done is that of the large GEMMs of a layer.
    top = weight.most_common(1)[0][0]
    if top < 4:
        return None, "no kernel occurs more than 3 times"
    # A kernel may stand several times in a layer: the rarest that still does a relevant share stands once.
    every = min(count for count, total in weight.items() if 4 * count >= top and total > 0.02 * weight[top])
    # Kernels around the layers (embedding, head) stand once per microbatch, far more rarely than those of layers.
    rare = [count for count in weight if count * 4 <= every]
    batches = max(1, sends or min(rare, default=1))
    return max(
        1, every // batches
    ) * stages, f"kernels occur {every} times, in {batches} microbatches and {stages} stages"


def _hidden(graph: Graph, inner: Circle | None, tp: int) -> tuple[int | None, str]:
    """Find the hidden size in GEMMs, in the sizes of collectives, or in operations and bytes of a kernel."""
    gemms = list(_gemms(graph))
    if gemms:
        sizes = Counter[int]()
        for m, n, k, count in gemms:  # tokens are m in two of the three GEMMs of a layer
            sizes.update({n: count})
            sizes.update({k: count})
            sizes.subtract({m: count})
        return sizes.most_common(1)[0][0], "the most frequent side of GEMMs"
    found = Counter[int]()
    for (operations, moved), count in _tokens(graph).most_common(40):
        for hidden in _square(operations, moved, tp):
            found[hidden] += count
    if found:
        best, count = found.most_common(1)[0]
        return (
            best,
            f"operations and bytes of {count} kernels are those of a GEMM with {best} x {best // tp} weights",
        )
    if inner is not None:
        size = _common_size(graph)
        # A GEMM of (t, h / tp) with (h / tp, h) does 2 t h² / tp operations, and its all-reduce moves 2 t h
        # bytes of bf16: their ratio times tp is h.
        ratio = (
            sorted(operations / size for operations, _ in _tokens(graph) if operations > size) if size else []
        )
        if ratio:
            guess = max(_STEP, round(ratio[0] * tp / _STEP) * _STEP)
            return guess, "operations of the smallest GEMM per byte of the most frequent collective"
    return None, "no GEMM, and no kernel whose operations and bytes are those of one"


def _gemms(graph: Graph) -> Iterator[tuple[int, int, int, int]]:
    codes, lists = graph.int_lists(GEMM)
    counts = np.bincount(codes[codes >= 0], minlength=len(lists)).tolist()
    for numbers, count in zip(lists, counts, strict=True):
        # Five numbers for each GEMM: calls, batch, m, n, k.
        for at in range(0, len(numbers) - 4, 5):
            calls, _, m, n, k = numbers[at : at + 5]
            yield m, n, k, count * calls


def _square(operations: int, moved: int, tp: int) -> Iterator[int]:
    """Yield each h for which a GEMM of (t, h / tp) with (h / tp, h) has these operations and moves these bytes in bf16.

    It does 2 t h² / tp operations and moves 2 (t h / tp + t h + h² / tp) bytes; t is an integer, too.
    """
    if operations * tp % 2:
        return
    half = moved / 2
    # h³ / tp - half h + (operations / 2) (1 + tp) = 0
    for root in np.roots([1 / tp, 0.0, -half, operations / 2 * (1 + tp)]):
        # Not a real number, or smaller than any hidden size.
        if abs(root.imag) > 1e-6 * abs(root) or root.real < _STEP:
            continue
        hidden = round(root.real / _STEP) * _STEP
        tokens, rest = divmod(operations * tp, 2 * hidden * hidden)
        size = tokens * hidden // tp + tokens * hidden + hidden * hidden // tp
        if rest == 0 and tokens >= 16 and hidden <= 65536 and 2 * size == moved:
            yield hidden


def _common_size(graph: Graph) -> int:
    at = graph.types == NodeType.COMM_COLL_NODE
    sizes = Counter(graph.ints("comm_size")[at].tolist())
    return sizes.most_common(1)[0][0] if sizes else 0
