"""A platform as a table of values with units, for ``armillary platform show``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.platform.bandwidth import links_per_npu
from armillary.platform.model import Algorithm, Platform
from armillary.units import format_bandwidth, format_count, format_flops, format_time

if TYPE_CHECKING:
    from rich.console import Group


def algorithm_text(algorithm: Algorithm) -> str:
    """Return an algorithm as files write it, e.g. ``direct12``."""
    return algorithm.name + (str(algorithm.window) if algorithm.window else "")


def describe(platform: Platform) -> dict[str, Any]:
    """Return a platform as plain values, ready for JSON: ns, bytes/s and FLOP/s, as the key names say."""
    system, memory = platform.system, platform.memory
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
                "npu_bandwidth_bytes_per_s": dimension.bandwidth
                * 1e9
                * links_per_npu(dimension.topology, dimension.size),
                "latency_ns": dimension.latency,
            }
            for dimension in platform.dimensions
        ],
        "algorithms": {kind: [algorithm_text(a) for a in row] for kind, row in system.algorithms.items()},
        "custom_collectives": dict(system.custom) | {str(k): v for k, v in system.custom_by_node.items()},
        "collective_optimization": system.collective_optimization,
        "chunks": system.dataset_splits,
        "active_chunks": system.active_chunks,
        "queues_per_dimension": platform.queues_per_dim,
        "rendezvous": platform.rendezvous,
        "endpoint_delay_ns": system.endpoint_delay,
        "local_memory_bandwidth_bytes_per_s": system.local_mem_bandwidth,
        "peak_flops": system.peak_performance,
        "roofline": system.roofline,
        "replay_only": system.replay_only,
        "shared_bus": vars(system.shared_bus) | {"local_reduction_delay_ns": system.local_reduction_delay}
        if system.shared_bus
        else None,
        "remote_memory": None if memory.kind == "none" else vars(memory),
        "groups": {str(key): list(ranks) for key, ranks in platform.groups.items()},
        "warnings": list(platform.warnings),
    }


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
            format_bandwidth(dimension.bandwidth * links_per_npu(dimension.topology, dimension.size)),
            format_time(dimension.latency),
        )
    values = Table(title="System", title_justify="left", show_header=False)
    for name, text in _system_rows(platform):
        values.add_row(name, text)
    return Group(network, values, *(Text(f"warning: {text}") for text in platform.warnings))


def _system_rows(platform: Platform) -> list[tuple[str, str]]:
    system, memory = platform.system, platform.memory
    rows = [(kind, ", ".join(map(algorithm_text, row))) for kind, row in system.algorithms.items()]
    rows += [
        ("collective optimization", system.collective_optimization),
        ("chunks", f"{system.dataset_splits}, {system.active_chunks} active per dimension"),
        ("queues per dimension", str(platform.queues_per_dim)),
        ("endpoint delay", format_time(system.endpoint_delay)),
        ("rendezvous", "yes" if platform.rendezvous else "no"),
        ("local memory", _or(system.local_mem_bandwidth, format_bandwidth(system.local_mem_bandwidth / 1e9))),
        ("peak performance", _or(system.peak_performance, format_flops(system.peak_performance))),
        ("compute time", "roofline model" if system.roofline and not system.replay_only else "as recorded"),
    ]
    if system.replay_only:
        rows.append(("replay", "every node takes its recorded duration"))
    if system.shared_bus:
        bus = system.shared_bus
        rows.append(("shared bus", f"L {bus.L} ns, o {bus.o} ns, g {bus.g} ns, G {bus.G} ns/B"))
    if memory.kind != "none":
        speed = format_bandwidth(memory.bandwidth) if memory.bandwidth else "infinite bandwidth"
        node = f", {memory.npus_per_node} NPUs per node" if memory.kind == "per-node" else ""
        rows.append(("remote memory", f"{memory.kind}, {speed}, {format_time(memory.latency)}{node}"))
    rows += [(f"custom {kind}", prefix) for kind, prefix in system.custom.items()]
    rows += [(f"custom of node {node}", prefix) for node, prefix in system.custom_by_node.items()]
    if platform.groups:
        rows.append(("communicator groups", format_count(len(platform.groups))))
    return rows


def _or(value: float, text: str) -> str:
    return text if value else "not given"
