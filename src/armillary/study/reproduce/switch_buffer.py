"""Training over TCP/IP: flat against hierarchical all-reduce, swept over the buffer of the global switch.

After the ASTRA-sim case study with ns-3 at Hot Interconnects 2020, of which we have the question only, and no numbers:
the machine here is assumed, see `Machine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from armillary.engine import simulate
from armillary.engine.transport.layout_kernel import PS
from armillary.engine.transport.tcp import Tcp
from armillary.engine.transport.use import LinkUse
from armillary.errors import InputError
from armillary.files import replacing
from armillary.platform.logical import logical_dimensions
from armillary.platform.model import Packets, Physical, Platform
from armillary.platform.topology.description import Network
from armillary.platform.topology.graph import Topology
from armillary.platform.topology.wiring import Wiring
from armillary.report.picture import check_picture
from armillary.trace import GraphBuilder, Trace
from armillary.units import format_bytes, format_time

if TYPE_CHECKING:
    from rich.table import Table

Algorithm = Literal["direct", "ring"]
GLOBAL = "global"
NEAR = 1.1
"""A time within this factor of that with the largest buffer needs no more of it."""
_COLOURS = ("#0072B2", "#D55E00")


@dataclass(frozen=True)
class Machine:
    """NPUs with a link to the switch of their group, and one to the global switch.

    Attributes:
        npus: Number of NPUs.
        group: NPUs of a group.
        local: Bandwidth of a link to the group's switch (bytes/ns).
        wide: Bandwidth of a link to the global switch (bytes/ns).
        local_latency: Latency of those links (ns).
        wide_latency: Latency of these (ns).
    """

    npus: int
    group: int
    local: float
    wide: float
    local_latency: float
    wide_latency: float

    def __post_init__(self) -> None:
        if self.npus < 2 or self.group < 1 or self.npus % self.group:
            divisors = [str(size) for size in range(1, self.npus + 1) if self.npus % size == 0]
            raise InputError(
                f"--group is {self.group}, expected a divisor of {self.npus} NPUs: {', '.join(divisors)}"
            )

    def topology(self, buffer: int) -> Topology:
        """Return the graph; `buffer` is the room (bytes) of each port of the global switch."""
        wiring = Wiring("two switches", self.npus)
        npu = np.arange(self.npus)
        locals_ = wiring.tier("local", self.npus // self.group)
        switch = wiring.tier(GLOBAL, 1)
        # Of two ways with as many links that with the lower numbers is taken: through the group's switch.
        wiring.connect(npu, locals_[npu // self.group], "local", self.local, self.local_latency)
        wiring.connect(npu, switch[0], GLOBAL, self.wide, self.wide_latency, one_way=True)
        wiring.connect(switch[0], npu, GLOBAL, self.wide, self.wide_latency, one_way=True, buffer=buffer)
        return wiring.topology()


@dataclass(frozen=True)
class Point:
    """One all-reduce, on average of some, with one buffer.

    Attributes:
        buffer: Bytes of a port of the global switch.
        time: ps of an all-reduce.
        dropped: Share of the packets that came to the global switch.
        marked: Packets marked.
        depth: Most bytes that waited at a port of it.
    """

    buffer: int
    time: float
    dropped: float
    marked: int
    depth: int


def sweep(
    machine: Machine,
    tcp: Tcp,
    size: int,
    buffers: Sequence[int],
    *,
    algorithm: Algorithm = "direct",
    repeats: int = 3,
) -> dict[str, list[Point]]:
    """Return the points of both all-reduces, by name.

    Args:
        machine: Where.
        tcp: How; links of a group never drop.
        size: Bytes of the vector of each NPU.
        buffers: Bytes of a port of the global switch.
        algorithm: Of each phase.
        repeats: All-reduces one after the other, on the same connections.
    """
    levels = {"flat": (machine.npus,), "hierarchical": (machine.group, machine.npus // machine.group)}
    step, after = GraphBuilder(), list[int]()
    for number in range(repeats):
        after = [step.all_reduce(f"all-reduce {number}", size, after=after)]
    trace = Trace.replicate(step.graph(), machine.npus)
    return {
        name: [_point(machine, tcp, trace, sizes, algorithm, buffer, repeats) for buffer in buffers]
        for name, sizes in levels.items()
    }


def _point(
    machine: Machine,
    tcp: Tcp,
    trace: Trace,
    levels: tuple[int, ...],
    algorithm: str,
    buffer: int,
    repeats: int,
) -> Point:
    topology = machine.topology(buffer)
    # Queues without a limit of their own take the transport's: none.
    endless = replace(tcp, buffer=np.iinfo(np.int64).max)
    dimensions = logical_dimensions(topology, tuple(size for size in levels if size > 1))
    platform = Platform(
        dimensions,
        physical=Physical(algorithm={"all-reduce": (algorithm,) * len(dimensions)}),
        topology=Network(topology, "shortest"),
        packets=Packets("tcp", asdict(endless)),
    )
    timeline = simulate(trace, platform, network_model="packet")
    assert timeline.network is not None  # links were simulated
    return _measured(topology, tcp, buffer, timeline.total_ticks * PS / repeats, timeline.network.use)


def _measured(topology: Topology, tcp: Tcp, buffer: int, time: float, use: LinkUse) -> Point:
    ports = topology.tail == topology.nodes - 1
    dropped = int(use.drops[ports].sum())
    packets = int(use.size[ports].sum()) / (tcp.mss + tcp.header) + dropped
    return Point(buffer, time, dropped / packets, int(use.marks[ports].sum()), int(use.depth[ports].max()))


def least_buffer(points: Sequence[Point]) -> int:
    """Return the buffer from which on the time is within `NEAR` of that with the largest."""
    enough = points[-1].buffer
    for point in reversed(points):
        if point.time > NEAR * points[-1].time:
            break
        enough = point.buffer
    return enough


def table(points: dict[str, list[Point]]) -> Table:
    """Return times, drops and depths of queues for every buffer."""
    from rich.table import Table

    out = Table(box=None, pad_edge=False, header_style="bold")
    out.add_column("buffer per port", justify="right")
    for name in points:
        for column in (name, "dropped", "queue"):
            out.add_column(column, justify="right")
    out.add_column("flat / hierarchical", justify="right")
    for row in zip(*points.values(), strict=True):
        cells = [
            (format_time(point.time / PS), f"{point.dropped:.2%}", format_bytes(point.depth)) for point in row
        ]
        ratio = row[0].time / row[1].time
        out.add_row(format_bytes(row[0].buffer), *(text for cell in cells for text in cell), f"{ratio:.2f}")
    return out


def findings(points: dict[str, list[Point]]) -> list[str]:
    """Return what the sweep says about the question, in sentences."""
    flat_, hierarchical_ = points.values()
    won = sum(one.time > other.time for one, other in zip(flat_, hierarchical_, strict=True))
    enough = [format_bytes(least_buffer(each)) for each in points.values()]
    losses = [point.dropped for point in flat_], [point.dropped for point in hierarchical_]
    return [
        f"hierarchical is faster with {won} of {len(flat_)} buffers",
        f"within {NEAR - 1:.0%} of the time with the largest buffer from: flat {enough[0]}, "
        f"hierarchical {enough[1]} per port",
        f"most packets dropped at the global switch: flat {max(losses[0]):.2%}, hierarchical {max(losses[1]):.2%}",
        "the numbers of the study itself are not known here: the order of the two can be compared, values cannot",
    ]


def picture(points: dict[str, list[Point]], path: Path, title: str) -> None:
    """Draw time over buffer, both logarithmic.

    Raises:
        InputError: matplotlib is not installed, the suffix is unknown, or the file cannot be written.
    """
    check_picture(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for (name, each), colour, marker in zip(points.items(), _COLOURS, "os", strict=True):
        axes.plot([point.buffer for point in each], [point.time / PS for point in each], color=colour,
                  marker=marker, markersize=4, label=name)  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="Buffer of a port of the global switch", ylabel="All-reduce")
    axes.set_xticks([point.buffer for point in next(iter(points.values()))], minor=False)
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda value, _: format_bytes(value))
    axes.yaxis.set_major_formatter(lambda value, _: format_time(value))
    axes.tick_params(axis="x", labelrotation=30)
    axes.grid(visible=True, which="major", color="#DDDDDD", linewidth=0.6)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.legend(frameon=False)
    suffix = path.suffix[1:].lower()
    no_date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix, {})
    with replacing(path) as temporary:
        figure.savefig(temporary, format=suffix, dpi=150, metadata=no_date)
