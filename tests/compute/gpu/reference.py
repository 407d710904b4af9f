"""Products and attention on a GPU, one by one and tile by tile: the slow reference of `armillary.compute.gpu`."""

from __future__ import annotations

from math import ceil, inf

from armillary.compute.gpu.attention import TILE, TUNED
from armillary.compute.gpu.device import Gpu
from armillary.compute.gpu.gemm import CACHED, ELEMENT, LEAST_DEPTH, MOST_RESIDENT, RESIDENT, SPLITS


def one(
    gpu: Gpu, precision: str, m: int, n: int, k: int, batch: int, written: float, sustained: float
) -> float:
    """Return the s of a product."""
    fit, element = gpu.gemm_fit(precision), ELEMENT[precision]
    rate = gpu.peaks[precision] * fit.rate * sustained
    memory = gpu.bandwidth * fit.memory
    moved = ((m * k + k * n) * element + m * n * written) * batch / memory
    best = inf
    for rows, columns, share in gpu.tiles:
        units = gpu.sms // share
        tiles = ceil(m / rows) * ceil(n / columns) * batch
        for parts in SPLITS:
            if parts > 1 and (k / parts < LEAST_DEPTH or tiles * (parts - 1) >= 2 * units):
                continue
            step = gpu.depth / element
            depth = ceil(k / parts / step) * step
            turns = ceil(tiles * parts / units)
            waves = ceil(turns / min(max(RESIDENT // (rows * columns), 1), MOST_RESIDENT))
            compute = turns * depth * 2 * rows * columns / (rate / gpu.sms * share)
            feed = turns * depth * (rows + columns) * element / (fit.feed * share * sustained)
            latency = waves * depth * fit.step / 64 / sustained
            limits = (compute, feed, latency, moved)
            largest = max(limits)
            time = largest * sum((each / largest) ** fit.sharp for each in limits) ** (1 / fit.sharp)
            time += waves * fit.tile
            if parts > 1:
                time += fit.split + parts * m * n * batch * 8 / (memory * CACHED)
            best = min(best, time)
    busy = 2 * m * n * k * batch / rate
    best = best * (1 + fit.drop * busy / (busy + fit.after)) + fit.launch
    if fit.cast:
        best += fit.cast + m * k * batch * (2 + element) / (gpu.bandwidth * fit.cast_memory)
    return best


def attend(gpu: Gpu, shape: tuple[int, ...], pairs: int) -> float:
    """Return the s of fused attention in bf16."""
    batch, heads, kv_heads, queries, keys, key, value, backward = shape
    fit, rate = gpu.attention_fit("bf16"), gpu.peaks["bf16"] / gpu.sms
    masked, causal = pairs < queries * keys, queries * keys - queries * (queries - 1) // 2
    edge = TILE if pairs < causal else TILE / 2 if masked else 0
    computed = min(pairs + queries * edge, queries * keys)
    if backward:
        score = ((6 * key + 4 * value) / rate / fit.backward_rate) ** 2 + fit.backward_score**2
    else:
        score = ((2 * key + 2 * value) / rate / fit.rate) ** 2 + fit.score**2
    busy = batch * heads * computed * score**0.5 / gpu.sms
    longest = min(queries, TILE) * min(keys, computed / queries * (2 if masked else 1)) * score**0.5
    elements = batch * (heads * queries + kv_heads * keys) * (key + value)
    limits = (busy, longest, elements * 2 * (1 + backward) / gpu.bandwidth / fit.memory)
    largest = max(limits)
    time = largest * sum((each / largest) ** fit.sharp for each in limits) ** (1 / fit.sharp)
    time += ceil(batch * heads * ceil(queries / TILE) / gpu.sms) * fit.tile
    return time * (1 if key == TUNED else fit.backward_other if backward else fit.other) + fit.launch
