"""Training over TCP/IP: flat against hierarchical all-reduce, swept over the buffer of the global switch.

After the ASTRA-sim case study with ns-3 at Hot Interconnects 2020, of which we have the question only, and no numbers:
the machine here is assumed, see `Assumptions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from armillary.engine import simulate
from armillary.engine.transport.layout_kernel import PS
from armillary.engine.transport.tcp import Tcp
from armillary.engine.transport.use import LinkUse
from armillary.errors import InputError
from armillary.platform.logical import logical_dimensions
from armillary.platform.model import Packets, Physical, Platform
from armillary.platform.topology.description import Network
from armillary.platform.topology.graph import Topology
from armillary.platform.topology.wiring import Wiring
from armillary.study.reproduce import figures, readers
from armillary.study.reproduce.assumptions import assumed, choice
from armillary.study.reproduce.judge import by_count, share, verdict
from armillary.study.reproduce.outcome import Claim, Grid, Outcome
from armillary.study.reproduce.sources import BUFFERS
from armillary.trace import GraphBuilder, Trace
from armillary.units import format_bytes, format_time, parse_bytes, parse_time

GLOBAL = "global"
NEAR = 1.1
"""A time within this factor of that with the largest buffer needs no more of it."""
_COLOURS = {"flat": figures.VERMILION, "hierarchical": figures.BLUE}


def _buffers(text: str) -> tuple[int, ...]:
    return tuple(sorted(readers.several(readers.size)(text)))


@dataclass(frozen=True)
class Assumptions:
    """NPUs with a link to the switch of their group, and one to the global switch; and TCP between them."""

    npus: int = assumed(
        "32",
        readers.counting(2, 1024),
        "NPUs: 32 run in seconds and still meet 24 to 1 at a port.",
        others=("16",),
    )
    group: int = assumed("8", readers.whole, "NPUs of a group: 8 as in HGX boards.", others=("4",))
    size: int = assumed(
        "4 MiB",
        readers.between(parse_bytes, "1 B", "1 GiB"),
        "Vector of each NPU: of the order of a bucket of gradients.",
        others=("1 MiB", "16 MiB"),
    )
    local: float = assumed(
        "100 GB/s",
        readers.bandwidth,
        "Link to the group's switch: 8 times as fast as the global one, as inside servers.",
        others=("12.5 GB/s",),
    )
    global_: float = assumed(
        "100 Gb/s", readers.bandwidth, "Link to the global switch: Ethernet of 2020.", others=("25 Gb/s",)
    )
    local_latency: float = assumed(
        "250 ns", readers.time, "Of a link to the group's switch: half of a hop of 500 ns.", others=("1 us",)
    )
    global_latency: float = assumed(
        "1 us", readers.time, "Of a link to the global switch, with half a switch in it.", others=("10 us",)
    )
    buffers: tuple[int, ...] = assumed(
        "16 KiB,64 KiB,256 KiB,1 MiB,4 MiB,16 MiB",
        _buffers,
        "Of each port of the global switch: 256 KiB is shallow, MiBs are deep.",
        others=("16 KiB,32 KiB,64 KiB",),
    )
    algorithm: str = choice(
        "direct", ("direct", "ring"), "Of each phase: to all at once, or to neighbours only."
    )
    congestion_control: str = choice(
        "newreno", ("newreno", "cubic", "dctcp"), "NewReno was ns-3's default in 2020."
    )
    min_rto: float = assumed(
        "200 ms",
        readers.between(parse_time, "1 us", "60 s"),
        "Shortest timeout: 200 ms in Linux, 1 s in ns-3, some ms where it is tuned.",
        others=("5 ms",),
    )
    initial_window: int = assumed("10", readers.counting(1, 1024), "Segments: RFC 6928.", others=("2",))
    repeats: int = assumed(
        "3",
        readers.counting(1, 64),
        "All-reduces one after the other: only the first finds new connections.",
        others=("1",),
    )
    seed: int = assumed(
        "1",
        readers.counting(0, 1 << 31),
        "Of the times (below 1 us) in which hosts answer.",
        others=("2", "3"),
    )

    def __post_init__(self) -> None:
        if self.npus < 2 or self.npus % self.group:
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
        wiring.connect(npu, switch[0], GLOBAL, self.global_, self.global_latency, one_way=True)
        wiring.connect(switch[0], npu, GLOBAL, self.global_, self.global_latency, one_way=True, buffer=buffer)
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


def sweep(chosen: Assumptions) -> dict[str, list[Point]]:
    """Return the points of both all-reduces, by name; links of a group never drop."""
    levels = {"flat": (chosen.npus,), "hierarchical": (chosen.group, chosen.npus // chosen.group)}
    step, after = GraphBuilder(), list[int]()
    for number in range(chosen.repeats):
        after = [step.all_reduce(f"all-reduce {number}", chosen.size, after=after)]
    trace = Trace.replicate(step.graph(), chosen.npus)
    return {
        name: [_point(chosen, trace, sizes, buffer) for buffer in chosen.buffers]
        for name, sizes in levels.items()
    }


def _point(chosen: Assumptions, trace: Trace, levels: tuple[int, ...], buffer: int) -> Point:
    tcp = Tcp(algorithm=chosen.congestion_control, min_rto=chosen.min_rto / 1e6,  # type: ignore[arg-type]
              initial_window=chosen.initial_window, seed=chosen.seed)  # fmt: skip
    topology = chosen.topology(buffer)
    # Queues without a limit of their own take the transport's: none.
    endless, usual = asdict(replace(tcp, buffer=np.iinfo(np.int64).max)), asdict(Tcp())
    dimensions = logical_dimensions(topology, tuple(size for size in levels if size > 1))
    platform = Platform(
        dimensions,
        physical=Physical(algorithm={"all-reduce": (chosen.algorithm,) * len(dimensions)}),
        topology=Network(topology, "shortest"),
        packets=Packets("tcp", {name: value for name, value in endless.items() if value != usual[name]}),
    )
    timeline = simulate(trace, platform, network_model="packet")
    assert timeline.network is not None  # links were simulated
    return _measured(topology, tcp, buffer, timeline.total_ticks * PS / chosen.repeats, timeline.network.use)


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


def run(chosen: Assumptions) -> Outcome:
    """Sweep, and say what it says about the question; the numbers of the study itself are not known here."""
    points = sweep(chosen)
    title = (
        f"{format_bytes(chosen.size)} all-reduce, {chosen.algorithm}, {chosen.npus} NPUs in groups of "
        f"{chosen.group}, TCP {chosen.congestion_control}"
    )
    return Outcome(title, (grid(points),), claims(points), lambda figure: draw(points, figure))


def grid(points: dict[str, list[Point]]) -> Grid:
    """Return times, drops and depths of queues for every buffer."""
    header = ["buffer per port"]
    for name in points:
        header += [name, "dropped", "queue"]
    rows = []
    for row in zip(*points.values(), strict=True):
        cells = [format_bytes(row[0].buffer)]
        for point in row:
            cells += [format_time(point.time / PS), share(point.dropped, 2), format_bytes(point.depth)]
        rows.append((*cells, f"{row[0].time / row[1].time:.2f}"))
    return Grid("Time of an all-reduce", (*header, "flat / hierarchical"), tuple(rows))


def claims(points: dict[str, list[Point]]) -> tuple[Claim, ...]:
    """Judge what the study asked: does the hierarchy help, and does it need less of a buffer?"""
    flat_, hierarchical_ = points.values()
    won = sum(one.time > other.time for one, other in zip(flat_, hierarchical_, strict=True))
    enough = [least_buffer(each) for each in points.values()]
    least = [format_bytes(each) for each in enough]
    return (
        Claim("Hierarchical all-reduce is faster than flat over TCP", BUFFERS,
              f"with {won} of {len(flat_)} buffers",
              by_count(won, len(flat_))),
        Claim("It needs less of a buffer in the global switch", BUFFERS,
              f"within {share(NEAR - 1, 0)} of the time with the largest buffer from: flat {least[0]}, "
              f"hierarchical {least[1]} per port",
              verdict(enough[1] < enough[0], enough[1] == enough[0])),
    )  # fmt: skip


def draw(points: dict[str, list[Point]], figure: Any) -> None:
    """Draw time over buffer, both logarithmic."""
    (axes,) = figures.panels(figure)
    buffers = [point.buffer for point in next(iter(points.values()))]
    times = {name: [point.time / PS for point in each] for name, each in points.items()}
    figures.curves(axes, buffers, times, _COLOURS)
    figures.sizes(axes, buffers, format_bytes)
    figures.written(axes.yaxis, format_time)
    axes.set(xlabel="buffer of a port of the global switch", ylabel="time of an all-reduce")
    figures.legend(figure)
