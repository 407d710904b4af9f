"""A platform as a table of values with units, for ``armillary machine show``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from armillary.base.units import format_bandwidth, format_bytes, format_count, format_flops, format_time
from armillary.platform.algorithms import algorithm_text
from armillary.platform.memory import MemoryStage
from armillary.platform.model import Platform, ports
from armillary.platform.network import Dimension, InNetwork, Port, port
from armillary.platform.terms import words

if TYPE_CHECKING:
    from rich.console import Group


def describe(platform: Platform) -> dict[str, Any]:
    """Return a platform as plain values, ready for JSON: ns, bytes/s and FLOP/s, as the key names say."""
    system, memory, physical = platform.system, platform.memory, platform.physical
    return {
        "source": str(platform.source) if platform.source else None,
        "dialect": platform.dialect,
        "npus": platform.npus,
        "dimensions": [
            {
                "name": dimension.name,
                "topology": dimension.topology,
                "size": dimension.size,
                "link_bandwidth_bytes_per_s": dimension.bandwidth * 1e9,
                "npu_bandwidth_bytes_per_s": port.out * 1e9,
                "npu_bandwidth_in_bytes_per_s": port.into * 1e9,
                "latency_ns": dimension.latency,
                "in_network": _in_network(dimension),
            }
            for dimension, port in zip(platform.dimensions, ports(platform), strict=True)
        ],
        "algorithms": {kind: list(names) for kind, names in _algorithms(platform).items()},
        "custom_collectives": dict(system.custom) | {str(k): v for k, v in system.custom_by_node.items()},
        "collective_optimization": system.collective_optimization,
        "inter_dimension_scheduling": system.inter_dimension,
        "intra_dimension_scheduling": system.intra_dimension,
        "chunks": system.dataset_splits,
        "active_chunks": system.active_chunks,
        "queues_per_dimension": platform.queues_per_dim,
        "rendezvous": platform.rendezvous,
        "endpoint_delay_ns": system.endpoint_delay,
        "local_memory_bandwidth_bytes_per_s": system.local_mem_bandwidth,
        "peak_flops": system.peak_performance,
        "peak_flops_by_precision": physical.kernels.peaks,
        "local_memory_capacity_bytes": physical.memory.capacity or None,
        "roofline": system.roofline,
        "replay_only": system.replay_only,
        "compute_model": platform.kernel_model.name if system.roofline else None,
        "compute_overrides": [vars(each) for each in platform.kernel_model.overrides],
        "shared_bus": vars(system.shared_bus) | {"local_reduction_delay_ns": system.local_reduction_delay}
        if system.shared_bus
        else None,
        "physical": {
            "scheduling": physical.scheduling,
            "algorithms": {kind: list(names) for kind, names in physical.algorithm.items()},
            "endpoint_delay_ns": physical.endpoint_delay,
            "speed": {str(rank): speed for rank, speed in physical.speed.items()},
            "stragglers_ns": {str(rank): delay for rank, delay in physical.delay.items()},
            "jitter": vars(physical.jitter) if physical.jitter else None,
            "compute_efficiency": physical.kernels.compute,
            "memory_efficiency": physical.kernels.memory,
            "kernel_overhead_ns": physical.kernels.overhead,
            "collective_fit": physical.fit.name if physical.fit else None,
            "terms": physical.terms.facts(),
        },
        "remote_memory": None
        if memory.kind == "none"
        else {key: value for key, value in vars(memory).items() if key not in ("options", "folder")}
        | {"stages": [vars(stage) for stage in memory.stages]}
        | ({"options": dict(memory.options)} if memory.plugged else {}),
        "network_model": platform.network_model.name or None,
        "groups": {str(key): list(ranks) for key, ranks in platform.groups.items()},
        "warnings": list(platform.warnings),
    }


def _in_network(dimension: Dimension) -> dict[str, Any] | None:
    able = dimension.in_network
    if able is None:
        return None
    rate = able.rate * 1e9 if able.rate else None
    return {
        "rate_bytes_per_s": rate, "latency_ns": able.latency, "operations": able.operations or None
    }  # fmt: skip


def table(platform: Platform) -> Group:
    """Return the same as tables for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    network = Table(title=f"Network: {format_count(platform.npus)} NPUs", title_justify="left")
    for heading in ("dimension", "topology"):
        network.add_column(heading)
    for heading in ("size", "link bandwidth", "per NPU", "latency"):
        network.add_column(heading, justify="right")
    for dimension in platform.dimensions:
        network.add_row(
            dimension.name,
            dimension.topology,
            str(dimension.size),
            format_bandwidth(dimension.bandwidth),
            _port_text(port(dimension)),
            format_time(dimension.latency),
        )
    values = Table(title="System", title_justify="left", show_header=False)
    for name, text in _system_rows(platform):
        values.add_row(name, text)
    return Group(network, values, *(Text(f"warning: {text}") for text in platform.warnings))


def _able_text(able: InNetwork) -> str:
    rate = format_bandwidth(able.rate) if able.rate else "all that comes"
    most = f", {able.operations} chunks at a time" if able.operations else ""
    return f"adds up {rate}, {format_time(able.latency)}{most}"


def _system_rows(platform: Platform) -> list[tuple[str, str]]:
    system, memory, physical = platform.system, platform.memory, platform.physical
    rows = [(kind, ", ".join(names)) for kind, names in _algorithms(platform).items()]
    rows += [
        (f"in switches of {d.name}", _able_text(d.in_network)) for d in platform.dimensions if d.in_network
    ]
    rows += [
        ("collective optimization", system.collective_optimization),
        ("chunks", f"{system.dataset_splits}, {system.active_chunks} active per dimension"),
        ("queues per dimension", str(platform.queues_per_dim)),
        (
            "endpoint delay",
            f"{format_time(physical.endpoint_delay)} in physical, {format_time(system.endpoint_delay)} in astra-sim"
            if physical.endpoint_delay != system.endpoint_delay
            else format_time(system.endpoint_delay),
        ),
        ("rendezvous", "yes" if platform.rendezvous else "no"),
        (
            "local memory",
            _or(system.local_mem_bandwidth, format_bandwidth(system.local_mem_bandwidth / 1e9))
            + (f", {format_bytes(physical.memory.capacity)}" if physical.memory.capacity else "")
            + (f", accesses of kind {physical.memory.kind}" if physical.memory.kind else ""),
        ),
        ("peak performance", _peak(system.peak_performance, physical.kernels.peaks)),
        ("compute time", _compute(platform)),
    ]
    if (system.inter_dimension, system.intra_dimension) != ("ascending", "FIFO"):
        row = f"{system.inter_dimension} across dimensions, {system.intra_dimension} within, in astra-sim"
        rows.append(("chunk scheduling", row))
    if physical.kernels.compute != 1 or physical.kernels.memory != 1:
        shares = (
            f"{100 * physical.kernels.compute:g} % of the peak, {100 * physical.kernels.memory:g} % of memory"
        )
        rows.append(("kernel efficiency", f"{shares} bandwidth, in physical"))
    if physical.kernels.overhead:
        rows.append(("kernel overhead", f"{format_time(physical.kernels.overhead)}, in physical"))
    if physical.scheduling != "fair":
        rows.append(("scheduling", f"{physical.scheduling}, in physical"))
    if physical.speed:
        rows.append(("compute speed", _span(physical.speed, lambda factor: f"x {factor:g}")))
    if physical.delay:
        rows.append(("stragglers", _span(physical.delay, format_time)))
    if physical.jitter:
        rows.append(("jitter", f"{100 * physical.jitter.sigma:g} %, seed {physical.jitter.seed}"))
    if physical.fit:
        names = [dimension.name for dimension in platform.dimensions[: physical.fit.inner]]
        rows.append(("collective fit", f"{physical.fit.name}, in physical; a node is {', '.join(names)}"))
    if physical.terms.on():
        rows.append(("terms", f"{words(physical.terms.facts())}, in physical"))
    if system.replay_only:
        rows.append(("replay", "every node takes its recorded duration"))
    if system.shared_bus:
        bus = system.shared_bus
        rows.append(("shared bus", f"L {bus.L} ns, o {bus.o} ns, g {bus.g} ns, G {bus.G} ns/B"))
    if platform.network_model.name:
        rows.append(("network model", platform.network_model.name))
    if memory.kind == "hierarchical":
        rows.append(("remote memory", f"hierarchical, in chunks of {format_bytes(memory.chunk)}"))
        rows += [(f"  {stage.name}", _stage(stage)) for stage in memory.stages]
    elif memory.plugged:
        rows.append(("remote memory", memory.kind))
    elif memory.kind != "none":
        speed = format_bandwidth(memory.bandwidth) if memory.bandwidth else "infinite bandwidth"
        node = f", {memory.npus_per_node} NPUs per node" if memory.kind == "per-node" else ""
        rows.append(("remote memory", f"{memory.kind}, {speed}, {format_time(memory.latency)}{node}"))
    rows += [(f"custom {kind}", prefix) for kind, prefix in system.custom.items()]
    rows += [(f"custom of node {node}", prefix) for node, prefix in system.custom_by_node.items()]
    if platform.groups:
        rows.append(("communicator groups", format_count(len(platform.groups))))
    return rows


def _algorithms(platform: Platform) -> dict[str, tuple[str, ...]]:
    """Return the algorithms as stated, and the natural ones for what ASTRA-sim runs and the file does not list."""
    natural = {kind: tuple(map(algorithm_text, row)) for kind, row in platform.system.algorithms.items()}
    return natural | platform.physical.algorithm


def _compute(platform: Platform) -> str:
    model, system = platform.kernel_model, platform.system
    if system.replay_only:
        return "as recorded"
    text = f"{model.name} model" if system.roofline else "as recorded"
    if "file" in model.options and system.roofline:
        text += f", {model.options['file']}"
    return text + (f", overrides of {len(model.overrides)} kinds of kernels" if model.overrides else "")


def _peak(peak: float, peaks: dict[str, float]) -> str:
    if peaks:
        return ", ".join(f"{precision} {format_flops(value)}" for precision, value in peaks.items())
    return _or(peak, format_flops(peak))


def _port_text(port: Port) -> str:
    if port.out == port.into:
        return format_bandwidth(port.out)
    return f"{format_bandwidth(port.out)} up, {format_bandwidth(port.into)} down"


def _span(values: dict[int, float], write: Callable[[float], str]) -> str:
    """Return a value per rank in a few words, e.g. ``rank 3: x 0.8``."""
    if len(values) == 1:
        return "".join(f"rank {rank}: {write(value)}" for rank, value in values.items())
    return (
        f"{format_count(len(values))} ranks, {write(min(values.values()))} to {write(max(values.values()))}"
    )


def _stage(stage: MemoryStage) -> str:
    way = format_bandwidth(stage.read)
    if stage.read != stage.write:
        way = f"{way} read, {format_bandwidth(stage.write)} write"
    return f"{stage.count} per {stage.per}, {way} each, {format_time(stage.latency)}"


def _or(value: float, text: str) -> str:
    return text if value else "not given"
