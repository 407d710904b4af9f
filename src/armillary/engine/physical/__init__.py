"""Profile `physical`: shared ports, every dimension crossed is paid for, collectives overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.engine.common.run import Run
    from armillary.engine.physical.program import PhysicalProgram
    from armillary.platform.model import Platform
    from armillary.trace import Trace


def run_physical(trace: Trace, platform: Platform, fold: bool) -> tuple[PhysicalProgram, Run, dict[str, Any]]:
    """Lower and run; returns the program, its final state and what a timeline says about the machine."""
    from armillary.engine.physical.lower import lower
    from armillary.engine.physical.run import execute
    from armillary.platform import check_physical

    check_physical(platform)
    program = lower(trace, platform, fold_ranks=fold)
    run, terms = execute(program), platform.physical.terms
    if terms.overlap:
        from armillary.engine.physical.terms.overlap import settle

        program, run = settle(program, run, platform)
    info = machine_info(program, platform)
    if terms.step:
        from armillary.engine.physical.terms.step import add_host_time

        info["host_ns"] = add_host_time(run, terms, trace.about)
    return program, run, info


def machine_info(program: PhysicalProgram, platform: Platform) -> dict[str, Any]:
    """Return what a timeline says about the machine."""
    from armillary.engine.physical.nodes import PhysicalNodes
    from armillary.platform.model import ports

    info: dict[str, Any] = {
        "ports": [{"out_bytes_per_ns": port.out, "into_bytes_per_ns": port.into} for port in ports(platform)],
        "scheduling": platform.physical.scheduling,
    }
    if platform.system.peak_performance > 0:
        info["peak_flops_per_ns"] = platform.system.peak_performance / 1e9
    if platform.system.local_mem_bandwidth > 0:
        info["memory_bytes_per_ns"] = platform.system.local_mem_bandwidth / 1e9
    if platform.physical.fit:
        from armillary.engine.physical.fitted import fit_of

        fit = fit_of(platform.physical.fit)
        info["collective_fit"] = {"name": platform.physical.fit.name, "notes": list(fit.notes)}
    if platform.physical.terms.on():
        info["terms"] = platform.physical.terms.facts()
    kernels = platform.physical.kernels
    if kernels.peaks:
        info["peaks_flops_per_ns"] = {name: peak / 1e9 for name, peak in kernels.peaks.items()}
    if any(view.nodes.roofline for view in program.views if isinstance(view.nodes, PhysicalNodes)):
        info["roofline"] = {
            "compute_efficiency": kernels.compute,
            "memory_efficiency": kernels.memory,
            "kernel_overhead_ns": kernels.overhead,
        }
    model = platform.kernel_model
    if (platform.system.roofline and model.name != "roofline") or model.overrides:
        info["compute_model"] = {"name": model.name if platform.system.roofline else "recorded"}
        own = model.options.get("file") or (model.options.get("device") if model.name == "gpu" else None)
        info["compute_model"] |= {"file": own} if own else {}
        if model.name == "systolic" and platform.system.roofline:
            from armillary.compute.systolic import memory_stalls

            info["compute_model"] |= {"note": memory_stalls(model.options)}
        info["compute_model"] |= {"overrides": len(model.overrides)}
    if model.uncertainty:
        info["uncertainty"] = {
            "low_ratio": model.uncertainty.low,
            "high_ratio": model.uncertainty.high,
            "of": model.uncertainty.of,
        }
    return info
