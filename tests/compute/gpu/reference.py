"""Products and attention on a GPU, one by one and tile by tile: the slow reference of `armillary.compute.gpu`."""

from __future__ import annotations

from math import ceil, inf

from armillary.compute.gpu.attention import TILE, TUNED
from armillary.compute.gpu.device import Gpu
from armillary.compute.gpu.gemm import (
    ACCUMULATION,
    ELEMENT,
    EVICTION,
    LEAST_DEPTH,
    MOST_RESIDENT,
    MOST_SHARED,
    RESIDENT,
    RETAINED,
    SPLIT_TURNS,
    SPLITS,
    UNALIGNED,
)
from armillary.compute.gpu.power import REST, VOLTAGE


def clocks(gpu: Gpu, load: float) -> float:
    """Return the share of the clocks that the power limit leaves: where REST + load * clocks**VOLTAGE meet it."""
    room = gpu.power.limit / gpu.power.demand - REST
    return min(1.0, (room / (1 - REST) / load) ** (1 / VOLTAGE))


def smooth(limits: tuple[float, ...], sharp: float) -> float:
    """Return (sum of x**sharp)**(1 / sharp)."""
    largest = max(limits)
    return largest * sum((each / largest) ** sharp for each in limits) ** (1 / sharp)


def overlapped(limits: tuple[float, ...], idle: float, sharp: float) -> float:
    """Return the time of limits of which the last, the memory, works on while SMs idle."""
    return smooth((smooth(limits[:3], sharp) + idle, limits[3]), sharp)


def one(
    gpu: Gpu,
    precision: str,
    m: int,
    n: int,
    k: int,
    batch: int,
    written: float,
    sustained: float,
    copies: float = inf,
    loaded: bool = False,
    transposed: bool = False,
) -> float:
    """Return the s of a product."""
    fit, element = gpu.gemm_fit(precision), ELEMENT[precision]
    load, narrow = gpu.load, 1.0
    while load > element and any(length * element % load for length in (n, m if transposed else k)):
        load, narrow = load / 2, narrow + UNALIGNED
    rate = gpu.peaks[precision] * fit.rate * sustained
    memory = gpu.bandwidth * fit.memory
    least = max(2.0, element)
    left, right = m * k * element * batch, k * n * element * batch
    result = m * n * min(written, least) * batch
    known = moved = left + right + result
    if gpu.cache:
        room = RETAINED * gpu.cache
        once = 1 / (1 + (moved / room) ** EVICTION)
        again = 0.0 if copies == inf else 1 / (1 + ((left + copies * right + result) / room) ** EVICTION)
        moved -= ((left + result) * once + right * again) * (1 - 1 / fit.cached)
        known -= (left + result) * once * (1 - 1 / fit.cached)
    moved, known = moved / memory, known / memory
    known += fit.ramp * known / (known + fit.ramp)
    least_estimate, best, chosen, pause = inf, inf, None, 0.0
    for rows, columns, share in gpu.tiles:
        units = gpu.sms // share
        tiles = ceil(m / rows) * ceil(n / columns) * batch
        for parts in SPLITS:
            least_depth = max(LEAST_DEPTH, fit.part) if tiles > units else LEAST_DEPTH
            if parts > 1 and (k / parts < least_depth or tiles * (parts - 1) >= SPLIT_TURNS * units):
                continue
            step = gpu.depth / element
            depth = ceil(k / parts / step) * step
            turns = ceil(tiles * parts / units)
            waves = ceil(turns / min(max(RESIDENT // (rows * columns), 1), MOST_RESIDENT))
            compute = narrow * turns * depth * 2 * rows * columns / (rate / gpu.sms * share)
            feed = narrow * turns * depth * (rows + columns) * element / (fit.feed * share * sustained)
            ends = fit.tile * (1 - fit.area + fit.area * rows * columns / RESIDENT)
            latency = narrow * waves * depth * fit.step / 64 / sustained + (waves - 1) * ends * fit.overlap
            high, wide = ceil(m / rows), ceil(n / columns)
            walks = ceil(high * wide / units) if min(high, wide) <= units else max(high, wide)
            operand = (m if high <= wide else n) * k * element
            lost = 1 - 1 / (1 + (operand / room) ** EVICTION) if gpu.cache else 1
            walked = fit.again * operand * (walks - 1) * lost * batch / memory
            fetched = moved + walked
            fetched += fit.ramp * fetched / (fetched + fit.ramp)
            limits = (compute, feed, latency, fetched)
            idle = (waves - 1) * ends * (1 - fit.overlap)
            time = overlapped(limits, idle, fit.sharp) + ends
            summed = 0.0
            if parts > 1:
                summed = fit.split + parts * m * n * batch * 8 / (memory * fit.cached)
            estimate = time = time + summed
            if gpu.shared:
                on = min(max(gpu.shared // (rows * columns), 1), MOST_SHARED)
                full = ceil(turns / on) * on / turns if turns > 1 else 1
                waited = (compute * full, feed * full, latency, known)
                estimate = overlapped(waited, idle, fit.sharp) + ends + summed
            if estimate < least_estimate:
                least_estimate, best, chosen, pause = estimate, time, limits, idle
    busy = 2 * m * n * k * batch / rate
    clocked = best * (1 + fit.drop * busy / (busy + fit.after))
    if fit.vector and m == batch == 1:
        row = smooth((k * fit.vector_step / 64 / sustained, chosen[3]), fit.sharp)
        clocked = min(clocked, row + fit.vector)
    slower = 1.0
    if loaded and gpu.power:
        share = clocks(gpu, chosen[0] / narrow / best)
        stretched = (*(each / share for each in chosen[:3]), chosen[3])
        before, after = (overlapped(each, pause, fit.sharp) for each in (chosen, stretched))
        slower = (best - before + after) / best
    added = m * n * max(written - least, 0) * batch / memory * ACCUMULATION
    best = clocked * slower + added + fit.launch
    if fit.cast:
        best += fit.cast + m * k * batch * (2 + element) / (gpu.bandwidth * fit.cast_memory)
    return best


def attend(gpu: Gpu, shape: tuple[int, ...], pairs: int, loaded: bool = False) -> float:
    """Return the s of fused attention in bf16."""
    batch, heads, kv_heads, queries, keys, key, value, backward = shape
    fit, rate = gpu.attention_fit("bf16"), gpu.peaks["bf16"] / gpu.sms
    masked, causal = pairs < queries * keys, queries * keys - queries * (queries - 1) // 2
    edge = TILE if pairs < causal else TILE / 2 if masked else 0
    computed = min(pairs + queries * edge, queries * keys)
    operations = 6 * key + 4 * value if backward else 2 * key + 2 * value
    if backward:
        score = ((6 * key + 4 * value) / rate / fit.backward_rate) ** 2 + fit.backward_score**2
    else:
        score = ((2 * key + 2 * value) / rate / fit.rate) ** 2 + fit.score**2
    if loaded and gpu.power:
        load = operations / rate / gpu.gemm_fit("bf16").rate / score**0.5
        score /= clocks(gpu, load) ** 2
    busy = batch * heads * computed * score**0.5 / gpu.sms
    longest = min(queries, TILE) * min(keys, computed / queries * (2 if masked else 1)) * score**0.5
    elements = batch * (heads * queries + kv_heads * keys) * (key + value)
    limits = (busy, longest, elements * 2 * (1 + backward) / gpu.bandwidth / fit.memory)
    time = smooth(limits, fit.sharp)
    time += ceil(batch * heads * ceil(queries / TILE) / gpu.sms) * fit.tile
    return time * (1 if key == TUNED else fit.backward_other if backward else fit.other) + fit.launch
