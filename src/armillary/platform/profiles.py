"""What each profile makes of a platform, and refuses in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

from armillary.base.errors import InputError
from armillary.platform.algorithms import parse_algorithm
from armillary.platform.collectives import COLLECTIVES
from armillary.platform.dimension_topologies import TOPOLOGIES
from armillary.platform.model import KEY, Physical, Platform

_PLAIN = Physical()
NOT_ASTRA_SIM = "profile astra-sim does not model this, profile physical does"
Conflict = tuple[tuple[str, ...], str]
"""Where in a platform file (a dimension by its name), and what is wrong."""


def astra_sim_view(platform: Platform) -> Platform:
    """Return a platform as profile ``astra-sim`` sees it: a Torus is a Ring there.

    Raises:
        InputError: A native platform has something that only profile ``physical`` models.
    """
    for path, problem in astra_sim_conflicts(platform) if platform.dialect == "native" else ():
        raise InputError(f"{platform.source or 'platform'}: {'.'.join(path)}: {problem}")
    return replace(
        platform,
        dimensions=tuple(
            replace(dimension, topology=TOPOLOGIES[dimension.topology].astra_sim)
            for dimension in platform.dimensions
        ),
    )


def with_roofline(platform: Platform) -> Platform:
    """Return a platform whose roofline model times compute nodes, as generated workloads need: they have no times.

    Raises:
        InputError: it has no peak performance or no memory bandwidth, or takes recorded times only.
    """
    system, source = platform.system, platform.source or "platform"
    if system.replay_only:
        raise InputError(f"{source}: compute.replay: a generated workload has no recorded times")
    if not (system.peak_performance and system.local_mem_bandwidth):
        raise InputError(
            f"{source}: expected npu.peak and npu.memory.bandwidth: they time the kernels of a generated workload"
        )
    return replace(platform, system=replace(system, roofline=True))


def check_physical(platform: Platform) -> None:
    """Refuse what ASTRA-sim files can say and profile ``physical`` does not accept.

    Raises:
        InputError: The shared bus, an algorithm with a window or over all dimensions at once, or fewer
            algorithms than dimensions.
    """
    source = platform.source or "platform"
    instead = "profile physical does not model this, profile astra-sim does"
    if platform.system.shared_bus:
        raise InputError(f"{source}: model-shared-bus: {instead}")
    for kind, names in platform.physical.algorithm.items():
        for name in names:
            if name.startswith("one") or name[-1].isdigit():
                raise InputError(f"{source}: {kind}: got '{name}': {instead}")
        if len(names) < len(platform.dimensions):
            raise InputError(
                f"{source}: {kind}: lists {len(names)} algorithms, expected {len(platform.dimensions)}, one per "
                "network dimension (only profile astra-sim runs on the first dimensions alone)"
            )


def astra_sim_conflicts(platform: Platform) -> Iterator[Conflict]:
    """Yield what of a native platform profile ``astra-sim`` cannot model."""
    if platform.topology:
        yield ("topology",), f"a graph: {NOT_ASTRA_SIM}; expected network, a list of dimensions"
    if platform.packets.given:
        yield ("packets",), NOT_ASTRA_SIM
    for dimension in platform.dimensions:
        if not TOPOLOGIES[dimension.topology].astra_sim:
            yield ("network", dimension.name, "topology"), f"got '{dimension.topology}': {NOT_ASTRA_SIM}"
        if dimension.in_network:
            yield ("network", dimension.name, "in_network"), NOT_ASTRA_SIM
        if dimension.port and dimension.port.out != dimension.port.into:
            yield ("network", dimension.name, "bandwidth"), f"up and down differ: {NOT_ASTRA_SIM}"
    physical = platform.physical
    for kind, names in physical.algorithm.items():
        if kind not in COLLECTIVES:
            yield ("collectives", kind), NOT_ASTRA_SIM
        for name in names:
            if name != "natural" and parse_algorithm(name) is None:
                yield ("collectives", kind), f"got '{name}': {NOT_ASTRA_SIM}"
    for each in fields(physical):
        value = getattr(physical, each.name)
        if KEY in each.metadata and value != getattr(_PLAIN, each.name):
            got = f"got '{value}': " if isinstance(value, str) else ""
            yield each.metadata[KEY], got + NOT_ASTRA_SIM
    if platform.memory.kind == "hierarchical" or platform.memory.plugged:
        yield ("remote_memory", "kind"), f"got '{platform.memory.kind}': {NOT_ASTRA_SIM}"
    local = platform.physical.memory
    # A platform made in Python may have the bandwidth of `System` only.
    other = local.read and local.read * 1e9 != platform.system.local_mem_bandwidth
    if local.latency or local.read != local.write or other:
        yield ("npu", "memory"), f"a latency, and bandwidths of reads and writes: {NOT_ASTRA_SIM}"
    if physical.kernels.peaks:
        yield ("npu", "peak"), f"got a peak by precision: {NOT_ASTRA_SIM}"
    if physical.kernels.compute != 1 or physical.kernels.memory != 1:
        yield ("compute", "efficiency"), f"got less than 100 %: {NOT_ASTRA_SIM}"
    if physical.kernels.overhead:
        yield ("compute", "kernel_overhead"), NOT_ASTRA_SIM
    if physical.fit:
        yield ("collectives", "fit"), f"got '{physical.fit.name}': {NOT_ASTRA_SIM}"
    for name in physical.terms.on():
        yield ("terms",), f"{name.replace('_', '.', 1)}: {NOT_ASTRA_SIM}"
