"""How each profile interprets a platform, and what it refuses.

The parts of a `Platform` have the meaning of a study file. What profile ``astra-sim`` makes of them, and profile
``physical`` of a machine that ASTRA-sim's files describe, is derived here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, replace

from armillary.base.errors import InputError
from armillary.platform.collectives import COLLECTIVES, Algorithm, natural_algorithm, parse_algorithm
from armillary.platform.model import PHYSICAL, Platform
from armillary.platform.network import TOPOLOGIES

NOT_ASTRA_SIM = "profile astra-sim does not model this, profile physical does"
_ENDPOINT_DELAY = 10
"""ns, of ASTRA-sim where its system file has no ``endpoint-delay``."""
Conflict = tuple[tuple[str, ...], str]
"""Where in a platform file (a dimension by its name), and what is wrong."""


def astra_sim_view(platform: Platform) -> Platform:
    """Return a platform as profile ``astra-sim`` sees it: a Torus is a Ring there.

    Raises:
        InputError: A native platform has something that only profile ``physical`` models.
    """
    # Files of ASTRA-sim hold only what this profile models; the check would refuse their own defaults.
    for path, problem in astra_sim_conflicts(platform) if platform.dialect == "native" else ():
        raise InputError(f"{platform.source or 'platform'}: {'.'.join(path)}: {problem}")
    return replace(
        platform,
        dimensions=tuple(
            # Torus -> Ring; conflicts above made sure that the name is not empty.
            replace(dimension, topology=TOPOLOGIES[dimension.topology].astra_sim)
            for dimension in platform.dimensions
        ),
    )


def physical_view(platform: Platform) -> Platform:
    """Return a platform as profile ``physical`` sees it.

    Active chunks of ASTRA-sim's files do not count: there they limit all collectives of a dimension together, here
    each collective on its line.

    Raises:
        InputError: The shared bus, an algorithm with a window or over all dimensions at once, or fewer algorithms than
            dimensions.
    """
    source = platform.source or "platform"
    instead = "profile physical does not model this, profile astra-sim does"
    if platform.astra_sim.shared_bus:
        raise InputError(f"{source}: model-shared-bus: {instead}")
    for kind, names in platform.collectives.algorithms.items():
        for name in names:
            # "oneRing" flattens all dimensions, "direct8" limits the window; neither has a schedule in
            # profile physical.
            if name.startswith("one") or name[-1].isdigit():
                raise InputError(f"{source}: {kind}: got '{name}': {instead}")
        if len(names) < len(platform.dimensions):
            raise InputError(
                f"{source}: {kind}: lists {len(names)} algorithms, expected {len(platform.dimensions)}, one per "
                "network dimension (only profile astra-sim runs on the first dimensions alone)"
            )
    if platform.dialect == "native":
        return platform
    # 0: as many as hide latencies.
    return replace(platform, collectives=replace(platform.collectives, active_chunks=0))


def astra_sim_algorithms(platform: Platform, kind: str) -> tuple[Algorithm, ...]:
    """Return the algorithms of a collective in profile ``astra-sim``: one per dimension, or of the first dimensions.

    What is not listed takes the natural ones, but ASTRA-sim's own files must list all that runs: there it has none.
    """
    # Files of ASTRA-sim: nothing is natural there, that program stops at a collective that is not listed.
    usual = () if platform.dialect == "astra-sim" else ("natural",) * len(platform.dimensions)
    names = platform.collectives.algorithms.get(kind, usual)
    return tuple(  # zip ends with the names: a single one… name covers all dimensions
        # None for "natural", which no parser knows.
        parse_algorithm(name) or natural_algorithm(kind, dimension)
        for name, dimension in zip(names, platform.dimensions, strict=False)
    )


def astra_sim_endpoint_delay(platform: Platform) -> int:
    """Return the ns of a message at its endpoint in profile ``astra-sim``: by default that program's."""
    given = platform.npu.endpoint_delay
    return _ENDPOINT_DELAY if given is None else int(given)


def astra_sim_active_chunks(platform: Platform) -> int:
    """Return how many chunks may be in flight per dimension in profile ``astra-sim``."""
    return platform.collectives.active_chunks or 1


def with_roofline(platform: Platform) -> Platform:
    """Return a platform whose roofline model times compute nodes, as generated workloads need: they have no times.

    Raises:
        InputError: it has no peak performance or no memory bandwidth, or takes recorded times only.
    """
    npu, source = platform.npu, platform.source or "platform"
    if platform.compute.replay:
        raise InputError(f"{source}: compute.replay: a generated workload has no recorded times")
    if not (npu.peak_flops and npu.memory.bandwidth):
        raise InputError(
            f"{source}: expected npu.peak and npu.memory.bandwidth: they time the kernels of a generated workload"
        )
    return replace(platform, compute=replace(platform.compute, model=platform.compute.model or "roofline"))


def astra_sim_conflicts(platform: Platform) -> Iterator[Conflict]:
    """Yield what profile ``astra-sim`` cannot model in a native platform."""
    # A graph has no dimensions of its own; those the platform lists are derived and would hide that.
    if platform.topology:
        yield ("topology",), f"a graph: {NOT_ASTRA_SIM}; expected network, a list of dimensions"
    if platform.packets.given:
        yield ("packets",), NOT_ASTRA_SIM
    for dimension in platform.dimensions:
        if not TOPOLOGIES[dimension.topology].astra_sim:
            yield ("network", dimension.name, "topology"), f"got '{dimension.topology}': {NOT_ASTRA_SIM}"
        if dimension.in_network:
            yield ("network", dimension.name, "in_network"), NOT_ASTRA_SIM
        # One rate per link in that program.
        if dimension.port and dimension.port.out != dimension.port.into:
            yield ("network", dimension.name, "bandwidth"), f"up and down differ: {NOT_ASTRA_SIM}"
    npu, collectives, kernels = platform.npu, platform.collectives, platform.compute.kernels
    for kind, names in collectives.algorithms.items():
        if kind not in COLLECTIVES:
            yield ("collectives", kind), NOT_ASTRA_SIM
        for name in names:
            if name != "natural" and parse_algorithm(name) is None:
                yield ("collectives", kind), f"got '{name}': {NOT_ASTRA_SIM}"
    # Fields say by their metadata that only profile physical reads them, so that new ones cannot be forgotten
    # here.
    for path, part in ((), platform), (("npu",), npu), (("collectives",), collectives):
        for each in fields(part):
            # A dataclass default is either a value or a factory, never both.
            usual = each.default if each.default_factory is MISSING else each.default_factory()
            value = getattr(part, each.name)
            # The default value is no conflict: most files do not mention the key.
            if each.metadata == PHYSICAL and value != usual:
                got = f"got '{value}': " if isinstance(value, str) else ""
                yield (*path, each.name), got + NOT_ASTRA_SIM
    # That program adds delays as integers.
    if npu.message_delay % 1:
        yield ("npu", "endpoint_delay"), f"got {npu.endpoint_delay} ns, no whole number: {NOT_ASTRA_SIM}"
    remote = platform.remote_memory
    if remote.kind == "hierarchical" or remote.plugged:
        yield ("remote_memory", "kind"), f"got '{remote.kind}': {NOT_ASTRA_SIM}"
    own = npu.memory
    # Both rates fall back to the bandwidth, so that equality means that neither was given apart.
    if own.kind or own.latency or not own.rate(store=False) == own.rate(store=True) == own.bandwidth:
        yield ("npu", "memory"), f"a latency, and bandwidths of reads and writes: {NOT_ASTRA_SIM}"
    if npu.peaks:
        yield ("npu", "peak"), f"got a peak by precision: {NOT_ASTRA_SIM}"
    if kernels.compute != 1 or kernels.memory != 1:
        yield ("compute", "efficiency"), f"got less than 100 %: {NOT_ASTRA_SIM}"
    if kernels.overhead:
        yield ("compute", "kernel_overhead"), NOT_ASTRA_SIM
    if collectives.fit:
        yield ("collectives", "fit"), f"got '{collectives.fit.name}': {NOT_ASTRA_SIM}"
    for name in platform.terms.on():
        # Only the first underscore separates the key from its part: overlap_compute is terms.overlap.compute,
        # step_time is step.time.
        yield ("terms",), f"{name.replace('_', '.', 1)}: {NOT_ASTRA_SIM}"
