"""The directed links of a network of dimensions, and which of them a message crosses.

In every dimension each line of NPUs that differ only in that coordinate is wired alike:

========================  ======================================================================
Ring, Torus               NPU i to i + 1 and to i - 1, the ends closed
Mesh                      the same, the ends open
FullyConnected            one link for every ordered pair
Switch                    one from every NPU to the switch of its line and one back
========================  ======================================================================

A message goes from dimension to dimension, innermost first; on a ring it takes the shorter way, and ascends where
both are as long. This is the wiring and the routing of ASTRA-sim's congestion-aware backend, which has one dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.base.errors import InputError
from armillary.platform.network import Dimension, links_per_npu


@dataclass(frozen=True)
class LinkBlock:
    """The links of one dimension: numbers `first` to ``first + count - 1``.

    NPU x has, for i below `per_npu`, the link ``first + x * per_npu + i``: to the next and to the previous NPU
    (loop, line), or to its i-th peer, in order of coordinate and without itself. In a star it has the link
    ``first + x`` up to the switch and ``first + npus + x`` down from it.
    """

    dimension: Dimension
    kind: str
    stride: int
    first: int
    count: int


KINDS = {"Ring": "loop", "Torus": "loop", "Mesh": "line", "FullyConnected": "all-pairs", "Switch": "star"}


def link_blocks(dimensions: tuple[Dimension, ...]) -> list[LinkBlock]:
    """Return the links of every dimension.

    Raises:
        InputError: a dimension has no bandwidth.
    """
    npus = 1
    for dimension in dimensions:
        npus *= dimension.size
    blocks: list[LinkBlock] = []
    # `first` numbers links consecutively over all dimensions; `stride` is the distance of neighbours in rank.
    stride = first = 0
    for d, dimension in enumerate(dimensions):
        # A dimension of one member has no links, whatever its bandwidth.
        if not dimension.bandwidth > 0 and dimension.size > 1:
            raise InputError(
                f"links of dimension {d} ({dimension.name}) have bandwidth {dimension.bandwidth:g}; "
                "expected more than 0"
            )
        stride = stride * dimensions[d - 1].size if d else 1
        # In a star every NPU has one link up and one down, and both are counted here; a port counts only one.
        count = npus * (
            2 if dimension.topology == "Switch" else links_per_npu(dimension.topology, dimension.size)
        )
        blocks.append(LinkBlock(dimension, KINDS[dimension.topology], stride, first, count))
        first += count
    return blocks


def route(blocks: list[LinkBlock], source: int, destination: int) -> list[int]:
    """Return the links that a message crosses, in order."""
    crossed = []
    npus = blocks[-1].stride * blocks[-1].dimension.size
    at = source
    for block in blocks:
        size = block.dimension.size
        # Mixed-radix digits of the ranks: coordinates in this dimension.
        own, to = at // block.stride % size, destination // block.stride % size
        there = at + (to - own) * block.stride
        if own == to:
            continue
        if block.kind == "star":
            crossed += [block.first + at, block.first + npus + there]
        # The second half of the block are links down from the switch, by destination.
        elif block.kind == "all-pairs":
            # Peers are numbered without oneself: coordinates above one's own move down by one.
            crossed.append(block.first + at * (size - 1) + [i for i in range(size) if i != own].index(to))
        else:
            # (to - own) % size is the way upwards; upwards also wins a tie, as in ASTRA-sim (see the top of
            # the module).
            ahead = (to - own) % size
            up = ahead <= size - ahead if block.kind == "loop" else to > own
            for step in range(ahead if up else (own - to) % size):
                here = (own + step if up else own - step) % size
                # Link 0 of an NPU leads up, link 1 down.
                crossed.append(block.first + 2 * (at + (here - own) * block.stride) + (0 if up else 1))
        at = there
    return crossed
