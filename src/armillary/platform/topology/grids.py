"""Topologies whose NPUs stand on a grid: nested dimensions, hypercubes, wafers, optical tori."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from armillary.base.errors import InputError
from armillary.platform.network import TOPOLOGIES, Dimension, links_per_npu, port
from armillary.platform.topology.graph import UNBOUNDED, Ints, Topology, check_size
from armillary.platform.topology.wiring import Wiring


def from_dimensions(
    dimensions: Sequence[Dimension], buffer: int = UNBOUNDED, name: str = "network"
) -> Topology:
    """Return the graph of nested dimensions; NPUs pass on what has to change the dimension.

    Every link has the `bandwidth` of its dimension, up and down links of a Switch what the port sends and
    receives. The two links that join the NPUs of a Ring of 2 are one of twice the bandwidth.
    """
    shape = tuple(dimension.size for dimension in dimensions)
    npus = math.prod(shape)
    # A Switch has two links per NPU, up and down; elsewhere every NPU owns the links that leave it.
    each = (2 if d.topology == "Switch" else links_per_npu(d.topology, d.size) for d in dimensions)
    check_size(name, npus * sum(each))
    wiring = Wiring(name, npus, buffer)
    rank = np.arange(npus)
    stride = 1
    for dimension in dimensions:
        # `at` is the coordinate in this dimension, stride the distance in ranks of its neighbours.
        size, at = dimension.size, rank // stride % dimension.size
        rate, latency = dimension.bandwidth, dimension.latency
        if dimension.topology == "Switch":
            switches = wiring.tier(f"{dimension.name} switch", npus // size)
            # One switch per line: lines are numbered by outer group, then by inner offset.
            up = switches[rank // (stride * size) * stride + rank % stride]
            both = port(dimension)
            wiring.connect(rank, up, dimension.name, both.out, latency, back=both.into)
        elif size > 1:
            topology = TOPOLOGIES[dimension.topology]
            joined = topology.neighbours(size)
            # Both links of a ring of 2 join the same pair; one link of twice the rate moves the same.
            double = 2 if size == 2 and topology.loop else 1
            # Half of the rows then suffices: row 1 repeats row 0.
            for to in joined[: len(joined) // double]:
                # Ends of a line lack a neighbour, marked -1.
                start = rank[to[at] >= 0]
                ahead = start + (to[at[start]] - at[start]) * stride
                # One way: `neighbours` lists both directions.
                wiring.connect(start, ahead, dimension.name, rate * double, latency, one_way=True)
        stride *= size
    return wiring.topology(
        # NPUs forward, since a message that changes dimension passes through one.
        forwards=True,
        dimensions=tuple(dimensions),
        shape=shape,
        block=_blocks(wiring, shape[0] if len(shape) > 1 else 0),
    )


def hypercube(order: int, bandwidth: float, latency: float, buffer: int = UNBOUNDED) -> Topology:
    """Return 2**`order` NPUs, linked where their ranks differ in one bit."""
    bits = [Dimension(f"bit {i}", "FullyConnected", 2, bandwidth, latency) for i in range(order)]
    return from_dimensions(bits, buffer, "hypercube")


def wafer_mesh(
    shape: tuple[int, int],
    bandwidth: float,
    latency: float,
    *,
    die: tuple[int, int] | None = None,
    die_bandwidth: float | None = None,
    die_latency: float | None = None,
    buffer: int = UNBOUNDED,
) -> Topology:
    """Return a 2-D mesh of NPUs on a wafer, or on several dies of `die` NPUs each.

    Args:
        shape: Columns and rows of NPUs.
        bandwidth: Of a link within a die, bytes per ns.
        latency: Of such a link, ns.
        die: Columns and rows of NPUs of one die; None: the wafer is one.
        die_bandwidth: Of a link that crosses between dies, if it differs.
        die_latency: Of such a link, if it differs.
        buffer: Bytes at the end of a link.

    Raises:
        InputError: The dies do not fill the wafer.
    """
    columns, rows = shape
    wide, high = die or shape
    if columns % wide or rows % high:
        raise InputError(
            f"wafer-mesh: dies of {wide} x {high} do not fill a wafer of {columns} x {rows} NPUs"
        )
    check_size("wafer-mesh", 2 * ((columns - 1) * rows + columns * (rows - 1)))
    wiring = Wiring("wafer-mesh", columns * rows, buffer)
    rank = np.arange(columns * rows)
    x, y = rank % columns, rank // columns
    for start, step, at, side in (
        (rank[x < columns - 1], 1, x, wide),
        (rank[y < rows - 1], columns, y, high),
    ):
        # The last column of a die is joined with the first of the next one.
        crosses = (at[start] + 1) % side == 0
        for links, kind, rate, delay in (
            (start[~crosses], "die", bandwidth, latency),
            (start[crosses], "between dies", die_bandwidth or bandwidth, die_latency),
        ):
            wiring.connect(links, links + step, kind, rate, latency if delay is None else delay)
    # Dies are numbered by row, then column; a single die has no parts to show.
    block = y // high * (columns // wide) + x // wide if die else ()
    return wiring.topology(
        # Dimension-order routing and collectives see a plain mesh; links keep their own rates.
        forwards=True,
        shape=shape,
        block=block,
        dimensions=_mesh(shape, bandwidth, latency),
    )


def optical_torus(
    shape: tuple[int, int, int],
    bandwidth: float,
    latency: float,
    *,
    cube: int = 4,
    optical_latency: float | None = None,
    twisted: bool = False,
    buffer: int = UNBOUNDED,
) -> Topology:
    """Return a 3-D torus of cubes that optical circuit switches join, as of TPU v4 (Jouppi et al., ISCA 2023, §2).

    Within a cube of `cube`³ NPUs links are electrical. A link that leaves a face is a circuit: a link of its own
    with `optical_latency`, no queue and no sharing, for as long as the job runs. Which cubes stand where is
    therefore no property of the graph: any free ones do, and a failed one is replaced by leaving it out. The
    seconds that it takes to set the switches, and more than one job on them, are not modelled. A twisted torus
    shifts the way around each short axis by half of each axis that is twice as long.

    Args:
        shape: Sides, multiples of `cube`.
        bandwidth: Of every link, bytes per ns.
        latency: Of an electrical link, ns.
        cube: Side of a cube.
        optical_latency: Of a circuit, ns; None: as electrical.
        twisted: See above; the sides must be n and 2n.
        buffer: Bytes at the end of a link.

    Raises:
        InputError: The sides do not fit.
    """
    if any(side % cube for side in shape):
        raise InputError(f"optical-torus: shape {list(shape)} is no multiple of the cube's side {cube}")
    short, long = min(shape), max(shape)
    if twisted and (long != 2 * short or set(shape) != {short, long}):
        raise InputError(f"optical-torus: shape {list(shape)} cannot be twisted, expected sides n and 2n")
    check_size("optical-torus", 6 * math.prod(shape))
    wiring = Wiring("optical-torus", math.prod(shape), buffer)
    rank = np.arange(math.prod(shape))
    # Rank = x + y * sx + z * sx * sy.
    stride = np.array([1, shape[0], shape[0] * shape[1]])
    place = np.array([rank // stride[axis] % shape[axis] for axis in range(3)])
    for axis in range(3):
        ahead = place.copy()
        ahead[axis] += 1
        around = ahead[axis] == shape[axis]
        ahead[axis, around] = 0
        for other in range(3):
            # The wrap-around link of a short axis lands half-way along each long one: the twist.
            if twisted and shape[axis] == short and shape[other] == long:
                ahead[other, around] = (ahead[other, around] + short) % long
        # Both the step into the next cube and the wrap-around end at a multiple of the cube's side.
        optical = ahead[axis] % cube == 0
        to = stride @ ahead
        delay = latency if optical_latency is None else optical_latency
        wiring.connect(rank[~optical], to[~optical], "electrical", bandwidth, latency)
        wiring.connect(rank[optical], to[optical], "optical circuit", bandwidth, delay)
    sides = np.array(shape) // cube
    block = place[0] // cube + sides[0] * (place[1] // cube + sides[1] * (place[2] // cube))
    # A twisted torus is no product of rings, so that dimension order would be wrong on it.
    plain = (
        ()
        if twisted
        else tuple(
            Dimension(name, "Torus", side, bandwidth, latency)
            for name, side in zip("xyz", shape, strict=True)
        )
    )
    return wiring.topology(forwards=True, shape=shape, block=block, dimensions=plain)


def _mesh(shape: tuple[int, ...], bandwidth: float, latency: float) -> tuple[Dimension, ...]:
    return tuple(
        Dimension(name, "Mesh", side, bandwidth, latency) for name, side in zip("xy", shape, strict=True)
    )


def _blocks(wiring: Wiring, size: int) -> Ints:
    """Return the innermost group of every NPU; switches of the innermost dimension belong to theirs."""
    # Two levels at least: with one dimension all NPUs would be one block.
    block = np.full(wiring.nodes, -1)
    if size:
        block[: wiring.npus] = np.arange(wiring.npus) // size
    return block
