"""How ranks of profile `physical` differ before anybody asks whom they deal with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common import network
from armillary.engine.common.communicators import Communicator
from armillary.engine.common.fold import world_lines
from armillary.platform.model import Platform

Ints = NDArray[np.int64]


def special_of(platform: Platform) -> Ints:
    """Return a number for every rank that is equal where its speed and start delay are."""
    kinds: dict[tuple[float, float], int] = {(1.0, 0.0): 0}
    special = np.zeros(platform.npus, np.int64)
    for rank in {*platform.physical.speed, *platform.physical.delay}:
        own = (platform.physical.speed.get(rank, 1.0), platform.physical.delay.get(rank, 0.0))
        special[rank] = kinds.setdefault(own, len(kinds))
    return special


def path_code(platform: Platform, source: Ints, destination: Ints) -> Ints:
    """Return one number per pair of ranks that says how many links of each dimension lie between them."""
    code = np.zeros(np.broadcast(source, destination).shape, np.int64)
    for dimension, hop in zip(
        platform.dimensions, network.path(platform.dimensions, source, destination), strict=True
    ):
        code = code * (dimension.size + 2) + hop
    return code


def lines_of(platform: Platform, comm: Communicator, dim: int) -> Ints:
    """Return the lines of a communicator along one dimension, (lines, n); dim -1: all its members."""
    if dim < 0:
        return comm.members[None, :]
    if comm.world:
        return world_lines(platform, dim)
    stride, size = network.strides(platform.dimensions)[dim], platform.dimensions[dim].size
    place = comm.members // stride % size
    order = np.lexsort((place, comm.members - place * stride))
    return comm.members[order].reshape(-1, len(np.unique(place)))
