"""A platform as a table of values with units, for ``armillary machine show``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from armillary.base.units import format_bandwidth, format_bytes, format_count, format_flops, format_time
from armillary.platform.collectives import COLLECTIVES, algorithm_text
from armillary.platform.kernels import term_words
from armillary.platform.memory import MemoryStage
from armillary.platform.model import Platform, ports
from armillary.platform.network import Dimension, InNetwork, Port, port
from armillary.platform.profiles import (
    astra_sim_active_chunks,
    astra_sim_algorithms,
    astra_sim_endpoint_delay,
)

if TYPE_CHECKING:
    from rich.console import Group


def describe(platform: Platform) -> dict[str, Any]:
    """Return a platform as plain values, ready for JSON: ns, bytes/s and FLOP/s, as the key names say."""
    npu, compute, collectives = platform.npu, platform.compute, platform.collectives
    memory, astra_sim, bus = platform.remote_memory, platform.astra_sim, platform.astra_sim.shared_bus
    return {
        "source": str(platform.source) if platform.source else None,
        "dialect": platform.dialect,
        "npus": platform.npus,
        "dimensions": [
            {
                "name": dimension.name,
                "topology": dimension.topology,
                "size": dimension.size,
                # Bytes per ns times 1e9: keys say bytes per s, as people compare them with data sheets.
                "link_bandwidth_bytes_per_s": dimension.bandwidth * 1e9,
                "npu_bandwidth_bytes_per_s": port.out * 1e9,
                "npu_bandwidth_in_bytes_per_s": port.into * 1e9,
                "latency_ns": dimension.latency,
                "in_network": _in_network(dimension),
            }
            for dimension, port in zip(platform.dimensions, ports(platform), strict=True)
        ],
        "algorithms": {kind: list(names) for kind, names in _algorithms(platform).items()},
        "custom_collectives": dict(astra_sim.custom)
        | {str(node): prefix for node, prefix in astra_sim.custom_by_node.items()},
        "collective_optimization": astra_sim.collective_optimization,
        "inter_dimension_scheduling": astra_sim.inter_dimension,
        "intra_dimension_scheduling": astra_sim.intra_dimension,
        "chunks": collectives.chunks,
        # What profile astra-sim derives, since the keys beside it are that program's; "physical" below has
        # its own.
        "active_chunks": astra_sim_active_chunks(platform),
        "queues_per_dimension": astra_sim.queues_per_dim,
        "rendezvous": astra_sim.rendezvous,
        "endpoint_delay_ns": astra_sim_endpoint_delay(platform),
        "local_memory_bandwidth_bytes_per_s": npu.memory.bytes_per_s,
        "peak_flops": npu.peak_flops,
        "peak_flops_by_precision": npu.peaks,
        "local_memory_capacity_bytes": npu.memory.capacity or None,
        "roofline": bool(compute.model),
        "replay_only": compute.replay,
        "compute_model": compute.model or None,
        "compute_overrides": [vars(each) for each in compute.overrides],
        "shared_bus": vars(bus) | {"local_reduction_delay_ns": astra_sim.local_reduction_delay}
        if bus
        else None,
        "physical": {
            "scheduling": platform.scheduling,
            "algorithms": {kind: list(names) for kind, names in collectives.algorithms.items()},
            "endpoint_delay_ns": npu.message_delay,
            "speed": {str(rank): speed for rank, speed in npu.speed.items()},
            "stragglers_ns": {str(rank): delay for rank, delay in platform.stragglers.items()},
            "jitter": vars(platform.jitter) if platform.jitter else None,
            "variation": {name: vars(cause) for name, cause in platform.variation.causes().items()}
            if platform.variation
            else None,
            "compute_efficiency": compute.kernels.compute,
            "memory_efficiency": compute.kernels.memory,
            "kernel_overhead_ns": compute.kernels.overhead,
            "collective_fit": collectives.fit.name if collectives.fit else None,
            "terms": platform.terms.facts(),
        },
        # `folder` is no JSON, and options follow only where the kind takes some.
        "remote_memory": None
        if memory.kind == "none"
        else {key: value for key, value in vars(memory).items() if key not in ("options", "folder")}
        | {"stages": [vars(stage) for stage in memory.stages]}
        | ({"options": dict(memory.options)} if memory.plugged else {}),
        "storage": {
            # What a storage beside the network has, others have not.
            name: value
            for name, value in vars(platform.storage).items()
            if value or name not in ("at", "operations")
        }
        if platform.storage
        else None,
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
    # Rich is slow to import, and JSON output does not need it.
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
    npu, collectives, kernels = platform.npu, platform.collectives, platform.compute.kernels
    memory, astra_sim = platform.remote_memory, platform.astra_sim
    active, delay = astra_sim_active_chunks(platform), astra_sim_endpoint_delay(platform)
    rows = [(kind, ", ".join(names)) for kind, names in _algorithms(platform).items()]
    rows += [
        (f"in switches of {d.name}", _able_text(d.in_network)) for d in platform.dimensions if d.in_network
    ]
    rows += [
        ("collective optimization", astra_sim.collective_optimization),
        ("chunks", f"{collectives.chunks}, {active} active per dimension"),
        ("queues per dimension", str(astra_sim.queues_per_dim)),
        (
            "endpoint delay",
            f"{format_time(npu.message_delay)} in physical, {format_time(delay)} in astra-sim"
            # One value where both profiles agree, which is the rule where the file states it.
            if npu.message_delay != delay
            else format_time(delay),
        ),
        ("rendezvous", "yes" if astra_sim.rendezvous else "no"),
        (
            "local memory",
            _or(npu.memory.bandwidth, format_bandwidth(npu.memory.bandwidth))
            + (f", {format_bytes(npu.memory.capacity)}" if npu.memory.capacity else "")
            + (f", accesses of kind {npu.memory.kind}" if npu.memory.kind else ""),
        ),
        ("peak performance", _peak(npu.peak_flops, npu.peaks)),
        ("compute time", _compute(platform)),
    ]
    if (astra_sim.inter_dimension, astra_sim.intra_dimension) != ("ascending", "FIFO"):
        row = (
            f"{astra_sim.inter_dimension} across dimensions, {astra_sim.intra_dimension} within, in astra-sim"
        )
        rows.append(("chunk scheduling", row))
    if kernels.compute != 1 or kernels.memory != 1:
        shares = f"{100 * kernels.compute:g} % of the peak, {100 * kernels.memory:g} % of memory"
        rows.append(("kernel efficiency", f"{shares} bandwidth, in physical"))
    if kernels.overhead:
        rows.append(("kernel overhead", f"{format_time(kernels.overhead)}, in physical"))
    if platform.scheduling != "fair":
        rows.append(("scheduling", f"{platform.scheduling}, in physical"))
    if npu.speed:
        rows.append(("compute speed", _span(npu.speed, lambda factor: f"x {factor:g}")))
    if platform.stragglers:
        rows.append(("stragglers", _span(platform.stragglers, format_time)))
    if platform.jitter:
        rows.append(("jitter", f"{100 * platform.jitter.sigma:g} %, seed {platform.jitter.seed}"))
    if platform.variation:
        rows.append(("variation", f"{', '.join(platform.variation.causes()) or 'none'}"))
    if collectives.fit:
        names = [dimension.name for dimension in platform.dimensions[: collectives.fit.inner]]
        rows.append(("collective fit", f"{collectives.fit.name}, in physical; a node is {', '.join(names)}"))
        if host := collectives.fit.host:
            way = f"{format_bandwidth(host.bandwidth)}, {host.near} NPUs near a NIC, in physical"
            rows.append(("through the host", way))
    if platform.terms.on():
        rows.append(("terms", f"{term_words(platform.terms.facts())}, in physical"))
    if platform.compute.replay:
        rows.append(("replay", "every node takes its recorded duration"))
    if astra_sim.shared_bus:
        bus = astra_sim.shared_bus
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
    rows += [(f"custom {kind}", prefix) for kind, prefix in astra_sim.custom.items()]
    rows += [(f"custom of node {node}", prefix) for node, prefix in astra_sim.custom_by_node.items()]
    if platform.groups:
        rows.append(("communicator groups", format_count(len(platform.groups))))
    return rows


def _algorithms(platform: Platform) -> dict[str, tuple[str, ...]]:
    """Return the algorithms as stated, and the natural ones for what ASTRA-sim runs and the file does not list."""
    found = {kind: astra_sim_algorithms(platform, kind) for kind in COLLECTIVES}
    # Empty rows: collectives that ASTRA-sim's files do not list and therefore do not run.
    usual = {kind: tuple(map(algorithm_text, row)) for kind, row in found.items() if row}
    # Stated names win, even those that astra-sim cannot run.
    return usual | platform.collectives.algorithms


def _compute(platform: Platform) -> str:
    compute = platform.compute
    if compute.replay:
        return "as recorded"
    text = f"{compute.model} model" if compute.model else "as recorded"
    # A path tells two machines with model "table" apart.
    if "file" in compute.options and compute.model:
        text += f", {compute.options['file']}"
    return text + (f", overrides of {len(compute.overrides)} kinds of kernels" if compute.overrides else "")


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


# Zero stands for "not given" in all fields that use this.
def _or(value: float, text: str) -> str:
    return text if value else "not given"
