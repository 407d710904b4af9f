"""Network model `loggops`: LogGOPS, see `loggops_kernel`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.engine.transport import layout as lk
from armillary.engine.transport.deadlock import down_links
from armillary.engine.transport.loggops import layout as gl
from armillary.engine.transport.transport import Ints, Transport
from armillary.platform.topology.graph import Topology

MOST = 1e9
"""ns; of a byte, too. Bytes of a message that S need not exceed."""


@dataclass(frozen=True)
class LogGops(Transport):
    """Messages that share the ends of their routes only.

    Attributes:
        L: ns from end to end. None: the latencies of the links of the route.
        o: ns that a message takes of a CPU, at either end.
        g: ns that it takes of the link by which it leaves or comes.
        G: ns per byte that it takes of these. None: what the slowest link of the route takes.
        O: ns per byte that it takes of a CPU.
        S: Bytes; a sender of more is busy until the first of them is taken. None: never.

    Raises:
        InputError: A value is no number from 0 to 1e9, or below 1e-9 but not 0.
    """

    name: ClassVar[str] = "loggops"
    kernel: ClassVar[str] = "armillary.engine.transport.loggops.loggops_kernel"
    burst = 4
    message = 2
    L: float | None = None
    o: float = 0.0
    g: float = 0.0
    G: float | None = None
    O: float = 0.0  # noqa: E741 - the model's own name
    S: float | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None and each.default is None:
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and 0 <= value <= MOST) or 0 < value < 1e-9:
                unit = {"S": "bytes", "G": "ns per byte", "O": "ns per byte"}.get(each.name, "ns")
                raise InputError(
                    f"loggops: {each.name}: got {show(value)}, expected 0 to 1e9 {unit}, e.g. 0.02"
                )

    def options(self, topology: Topology) -> list[int]:
        """See `Transport.options`."""
        per_byte = lk.PS * gl.PART
        return [
            -1 if self.L is None else round(self.L * lk.PS), round(self.o * lk.PS), round(self.g * lk.PS),
            -1 if self.G is None else round(self.G * per_byte), round(self.O * per_byte),
            lk.FOREVER if self.S is None else int(self.S),
        ]  # fmt: skip

    def state(self, topology: Topology) -> list[Ints]:
        """See `Transport.state`."""
        return [np.zeros((topology.nodes + 2 * topology.links) * gl.BUSY.width, np.int64)]

    def blocked(self, net: Ints, pool: Ints, table: Ints, topology: Topology) -> list[int]:
        """See `Transport.blocked`."""
        found: set[int] = set()
        row = int(net[lk.N_STOPPED])
        route_at = gl.MESSAGE.declared["route"].offset
        while row:
            route = int(pool[row + route_at])
            begin, end = (int(table[table[lk.T_ROUTE_FIRST] + each]) for each in (route, route + 1))
            found.update(int(table[table[lk.T_ROUTE_LINK] + place]) for place in range(begin, end))
            row = int(pool[row + lk.P_NEXT])
        return down_links(net, table, found)
