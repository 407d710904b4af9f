"""What collectives take from the kernels beside them: processors from GEMMs, bandwidth of the memory from others.

A communication library runs a collective by kernels of its own. They occupy processors, which computation then lacks,
and move what is sent through the memory of the device several times: a ring reads what it sends, and writes and reads
what it receives. Both are shares of the device that are gone while the collective moves data, so the slowdown follows
the kernel, the collective and the device; see `armillary.platform.kernels.Terms`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.collective.demand import plain
from armillary.collective.fitted.regimes import share
from armillary.engine.common.fits import fit_of
from armillary.engine.common.network import CollectiveCall
from armillary.engine.common.timeline import KINDS, Timeline
from armillary.engine.physical import layout as lk
from armillary.engine.physical.program import PhysicalProgram
from armillary.platform.model import Platform
from armillary.trace import Graph

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
WHOLE = 1 << 12
"""Units of a device: shares are whole numbers of them, so that sums do not depend on their order."""
MOST = WHOLE * 9 // 10
"""Units that collectives take together at most: NCCL leaves kernels some of every resource."""


def processors(platform: Platform) -> int:
    """Return the processors of an NPU, by the device that times kernels or by the fit that times collectives.

    Raises:
        InputError: neither says how many there are.
    """
    compute = platform.compute
    if compute.model == "gpu":
        from armillary.compute.gpu.device import load_gpu

        return load_gpu(str(compute.options["device"]), compute.folder).sms
    if platform.collectives.fit:
        return fit_of(platform.collectives.fit).sheet.processors
    raise InputError(
        f"{platform.source or 'platform'}: terms.overlap.processors: expected compute.model gpu or collectives.fit, "
        "whose device says how many processors there are"
    )


def check_resources(platform: Platform) -> None:
    """Check that a machine says what collectives can take.

    Raises:
        InputError: names what is missing.
    """
    terms, npu, where = platform.terms, platform.npu, platform.source or "platform"
    if terms.overlap_processors:
        have = processors(platform)
        if terms.overlap_processors >= have:
            raise InputError(
                f"{where}: terms.overlap.processors: got {terms.overlap_processors:g}, expected "
                f"less than the {have} processors of the device"
            )
    if terms.overlap_traffic and not (npu.memory.bandwidth and npu.peak_flops):
        raise InputError(
            f"{where}: terms.overlap.traffic: expected npu.memory.bandwidth and npu.peak, which "
            "tell which kernels the memory bounds"
        )


def sent(call: CollectiveCall, members: int) -> float:
    """Return the bytes that a member sends over the links at least, as nccl-tests count them (bus bandwidth)."""
    operation = plain(call.operation)
    # Traces state what a member contributes to an all-gather; the share is of the result.
    size = call.size * members if operation == "all-gather" else call.size
    return size * share(operation, members)


def taken(program: PhysicalProgram, timeline: Timeline, begun: Ints, platform: Platform) -> Floats:
    """Return which share of its device each node lacks on average, in issue order, concatenated by class.

    Args:
        program: The program.
        timeline: Of its run.
        begun: Tick at which each node of the timeline begins to move data, negative for what is no collective.
        platform: The machine.
    """
    terms = platform.terms
    units = int(WHOLE * terms.overlap_processors / processors(platform)) if terms.overlap_processors else 0
    moved = np.array([sent(plan.call, len(plan.comm.real.members)) for plan in program.plans], np.float64)
    found, first = [], 0
    for c, view in enumerate(program.views):
        rows = program.items[first : first + len(view.call)]
        first += len(view.call)
        at = slice(int(timeline.node_ptr[c]), int(timeline.node_ptr[c + 1]))
        start, end = timeline.spans(c)
        plan = np.full(len(start), -1, np.int64)
        calls = view.call >= 0
        plan[view.nodes.order[view.nodes.items[calls]]] = rows[calls, lk.I_PLAN]
        kernel = np.flatnonzero(timeline.table(c).kind == KINDS.index("compute"))
        collective = np.flatnonzero(begun[at] >= 0)
        since, until = begun[at][collective], end[collective]
        bound = memory_bound(view.nodes.graph, platform)[kernel]
        part = np.zeros(len(start))
        part[kernel[~bound]] = lacked(
            start[kernel[~bound]],
            end[kernel[~bound]],
            since,
            until,
            np.full(len(collective), units, np.int64),
        )
        if terms.overlap_traffic:
            through = terms.overlap_traffic * moved[plan[collective]]
            carried = np.maximum(until - since, 1) * platform.npu.memory.bandwidth
            bytes_units = (WHOLE * np.minimum(through / carried, 1.0)).astype(np.int64)
            part[kernel[bound]] = lacked(start[kernel[bound]], end[kernel[bound]], since, until, bytes_units)
        found.append(part[view.nodes.order])
    return np.concatenate(found)


def memory_bound(graph: Graph, platform: Platform) -> NDArray[np.bool_]:
    """Return which nodes of a graph need the memory for longer than the processors, by the peaks of both."""
    flops, moved = graph.ints("num_ops", 0), graph.ints("tensor_size", 0)
    peak: float | Floats = platform.npu.peak_flops / 1e9
    if platform.npu.peaks:
        codes, names = graph.strings("precision")
        every = [platform.npu.peaks.get(name, platform.npu.peak_flops) for name in names]
        peak = np.array([*every, platform.npu.peak_flops])[codes] / 1e9
    # What names no work is taken for computation.
    result: NDArray[np.bool_] = (moved > 0) & (moved * peak >= flops * platform.npu.memory.bandwidth)
    return result


def lacked(start: Ints, end: Ints, since: Ints, until: Ints, units: Ints) -> Floats:
    """Return the mean share of the device that others take during each interval, at most `MOST` at a time.

    Args:
        start: Of each interval.
        end: Of each interval.
        since: When each of the others begins.
        until: When it ends.
        units: What it takes meanwhile, of `WHOLE`.
    """
    if not len(start) or not units.any():
        return np.zeros(len(start))
    ticks, changes = np.concatenate([since, until]), np.concatenate([units, -units])
    order = np.argsort(ticks, kind="stable")
    ticks = ticks[order]
    level = np.minimum(np.cumsum(changes[order]), MOST)
    # 13 days: areas of longer runs would not fit.
    if ticks[-1] >= 1 << 50:
        level = level.astype(np.float64)
    # Area below the steps up to each change.
    area = np.concatenate([[0], np.cumsum(level[:-1] * np.diff(ticks))])

    def below(tick: Ints) -> Ints:
        last = np.searchsorted(ticks, tick, side="right") - 1
        found: Ints = np.where(last >= 0, area[last] + level[last] * (tick - ticks[last]), 0)
        return found

    took = end - start
    result: Floats = np.where(took > 0, (below(end) - below(start)) / (np.maximum(took, 1) * WHOLE), 0.0)
    return result
