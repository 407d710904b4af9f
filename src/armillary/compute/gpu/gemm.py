"""GEMMs on a GPU: waves of tiles, in the best tile that a library would choose.

A GEMM is cut into tiles of the result, and where there are few of them k is cut, too. Tiles run on the SMs in waves
(tile and wave quantisation: NVIDIA, Matrix Multiplication Background User's Guide). What a wave takes is limited by
tensor cores, by the operands that an SM takes in, and by the latency of a step of k; the whole by the memory, of which
the cache keeps what was used a moment ago. A library chooses by its own estimate. Where kernels take one tile after
another that is as good as the time itself; older ones count full waves, and cut k late (`_estimated`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from armillary.base.portable import power
from armillary.compute.gpu.device import GemmFit, Gpu
from armillary.compute.gpu.power import Power
from armillary.compute.gpu.residuals import Residuals
from armillary.compute.model import Floats, Ints

ELEMENT = {"fp32": 4, "bf16": 2, "fp8": 1, "fp4": 0.5}
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
"""Numbers of parts that k may be cut into; without 32, k of 65,536 took twice as long as measured on an A100."""
LEAST_DEPTH = 128
"""Least elements of k in a part."""
RESIDENT = 128 * 128
"""Results of the tiles that share an SM, whose steps hide each other's latency."""
MOST_RESIDENT = 4
MOST_SHARED = 8
"""Tiles that a library counts on an SM at most."""
SPLIT_TURNS = 4
"""A library cuts k only where the tiles do not fill the units so many times.

With 2, GEMMs of an A100 were 0.1 % further off, those of an H100 and a B200 as far; with more all are as far."""
RETAINED = 0.75
"""Share of the cache within which data is found again: 0.75 to 0.79 where it was fitted to an H100 and a B200."""
EVICTION = 8
"""Exponent by which data beyond `RETAINED` is lost: both fits want it sharp, 8 to 10."""
ACCUMULATION = 0.8
"""Share of adding to a result in fp32 that a GEMM waits for.

With it weight gradients of an A100 and a B200 under load are as far off as forward GEMMs (0: 8 % more)."""
UNALIGNED = 0.7
"""How much longer SMs work for each halving of what a load takes in, where rows do not begin at whole loads.

NVIDIA says that dimensions should be multiples of 16 bytes (Matrix Multiplication Background User's Guide). By vTrain's
steps on an A100, whose head has 50,257 // tp columns: with 2 bytes (tp 1) its GEMMs take 3.0 to 3.3 times as long as
with whole loads (tp 2), with 8 bytes (tp 4) 1.8 to 2.1, with 4 bytes (tp 8) 2.0 to 2.6."""
LOOPED = 5
"""Copies of the weights that published loops over one GEMM go through (aiconfigurator, collect_gemm.py)."""
BOUNDS = ("compute", "cache", "latency", "memory")
_ROWS = 512
"""GEMMs at a time: what numpy works on stays in the caches."""


def gemm_seconds(
    gpu: Gpu,
    precision: str,
    sizes: Floats,
    written: Floats | float = 2.0,
    fit: GemmFit | None = None,
    sustained: float = 1.0,
    copies: float = math.inf,
    power: Power | None = None,
    transposed: NDArray[np.bool_] | bool = False,
    residuals: Residuals | None = None,
) -> tuple[Floats, Ints]:
    """Return how long GEMMs take, and what limits them.

    Args:
        gpu: The device.
        precision: Precision of the operands.
        sizes: (GEMMs, 4) m, n, k and the number of GEMMs in one kernel.
        written: (GEMMs) or all alike: bytes read and written of an element of the result.
        fit: Constants other than those of `gpu`.
        sustained: Share of the clocks that is left, whatever the load.
        copies: Weights that are used in turn: `LOOPED` in a measurement; infinite where each GEMM has its own.
        power: Limit of the power under a load that lasts; None: GEMMs run alone, at full clocks.
        transposed: (GEMMs) or all alike: the left operand lies in memory along m, as in gradients of weights.
        residuals: What GEMMs that are timed by themselves take besides; single ones, of rows along k, whose result is
            only written.

    Returns:
        (GEMMs) s, and index into `BOUNDS`.
    """
    fit = fit or gpu.gemm_fit(precision)
    candidates = _candidates(gpu)
    written = np.broadcast_to(np.asarray(written, float), len(sizes))
    slower = _unaligned(sizes, gpu.load / ELEMENT[precision], np.asarray(transposed))
    seconds, bound = np.zeros(len(sizes)), np.zeros(len(sizes), np.int64)
    # In portions: (candidates, GEMMs) arrays of all at once would leave the caches.
    for at in range(0, len(sizes), _ROWS):
        part = slice(at, at + _ROWS)
        seconds[part], bound[part] = _best(
            gpu,
            precision,
            sizes[part],
            written[part],
            slower[part],
            fit,
            sustained,
            copies,
            power,
            candidates,
        )
    if residuals:
        alike = (sizes[:, 3] == 1) & (written <= max(2.0, ELEMENT[precision])) & ~np.asarray(transposed)
        seconds[alike] = seconds[alike] * residuals.factors(sizes[alike])
    return seconds, bound


def _candidates(gpu: Gpu) -> Mapping[str, Floats]:
    """Return columns of rows, columns and SMs of a tile, and parts of k."""
    table = np.array([(*tile, parts) for tile in gpu.tiles for parts in SPLITS], float)
    return {name: table[:, at : at + 1] for at, name in enumerate(("rows", "columns", "share", "parts"))}


def _best(
    gpu: Gpu,
    precision: str,
    sizes: Floats,
    written: Floats,
    slower: Floats,
    fit: GemmFit,
    sustained: float,
    copies: float,
    power: Power | None,
    candidates: Mapping[str, Floats],
) -> tuple[Floats, Ints]:
    m, n, k, batch = sizes.T
    rows, columns, share, parts = (candidates[each] for each in ("rows", "columns", "share", "parts"))
    element = ELEMENT[precision]
    rate = gpu.peaks[precision] * fit.rate * sustained
    # Shapes: candidates are (candidates, 1), GEMMs (GEMMs,), so everything below is (candidates, GEMMs).
    memory = gpu.bandwidth * fit.memory
    # Elements of k in a step, as a step is `depth` bytes.
    step = gpu.depth / element

    # Edge tiles are computed whole: tile quantisation.
    tiles = np.ceil(m / rows) * np.ceil(n / columns) * batch
    # Units that work on a tile: SMs, or groups of SMs that share one.
    units = gpu.sms // share
    # Tiles are handed out in turns of one per unit: wave quantisation.
    turns = np.ceil(tiles * parts / units)
    depth = np.ceil(k / parts / step) * step
    # Small tiles share an SM: their latencies overlap, their work does not.
    resident = np.clip(RESIDENT // (rows * columns), 1, MOST_RESIDENT)
    waves = np.ceil(turns / resident)
    # A result is written while the next tile is computed; what is added to one in fp32 is waited for.
    least = max(2.0, element)
    hidden, waited = np.minimum(written, least), np.maximum(written - least, 0)
    moved = _moved(gpu, fit, (m * k * element, k * n * element, m * n * hidden), batch, copies) / memory
    if fit.again:
        walked = _walked(gpu, element, (m, n, k), (rows, columns), units)
        moved = moved + fit.again * walked * batch / memory
    if fit.ramp:
        moved = moved * (1 + fit.ramp / (moved + fit.ramp))
    added = m * n * waited * batch / memory
    # Filling the pipeline and writing the result: `area` of it grows with the tile, `overlap` is hidden by the next.
    ends = fit.tile * (1 - fit.area + fit.area * rows * columns / RESIDENT)
    limits = (
        # Tensor cores, operands into the SM, latency of steps, memory: in the order of BOUNDS.
        slower * turns * depth * (2 * rows * columns / (rate / gpu.sms * share)),
        slower * turns * depth * ((rows + columns) * element / (fit.feed * sustained * share)),
        slower * waves * depth * (fit.step / 64 / sustained) + (waves - 1) * ends * fit.overlap,
        np.broadcast_to(moved, tiles.shape),
    )
    idle = (waves - 1) * ends * (1 - fit.overlap)
    time = _overlapped(limits, idle, fit.sharp) + ends
    # Parts of a split k are written and read again in fp32: 8 bytes per result, in the cache.
    summed = np.where(parts > 1, fit.split + parts * (m * n * batch * 8 / (memory * fit.cached)), 0.0)
    time = time + summed
    least_depth = np.where(tiles > units, max(LEAST_DEPTH, fit.part), LEAST_DEPTH)
    allowed = (parts == 1) | ((k / parts >= least_depth) & (tiles * (parts - 1) < SPLIT_TURNS * units))
    estimated = time
    if gpu.shared:
        known = _moved(gpu, fit, (m * k * element, k * n * element, m * n * hidden), batch, math.inf) / memory
        estimated = _estimated(gpu, fit, turns, rows * columns, (*limits[:3], known), idle) + ends + summed
    best, each = np.argmin(np.where(allowed, estimated, np.inf), axis=0), np.arange(len(sizes))
    # The longer a GEMM keeps the device busy, the more the clocks sink: half of `drop` after `after`.
    busy = 2 * m * n * k * batch / rate
    seconds = time[best, each] * (1 + fit.drop * busy / (busy + fit.after))
    if fit.vector:
        # A single row is multiplied without tiles.
        row = together((k * (fit.vector_step / 64 / sustained), limits[3][best, each]), fit.sharp)
        seconds = np.where((m == 1) & (batch == 1), np.minimum(seconds, row + fit.vector), seconds)
    if power:
        # What follows the clocks is stretched; the memory keeps its own.
        limited, pause = tuple(limit[best, each] for limit in limits), idle[best, each]
        # Tensor cores that wait for narrow loads take no power.
        longer = 1 / power.clocks(limited[0] / slower / time[best, each])
        rest = time[best, each] - _overlapped(limited, pause, fit.sharp)
        slowed = (*(limit * longer for limit in limited[:3]), limited[3])
        stretched = _overlapped(slowed, pause, fit.sharp) + rest
        seconds = seconds * (stretched / time[best, each])
    seconds = seconds + added * ACCUMULATION + fit.launch
    if fit.cast:
        # The left operand is read in 16 bits and written in the precision of the GEMM.
        seconds = seconds + fit.cast + m * k * batch * (2 + element) / (gpu.bandwidth * fit.cast_memory)
    bound = np.argmax(np.stack([limit[best, each] for limit in limits]), axis=0)
    return seconds, bound


def _estimated(
    gpu: Gpu, fit: GemmFit, turns: Floats, area: Floats, limits: tuple[Floats, ...], idle: Floats
) -> Floats:
    """Return the time of the waves of tiles as a library counts them: in full waves of the tiles that share an SM.

    More than one tile an SM are counted as `Gpu.shared` results, so that 112 tiles of 256 x 128 seem as fast as 224 of
    128 x 128, which take three turns and not four. On an A100 GEMMs whose k is not cut show it: of all m and n with 48
    and more tiles of 256 x 128 they take 1.09 to 1.14 times as long as full turns of that tile, and by the fastest tile
    they would be up to 25 % faster.
    """
    together_on = np.clip(gpu.shared // area, 1, MOST_SHARED)
    counted = np.where(turns > 1, np.ceil(turns / together_on) * together_on / turns, 1.0)
    compute, feed, latency, moved = limits
    if fit.ramp:
        moved = moved * (1 + fit.ramp / (moved + fit.ramp))
    moved = np.broadcast_to(moved, turns.shape)
    return _overlapped((compute * counted, feed * counted, latency, moved), idle, fit.sharp)


def _unaligned(sizes: Floats, load: float, transposed: NDArray[np.bool_]) -> Floats:
    """Return (GEMMs) how many times as long SMs work, as loads are narrower than one of `load` elements."""
    m, n, k, _ = sizes.astype(np.int64).T
    whole = max(1, int(load))
    # Rows of the operands and of the result; k of a gradient of weights is no row's length. Those of experts with odd
    # numbers of tokens were measured to be as fast as others (SimuMax, B200).
    elements = np.gcd(np.gcd(n, np.where(transposed, m, k)), whole)
    # Exponents of powers of two are exact.
    found: Floats = 1 + UNALIGNED * (np.frexp(whole / elements)[1] - 1)
    return found


def _overlapped(limits: tuple[Floats, ...], idle: Floats, sharp: float) -> Floats:
    """Return the time of limits as in `BOUNDS`, with what the SMs idle between waves.

    The memory works on meanwhile: results that one wave has left are written, operands of the next are read. Added to
    all limits alike, what SMs idle made GEMMs of k up to 128, which only write, 5 to 10 % too slow on an H100.
    """
    return together((together(limits[:3], sharp) + idle, limits[3]), sharp)


def _moved(
    gpu: Gpu, fit: GemmFit, tensors: tuple[Floats, Floats, Floats], batch: Floats, copies: float
) -> Floats:
    """Return (GEMMs) the bytes that the memory would have to move in the time of all tensors.

    What is used again before `RETAINED` of the cache has passed comes from there, `fit.cached` times as fast.
    """
    left, right, result = (each * batch for each in tensors)
    if not gpu.cache:
        return left + right + result
    # The left operand and the result come again with each GEMM, a weight after those of all copies.
    once = _found(left + right + result, gpu.cache)
    again = _found(left + copies * right + result, gpu.cache)
    near = (left + result) * once + right * again
    return left + right + result - near * (1 - 1 / fit.cached)


def _walked(
    gpu: Gpu, element: float, sizes: tuple[Floats, Floats, Floats], tile: tuple[Floats, Floats], units: Floats
) -> Floats:
    """Return (candidates, GEMMs) the bytes of operands of one GEMM that later waves read again, past the cache.

    Tiles are handed out along the shorter side of the result first, so every wave reads the whole operand of that side.
    NVFP4 GEMMs of CUTLASS on a B200 show it (aiconfigurator): 5.4 PFLOP/s at 4,096 x 16,384 x 16,384, whose operand of
    34 MB stays in the cache; 3.7 at 8,192, 3.5 at 16,384 and 32,768, whatever they take; 4.8 at 32,768 x 8,192 x 8,192.
    """
    m, n, k = sizes
    high, wide = np.ceil(m / tile[0]), np.ceil(n / tile[1])
    side = np.minimum(high, wide)
    # A side of more tiles than run at a time is walked once for each tile of the other.
    walks = np.where(side <= units, np.ceil(high * wide / units), np.maximum(high, wide))
    operand = np.where(high <= wide, m, n) * k * element
    lost = 1 - _found(operand, gpu.cache) if gpu.cache else 1.0
    found: Floats = operand * (walks - 1) * lost
    return found


def _found(distance: Floats, cache: float) -> Floats:
    """Return the share of data that is found in the cache when `distance` bytes passed since it was used."""
    # 1e6: past it the share is 0 anyway, and powers of infinity would warn.
    found: Floats = 1 / (1 + power(np.minimum(distance / (RETAINED * cache), 1e6), EVICTION))
    return found


def together(limits: tuple[Floats, ...], sharp: float) -> Floats:
    """Return what limits that overlap take: (Σ xᵖ)^(1/p), the largest where one stands out."""
    largest = np.maximum.reduce(limits)
    # Divided by the largest first: powers of plain seconds would underflow.
    # One call for all: most of the time of a power is that of calls.
    powers = power(np.stack(np.broadcast_arrays(*limits)) / largest, sharp)
    total: Floats = largest * power(sum(powers[1:], start=powers[0]), 1 / sharp)
    return total
