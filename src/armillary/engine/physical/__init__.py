"""Profile `physical`: shared ports, every dimension crossed is paid for, collectives overlap.

Sharing is why this is an engine of its own. In profile `astra-sim` the end of a phase follows from the starts
of its members. Here it depends on everything else in flight. Trace, platform, folding, communicators,
timeline and report are the same code for both.

- A phase of a chunk is a latency and a volume. Both follow from the algorithm, written as rounds of exact
  fractions (`collective.rounds`), and from the topology: how many links the farthest message of each round
  crosses, and how many bytes the fullest port or link carries.
- A collective on one line of ranks is a chunk flow; so is a channel of point-to-point messages. A chunk flow
  serves one volume at a time, the earliest phase first and in it the lowest chunk: what other dimensions wait
  for leaves first. With the lowest chunk first, a faster dimension could make a collective slower. Volume
  comes first and latency after it: the port is free again while the last byte is in flight.
- Each direction of each NPU's port in each dimension divides its bandwidth among the chunk flows that use it
  or, with `fifo`, `lifo` or `priority`, gives it to those that come first in one order for the whole machine.
  A chunk flow moves at the rate of its slowest port. With one order for the whole machine the first one
  always moves, so nothing can deadlock.
- A tick has two halves: everything that ends at it, then everything that starts. Neither depends on the order
  within it, so ties need no rule, and folding needs only which classes a rank deals with, not in which order.
- Volumes and rates are integers. A rate is rounded down and a finish up, so no result beats the links.
- Chunks that follow each other through different links of a dimension do not wait for each other. A phase
  keeps its ports busy for the bytes that the fullest link or port carries in all rounds; the rest of its
  rounds is latency. In a collective of one phase chunks also hide each other's latencies, as many as are in
  flight at a time.
- A message takes one route. Half-way round an even ring both directions are equally long; even positions then
  go up and odd ones down (`platform.topology.dimension_order.upwards`), in costs and in routes. Splitting
  each message would be faster by up to a half on a ring of four, but a connection has one route. Sending all
  messages one way, as some simulators do, leaves half of the links idle.

`tests/engine/physical/reference/evaluate.py` is the slow, obvious reference: every rank on its own, plain
objects, all rates computed afresh at every tick. A property-based test compares every node of every rank, to
the tick. `docs/simulator-in-150-lines.md` is the method alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.engine.common.lowered import Run
    from armillary.engine.physical.program import PhysicalProgram
    from armillary.platform.model import Platform
    from armillary.trace import Trace


MANY = 1 << 20
"""Nodes from which memory is given back before they run: 15 ms for 6 million, which take a second."""


def run_physical(trace: Trace, platform: Platform, fold: bool) -> tuple[PhysicalProgram, Run, dict[str, Any]]:
    """Lower a trace and run it; returns the program, its final state and facts about the machine for the timeline."""
    from armillary.engine.physical.lower import lower
    from armillary.engine.physical.program import execute
    from armillary.platform import physical_view

    # ASTRA-sim's keys that mean something else in this profile are dropped or refused.
    platform = physical_view(platform)
    program = lower(trace, platform, fold_ranks=fold)
    if program.sizes["states"] > MANY:
        from armillary.base.garbage import give_back

        # What ranks were read into stands in the program, and else would stay beside the state of the run.
        give_back()
    run, terms = execute(program), platform.terms
    # Overlap needs a finished run to measure, so it runs the program again with other durations.
    if terms.overlap:
        from armillary.engine.physical.terms.overlap import settle

        program, run = settle(program, run, platform)
    info = machine_info(program, platform)
    if terms.step:
        from armillary.engine.physical.terms.step import add_host_time

        info["host_ns"] = add_host_time(run, terms, trace.about)
    return program, run, info


def machine_info(program: PhysicalProgram, platform: Platform) -> dict[str, Any]:
    """Return the facts about the machine that a timeline carries for its reports."""
    from armillary.base.units import format_bandwidth
    from armillary.engine.physical.nodes import PhysicalNodes
    from armillary.platform.model import ports

    info: dict[str, Any] = {
        "ports": [{"out_bytes_per_ns": port.out, "into_bytes_per_ns": port.into} for port in ports(platform)],
        "scheduling": platform.scheduling,
    }
    if platform.npu.peak_flops > 0:
        info["peak_flops_per_ns"] = platform.npu.peak_flops / 1e9
    if platform.npu.memory.bandwidth > 0:
        info["memory_bytes_per_ns"] = platform.npu.memory.bandwidth
    if platform.collectives.fit:
        from armillary.engine.common.fits import fit_of

        fit = fit_of(platform.collectives.fit)
        host = platform.collectives.fit.host
        crossing = [f"{format_bandwidth(host.bandwidth)} through the host of a node to NICs"] if host else []
        info["collective_fit"] = {
            "name": platform.collectives.fit.name,
            "notes": [*fit.notes, *crossing],
        }
    if platform.terms.on():
        info["terms"] = platform.terms.facts()
    compute, kernels = platform.compute, platform.compute.kernels
    if platform.npu.peaks:
        info["peaks_flops_per_ns"] = {name: peak / 1e9 for name, peak in platform.npu.peaks.items()}
    if any(view.nodes.roofline for view in program.views if isinstance(view.nodes, PhysicalNodes)):
        info["roofline"] = {
            "compute_efficiency": kernels.compute,
            "memory_efficiency": kernels.memory,
            "kernel_overhead_ns": kernels.overhead,
        }
    # The roofline has a fact of its own above.
    if compute.model not in ("", "roofline") or compute.overrides:
        info["compute_model"] = {"name": compute.model or "recorded"}
        own = compute.options.get("file") or (
            compute.options.get("device") if compute.model == "gpu" else None
        )
        info["compute_model"] |= {"file": own} if own else {}
        if compute.model == "systolic":
            from armillary.compute.systolic import memory_stalls

            info["compute_model"] |= {"note": memory_stalls(compute.options)}
        if compute.model == "gpu":
            from armillary.compute.gpu.device import load_note

            info["compute_model"] |= {"note": note} if (note := load_note(compute.options)) else {}
        info["compute_model"] |= {"overrides": len(compute.overrides)}
    if compute.uncertainty:
        info["uncertainty"] = {
            "low_ratio": compute.uncertainty.low,
            "high_ratio": compute.uncertainty.high,
            "of": compute.uncertainty.of,
        }
    return info
