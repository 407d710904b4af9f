"""Training over TCP/IP: flat against hierarchical all-reduce, swept over the buffer of the global switch.

After the ASTRA-sim case study with ns-3 at Hot Interconnects 2020, of which we have the question only, and no numbers:
the machine here is assumed, see `Assumptions`. Which packets are dropped is chance, so every time is an interval over
seeds; and a step that loses the last packets of a message waits for the retransmission timeout, so that a ratio of
times is one of timeouts: it is shown for several of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.base.units import format_bytes, format_time, parse_bytes, parse_time
from armillary.engine import simulate
from armillary.engine.transport.layout import PS
from armillary.engine.transport.tcp import Tcp
from armillary.engine.transport.use import LinkUse
from armillary.evidence.reproduce import readers
from armillary.evidence.reproduce.assumptions import assumed, choice
from armillary.evidence.reproduce.judge import Case, above, below, share, times
from armillary.evidence.reproduce.outcome import Claim, Grid, Outcome
from armillary.evidence.reproduce.sources import BUFFERS
from armillary.platform.logical import logical_dimensions
from armillary.platform.model import Collectives, Packets, Platform
from armillary.platform.topology.graph import Topology
from armillary.platform.topology.network import Network
from armillary.platform.topology.wiring import Wiring
from armillary.report import figures
from armillary.trace import GraphBuilder, Trace

GLOBAL = "global"
NEAR = 1.1
"""A time within this factor of that with the largest buffer needs no more of it."""
TIMEOUT = readers.between(parse_time, "1 us", "60 s")
_COLOURS = {"flat": figures.VERMILION, "hierarchical": figures.BLUE}


def _buffers(text: str) -> tuple[int, ...]:
    return tuple(sorted(readers.several(readers.size)(text)))


@dataclass(frozen=True)
class Assumptions:
    """NPUs with a link to the switch of their group, and one to the global switch; and TCP between them."""

    npus: int = assumed(
        "32",
        readers.counting(2, 1024),
        "Number of NPUs: 32 run in seconds and still send 24 to 1 at a port.",
        others=("16",),
    )
    group: int = assumed("8", readers.whole, "NPUs per group: 8, as on HGX boards.", others=("4",))
    size: int = assumed(
        "4 MiB",
        readers.between(parse_bytes, "1 B", "1 GiB"),
        "Vector per NPU, about the size of a gradient bucket.",
        others=("1 MiB", "16 MiB"),
    )
    local: float = assumed(
        "100 GB/s",
        readers.bandwidth,
        "Bandwidth to the group's switch: 8 times that of the global one, as inside servers.",
        others=("12.5 GB/s",),
    )
    global_: float = assumed(
        "100 Gb/s",
        readers.bandwidth,
        "Bandwidth to the global switch: Ethernet of 2020.",
        others=("25 Gb/s",),
    )
    local_latency: float = assumed(
        "250 ns",
        readers.time,
        "Latency of a link to the group's switch: half of a hop of 500 ns.",
        others=("1 us",),
    )
    global_latency: float = assumed(
        "1 us",
        readers.time,
        "Latency of a link to the global switch, including half a switch.",
        others=("10 us",),
    )
    buffers: tuple[int, ...] = assumed(
        "16 KiB,64 KiB,256 KiB,1 MiB,4 MiB,16 MiB",
        _buffers,
        "Buffer of each port of the global switch: 256 KiB is shallow, MiBs are deep.",
        others=("16 KiB,32 KiB,64 KiB",),
    )
    algorithm: str = choice(
        "direct",
        ("direct", "ring"),
        "Algorithm of each phase: direct sends to all at once, ring only to neighbours.",
    )
    congestion_control: str = choice(
        "newreno", ("newreno", "cubic", "dctcp"), "NewReno was ns-3's default in 2020."
    )
    min_rto: float = assumed(
        "200 ms",
        TIMEOUT,
        "Minimum timeout: 200 ms in Linux, 1 s in ns-3, a few ms if tuned.",
        others=("5 ms",),
    )
    initial_window: int = assumed(
        "10", readers.counting(1, 1024), "Initial window in segments: RFC 6928.", others=("2",)
    )
    repeats: int = assumed(
        "3",
        readers.counting(1, 64),
        "Consecutive all-reduces: only the first finds new connections.",
        others=("1",),
    )
    seeds: tuple[int, ...] = assumed(
        "1,2,3,4,5",
        readers.several(readers.counting(0, 1 << 31)),
        "Seeds of the response times of hosts (below 1 us): drops differ, so intervals are over these seeds.",
        others=("6,7,8,9,10",),
    )
    timeouts: tuple[float, ...] = assumed(
        "5 ms",
        readers.several(TIMEOUT),
        "Other minimum timeouts, for which the ratio is shown but not judged; each takes as long as the study.",
        others=("1 s",),
    )

    def __post_init__(self) -> None:
        if self.npus < 2 or self.npus % self.group:
            # Divisors are few: they are all named.
            divisors = [str(size) for size in range(1, self.npus + 1) if self.npus % size == 0]
            raise InputError(
                f"--group is {self.group}, expected a divisor of {self.npus} NPUs: {', '.join(divisors)}"
            )

    def topology(self, buffer: int) -> Topology:
        """Return the graph; `buffer` is the room (bytes) of each port of the global switch."""
        wiring = Wiring("two switches", self.npus)
        npu = np.arange(self.npus)
        locals_ = wiring.tier("local", self.npus // self.group)
        # The group's switch comes first, so that ties take it, see below.
        switch = wiring.tier(GLOBAL, 1)
        # Of two ways with as many links that with the lower numbers is taken: through the group's switch.
        # Both directions of a link to the group's switch.
        wiring.connect(npu, locals_[npu // self.group], "local", self.local, self.local_latency)
        # Up without a limit: only ports towards NPUs drop.
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


Points = dict[str, list[Point]]
"""All-reduce -> a point for each buffer."""


def sweep(chosen: Assumptions, seed: int, min_rto: float) -> Points:
    """Return the points of both all-reduces with one seed and shortest timeout (ns); links of a group never drop."""
    levels = {"flat": (chosen.npus,), "hierarchical": (chosen.group, chosen.npus // chosen.group)}
    # Other constants of TCP stay as in the package.
    tcp = Tcp(algorithm=chosen.congestion_control, min_rto=min_rto / 1e6, initial_window=chosen.initial_window,  # type: ignore[arg-type]
              max_rto=max(min_rto / 1e6, Tcp().max_rto), seed=seed)  # fmt: skip
    step, after = GraphBuilder(), list[int]()
    # Each all-reduce waits for the one before, so that connections persist.
    for number in range(chosen.repeats):
        after = [step.all_reduce(f"all-reduce {number}", chosen.size, after=after)]
    trace = Trace.replicate(step.graph(), chosen.npus)
    return {
        name: [_point(chosen, tcp, trace, sizes, buffer) for buffer in chosen.buffers]
        for name, sizes in levels.items()
    }


def _point(chosen: Assumptions, tcp: Tcp, trace: Trace, levels: tuple[int, ...], buffer: int) -> Point:
    topology = chosen.topology(buffer)
    # Queues without a limit of their own take the transport's: none.
    # asdict of both, so that only what differs is in the platform.
    endless, usual = asdict(replace(tcp, buffer=np.iinfo(np.int64).max)), asdict(Tcp())
    # A group of all NPUs would be a level of size 1.
    dimensions = logical_dimensions(topology, tuple(size for size in levels if size > 1))
    platform = Platform(
        dimensions,
        collectives=Collectives({"all-reduce": (chosen.algorithm,) * len(dimensions)}),
        topology=Network(topology, "shortest"),
        packets=Packets("tcp", {name: value for name, value in endless.items() if value != usual[name]}),
    )
    timeline = simulate(trace, platform, network_model="packet")
    assert timeline.network is not None  # links were simulated
    # ps of one all-reduce, on average of the repeats.
    return _measured(topology, tcp, buffer, timeline.total_ticks * PS / chosen.repeats, timeline.network.use)


def _measured(topology: Topology, tcp: Tcp, buffer: int, time: float, use: LinkUse) -> Point:
    # Ports of the global switch, the last node.
    ports = topology.tail == topology.nodes - 1
    dropped = int(use.drops[ports].sum())
    # Packets offered: those that passed plus those that were dropped.
    packets = int(use.size[ports].sum()) / (tcp.mss + tcp.header) + dropped
    return Point(buffer, time, dropped / packets, int(use.marks[ports].sum()), int(use.depth[ports].max()))


def least_buffer(points: Sequence[Point]) -> int:
    """Return the buffer from which on the time is within `NEAR` of that with the largest."""
    enough = points[-1].buffer
    # From the largest down, until one is too slow.
    for point in reversed(points):
        if point.time > NEAR * points[-1].time:
            break
        enough = point.buffer
    return enough


def run(chosen: Assumptions) -> Outcome:
    """Sweep, and say what it says about the question; the numbers of the study itself are not known here."""
    timeouts = sorted({*chosen.timeouts, chosen.min_rto})
    found = {rto: [sweep(chosen, seed, rto) for seed in chosen.seeds] for rto in timeouts}
    seeds = found[chosen.min_rto]
    title = (
        f"{format_bytes(chosen.size)} all-reduce, {chosen.algorithm}, {chosen.npus} NPUs in groups of "
        f"{chosen.group}, TCP {chosen.congestion_control}, timeouts from {format_time(chosen.min_rto)} on"
    )
    grids = (grid(seeds), _ratios(found))
    return Outcome(title, grids, claims(seeds), lambda figure: draw(seeds, figure))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the largest."""
    return min(values), max(values)


def _between(values: Sequence[float], text: Callable[[float], str]) -> str:
    """Return the interval as text, one number if both ends read the same."""
    return " to ".join(dict.fromkeys(map(text, interval(values))))


def ratios(seeds: Sequence[Points]) -> list[list[float]]:
    """Return flat over hierarchical: for each buffer one number for each seed."""
    # zip over both all-reduces: the same buffer of each.
    each = [[one.time / two.time for one, two in zip(*points.values(), strict=True)] for points in seeds]
    # Rows by buffer, columns by seed.
    return [list(row) for row in zip(*each, strict=True)]


def grid(seeds: Sequence[Points]) -> Grid:
    """Return times over seeds, mean drops and the deepest queues for every buffer."""
    header = ["buffer per port"]
    for name in seeds[0]:
        header += [name, "dropped", "queue"]
    rows = []
    for number, over in enumerate(ratios(seeds)):
        # A buffer per row: the first all-reduce says it.
        cells = [format_bytes(next(iter(seeds[0].values()))[number].buffer)]
        for name in seeds[0]:
            points = [each[name][number] for each in seeds]
            cells += [
                _between([point.time / PS for point in points], format_time),
                # Percent of packets, over all seeds.
                share(sum(point.dropped for point in points) / len(points), 2),
                format_bytes(max(point.depth for point in points)),
            ]
        rows.append((*cells, _between(over, _ratio)))
    title = f"Time of an all-reduce, least to largest of {len(seeds)} seeds"
    return Grid(title, (*header, "flat / hierarchical"), tuple(rows))


def _ratios(found: Mapping[float, Sequence[Points]]) -> Grid:
    """Return what a timeout does to the ratio, and how many timeouts each waits for: time over the fastest buffer's."""
    first = next(iter(found.values()))[0]
    header = ["buffer per port"]
    for rto in found:
        text = format_time(rto)
        header += [f"ratio, {text}", *(f"{name} waits" for name in first)]
    by_timeout = [ratios(seeds) for seeds in found.values()]
    rows = []
    for number, point in enumerate(next(iter(first.values()))):
        cells = [format_bytes(point.buffer)]
        for (rto, seeds), over in zip(found.items(), by_timeout, strict=True):
            cells.append(_between(over[number], _ratio))
            for name in first:
                # Time over the fastest buffer is waiting, which a timeout divides into how many.
                late = [each[name][number].time - min(p.time for p in each[name]) for each in seeds]
                cells.append(f"{sum(late) / len(late) / PS / rto:.1f}")
        rows.append(tuple(cells))
    return Grid(
        "Flat / hierarchical, and timeouts waited for, by the shortest timeout", tuple(header), tuple(rows)
    )


def _ratio(value: float) -> str:
    return times(value) if value < 100 else f"{value:,.0f}x"


def claims(seeds: Sequence[Points]) -> tuple[Claim, ...]:
    """Judge what the study asked: does the hierarchy help, and does it need less of a buffer?"""
    over = ratios(seeds)
    flat, hierarchical = ([each[name] for each in seeds] for name in seeds[0])
    enough = [[least_buffer(points) for points in each] for each in (flat, hierarchical)]
    least = [_between(each, lambda size: format_bytes(round(size))) for each in enough]
    free = [
        ratio
        # Only where neither drops: there the ratio has nothing to do with timeouts.
        for number, row in enumerate(over)
        for ratio, one, two in zip(row, flat, hierarchical, strict=True)
        if not one[number].dropped and not two[number].dropped
    ]
    text = "where packets are dropped it is a ratio of timeouts, and changes with them"
    text = (f"where nothing is dropped it is {_between(free, _ratio)}; " if free else "") + text
    faster = above(1, _ratio)
    return (
        Claim("Hierarchical all-reduce is faster than flat over TCP", BUFFERS, text,
              # One case per buffer, each an interval over seeds.
              tuple(Case(format_bytes(point.buffer), interval(row), faster)
                    for point, row in zip(flat[0], over, strict=True))),
        Claim("It needs less of a buffer in the global switch", BUFFERS,
              f"what it needs over what flat needs; within {share(NEAR - 1, 0)} of the time with the largest buffer "
              f"from: flat {least[0]}, hierarchical {least[1]} per port",
              (Case("", interval([two / one for one, two in zip(*enough, strict=True)]), below(1)),)),
    )  # fmt: skip


def draw(seeds: Sequence[Points], figure: Any) -> None:
    """Draw the median of the time over the buffer, both logarithmic, and a band over all seeds."""
    (axes,) = figures.panels(figure)
    buffers = [point.buffer for point in next(iter(seeds[0].values()))]
    rows = {
        name: [[each[name][number].time / PS for each in seeds] for number in range(len(buffers))]
        for name in seeds[0]
    }
    figures.curves(
        axes,
        buffers,
        # Medians: a seed that waits once more for a timeout would move a mean.
        {name: [float(np.median(row)) for row in each] for name, each in rows.items()},
        _COLOURS,
    )
    for name, each in rows.items():
        low, high = zip(*map(interval, each), strict=True)
        axes.fill_between(buffers, low, high, color=_COLOURS[name], alpha=0.2)
    figures.sizes(axes, buffers, format_bytes)
    figures.written(axes.yaxis, format_time)
    axes.set(xlabel="buffer of a port of the global switch", ylabel="time of an all-reduce; band: all seeds")
    figures.legend(figure)
