"""Fused attention on a GPU (FlashAttention: Dao et al., arXiv 2205.14135, 2307.08691).

A tile of queries of one head runs over its keys on one SM: two GEMMs of the tensor cores for each score, and a
softmax that other units compute. The backward pass has five GEMMs, as it makes the scores once more.
"""

from __future__ import annotations

import numpy as np

from armillary.base import portable
from armillary.compute.gpu.device import AttentionFit, Gpu
from armillary.compute.gpu.gemm import ELEMENT, together
from armillary.compute.gpu.power import Power
from armillary.compute.model import Floats

TILE = 128
"""Queries and keys of a tile."""
TUNED = 128
"""Elements of the heads that libraries tune their kernels for."""
COLUMNS = ("batch", "heads", "kv_heads", "queries", "keys", "key", "value", "backward", "pairs")
"""Columns of kernels: as `armillary.trace.attention.Attention`, and the scores of a head and sequence."""


def attention_seconds(
    gpu: Gpu,
    precision: str,
    table: Floats,
    fit: AttentionFit | None = None,
    sustained: float = 1.0,
    power: Power | None = None,
) -> Floats:
    """Return (kernels) s.

    Args:
        gpu: The device.
        precision: Precision of the operands.
        table: (kernels, 9) `COLUMNS`.
        fit: Constants other than those of `gpu`.
        sustained: Share of the nominal clocks that is left, whatever the load.
        power: Limit of the power under a load that lasts; None: kernels run alone, at full clocks.
    """
    fit = fit or gpu.attention_fit(precision)
    batch, heads, kv_heads, queries, keys, key, value, backward, pairs = np.asarray(table, float).T
    back = backward > 0
    rate = gpu.peaks[precision] / gpu.sms * sustained
    element = ELEMENT[precision]

    # A mask cuts tiles on its edge, which are computed whole; a window has two edges.
    # Scores under a plain causal mask: query i of the last `queries` positions sees keys - queries + 1 + i
    # keys.
    causal = queries * (keys - (queries - 1) / 2)
    edge = np.where(pairs < causal, TILE, np.where(pairs < queries * keys, TILE / 2, 0))
    computed = np.minimum(pairs + queries * edge, queries * keys)
    # Scores, and their GEMM with the values; backward also the gradients of V, P, Q and K.
    flops = np.where(back, 2 * (3 * key + 2 * value), 2 * (key + value))
    # s per score on one SM, of the tensor cores and of the softmax; units that overlap only in part add up as
    # a hypotenuse.
    gemms = flops / (rate * np.where(back, fit.backward_rate, fit.rate))
    score = portable.hypot(gemms, np.where(back, fit.backward_score, fit.score) / sustained)
    if power:
        # Tensor cores wait for the softmax: their load is less than that of a GEMM.
        score = score / power.clocks(flops / (rate * gpu.gemm_fit(precision).rate) / score)
    groups = batch * heads
    tiles = groups * np.ceil(queries / TILE)
    # Keys that the longest tile goes over: under a mask the last tile sees about twice the mean.
    reach = np.minimum(keys, computed / queries * np.where(pairs < queries * keys, 2, 1))
    longest = np.minimum(queries, TILE) * reach * score
    tensors = groups * queries * (key + value) + batch * kv_heads * keys * (key + value)
    # Queries and output of all heads, keys and values of the heads that have some; backward their gradients,
    # too.
    moved = tensors * element * np.where(back, 2, 1) / (gpu.bandwidth * fit.memory)
    time = together((groups * computed * score / gpu.sms, longest, moved), fit.sharp)
    # Each wave of tiles pays for starting and finishing once.
    time = time + np.ceil(tiles / gpu.sms) * fit.tile
    total: Floats = (
        time * np.where(key == TUNED, 1, np.where(back, fit.backward_other, fit.other)) + fit.launch
    )
    return total


def context_seconds(gpu: Gpu, precision: str, table: Floats, fit: AttentionFit | None = None) -> Floats:
    """Return (kernels) s of the prefill of an inference engine: with rotary embedding, and keys put in a cache."""
    chosen = fit or gpu.attention_fit(precision)
    return attention_seconds(gpu, precision, table, chosen) + chosen.context_launch


def scores(queries: Floats, keys: Floats, window: Floats) -> Floats:
    """Return the scores of a head by a causal mask; a query sees `window` keys at most (0: all)."""
    seen = np.where(window > 0, np.minimum(keys, window), keys)
    # The first queries see fewer keys than the window holds: 1, 2, 3 ... less, a triangle.
    lacking = np.maximum(0, seen - (keys - queries + 1))
    result: Floats = seen * queries - lacking * (lacking + 1) / 2
    return result
