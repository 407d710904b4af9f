"""Bandwidth of a link and of an NPU's port, and what a platform means under profile ``astra-sim``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from armillary.errors import InputError
from armillary.platform.algorithms import ALGORITHMS, COLLECTIVES
from armillary.platform.model import Dimension, Platform, Port, TopologyName

Conflict = tuple[tuple[str, ...], str]
"""Where in a platform file (a dimension by its name), and what is wrong."""


def links_per_npu(topology: TopologyName, size: int) -> int:
    """Return how many links an NPU has in a dimension: n-1 fully connected, 1 to a switch, else 2."""
    return {"FullyConnected": size - 1, "Switch": 1}.get(topology, 2)


def port(dimension: Dimension) -> Port:
    """Return what an NPU can send and receive in a dimension: as stated, or all of its links together."""
    if dimension.port is not None:
        return dimension.port
    rate = dimension.bandwidth * links_per_npu(dimension.topology, dimension.size)
    return Port(rate, rate)


def ports(platform: Platform) -> tuple[Port, ...]:
    """Return `port` of every dimension, in bytes per ns: the bandwidths that profile ``physical`` uses."""
    return tuple(map(port, platform.dimensions))


def astra_sim_view(platform: Platform) -> Platform:
    """Return a platform as profile ``astra-sim`` sees it: a Torus is a Ring there.

    Raises:
        InputError: The platform has something that only profile ``physical`` models.
    """
    for path, problem in astra_sim_conflicts(platform):
        raise InputError(f"{platform.source or 'platform'}: {'.'.join(path)}: {problem}")
    return replace(
        platform,
        dimensions=tuple(
            replace(dimension, topology="Ring") if dimension.topology == "Torus" else dimension
            for dimension in platform.dimensions
        ),
    )


def astra_sim_conflicts(platform: Platform) -> Iterator[Conflict]:
    """Yield what profile ``astra-sim`` cannot model; a study file that names that profile is refused for it."""
    instead = "profile astra-sim does not model this, profile physical does"
    for dimension in platform.dimensions:
        if dimension.topology == "Mesh":
            yield ("network", dimension.name, "topology"), f"got 'Mesh': {instead}"
        if dimension.port and dimension.port.out != dimension.port.into:
            yield ("network", dimension.name, "bandwidth"), f"up and down differ: {instead}"
    physical = platform.physical
    for kind, names in physical.algorithm.items():
        if kind not in COLLECTIVES:
            yield ("collectives", kind), instead
        for name in names:
            if name != "natural" and name.rstrip("0123456789") not in ALGORITHMS:
                yield ("collectives", kind), f"got '{name}': {instead}"
    for key, given in (
        ("npu.speed", physical.speed),
        ("stragglers", physical.delay),
        ("jitter", physical.jitter),
    ):
        if given:
            yield tuple(key.split(".")), instead
