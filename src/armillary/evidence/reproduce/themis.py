"""Chunk schedulers on machines of 1,024 NPUs: how much of the bandwidth of all dimensions an all-reduce uses.

After Themis (ISCA 2022, arXiv 2110.04478). Its averages are known; its machines are not fully, so the machines here are
assumed: see `Assumptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from armillary.base.errors import InputError, nearest
from armillary.base.units import format_bytes, format_time, whole
from armillary.evidence.reproduce import readers
from armillary.evidence.reproduce.assumptions import assumed
from armillary.evidence.reproduce.judge import (
    Case,
    above,
    at_least,
    at_most,
    percent,
    share,
    stated,
    stated_share,
)
from armillary.evidence.reproduce.outcome import Claim, Grid, Outcome
from armillary.evidence.reproduce.sources import CASE_2, HUGE, OUR_BAR
from armillary.evidence.reproduce.sources import THEMIS as SOURCE
from armillary.explore.chunk_schedules import bound, scheduled, under
from armillary.platform.model import Collectives, Platform, WithinDimensionName
from armillary.platform.network import TOPOLOGIES, Dimension, Port, TopologyName
from armillary.report import figures

PAPER = {"baseline": 0.5631, "themis, fifo": 0.8767, "themis, smallest first": 0.9514}
"""Average utilisation in the paper."""
COLUMNS: dict[str, tuple[str, WithinDimensionName]] = {
    "baseline": ("baseline", "earliest-phase"),
    "round robin": ("round-robin", "earliest-phase"),
    "themis, fifo": ("themis", "fifo"),
    "themis, smallest first": ("themis", "smallest-first"),
    "flexible chunks": ("themis-flex", "smallest-first"),
    "online greedy": ("online-greedy", "smallest-first"),
    "optimiser": ("optimal", "smallest-first"),
}
"""Name in the table -> order of dimensions, order within a dimension."""
MOST = 1 << 16
"""NPUs of a machine."""
# Of EQUAL's machines only three schedulers are shown.
EQUAL_COLUMNS = ("baseline", "themis, smallest first", "optimiser")
COLOURS = {
    "baseline": figures.GREY,
    "round robin": figures.SKY,
    "themis, fifo": figures.ORANGE,
    "themis, smallest first": figures.VERMILION,
    "flexible chunks": figures.PURPLE,
    "online greedy": figures.GREEN,
    "optimiser": figures.BLUE,
}
Dims = tuple[tuple[TopologyName, int, float], ...]
"""Topology, NPUs, bytes per ns of each dimension."""

# Written as a user writes them: the same reader serves both.
EQUAL = (
    "W-1D-350: Switch 512 350 GB/s; W-1D-500: Switch 512 500 GB/s; W-1D-600: Switch 512 600 GB/s; "
    "W-2D: Switch 32 250 GB/s, Switch 16 250 GB/s; "
    "Conv-3D: Ring 16 200 GB/s, FullyConnected 8 100 GB/s, Switch 4 50 GB/s; "
    "Conv-4D: Ring 2 250 GB/s, FullyConnected 8 200 GB/s, Ring 8 100 GB/s, Switch 4 50 GB/s"
)
LARGE = (
    "W-2D: Switch 32 500 GB/s, Switch 32 500 GB/s; "
    "2D: Switch 16 500 GB/s, Switch 64 250 GB/s; "
    "Conv-3D: Ring 16 200 GB/s, FullyConnected 8 100 GB/s, Switch 8 50 GB/s; "
    "3D equal: Switch 16 200 GB/s, Switch 8 200 GB/s, Switch 8 200 GB/s; "
    "3D falling: Switch 16 400 GB/s, Switch 8 200 GB/s, Switch 8 100 GB/s; "
    "Conv-4D: Ring 2 250 GB/s, FullyConnected 8 200 GB/s, Ring 8 100 GB/s, Switch 8 50 GB/s; "
    "4D: Ring 4 300 GB/s, FullyConnected 4 200 GB/s, Switch 8 100 GB/s, Switch 8 100 GB/s"
)


def read_machines(text: str) -> tuple[tuple[str, Dims], ...]:
    """Return machines from ``"NAME: TOPOLOGY NPUS BANDWIDTH, …; NAME: …"``.

    Raises:
        ValueError: it is not written so.
    """
    found: dict[str, Dims] = {}
    for part in text.split(";"):
        name, colon, rest = part.strip().partition(":")
        dims = []
        for each in rest.split(","):
            words = each.split(maxsplit=2)
            # One dimension of one NPU would be none.
            if not colon or len(words) != 3 or (whole(words[1]) or 0) < 2:
                raise ValueError(f"got {part.strip()!r}, expected 'NAME: TOPOLOGY NPUS BANDWIDTH, …'")
            if words[0] not in TOPOLOGIES:
                raise ValueError(
                    f"got topology {words[0]!r}, expected {', '.join(TOPOLOGIES)}{nearest(words[0], TOPOLOGIES)}"
                )
            dims.append((words[0], int(words[1]), readers.bandwidth(words[2])))
        # The product, after every part was read.
        if prod(n for _, n, _ in dims) > MOST:
            raise ValueError(f"got {name!r} with more than {MOST:,} NPUs, expected at most so many")
        if name in found:
            raise ValueError(f"got {name!r} twice, expected another name for each machine")
        found[name] = tuple(dims)
    return tuple(found.items())


@dataclass(frozen=True)
class Assumptions:
    """Machines, and one all-reduce on each."""

    machines: tuple[tuple[str, Dims], ...] = assumed(
        LARGE,
        read_machines,
        "Machines of 1,024 NPUs in 2 to 4 dimensions, of the kinds in the paper and the ASTRA-sim 2.0 slides; "
        "bandwidth per NPU.",
    )
    equal: tuple[tuple[str, Dims], ...] = assumed(
        EQUAL,
        read_machines,
        "Machines of 512 NPUs from case study 2 of the ASTRA-sim 2.0 slides; the 1-dimensional ones have equal sums.",
    )
    size: int = assumed(
        "1 GB",
        readers.size,
        "Size of the all-reduce, as in the slides; the paper's sizes vary.",
        others=("100 MB", "10 GB"),
    )
    chunks: int = assumed(
        "64",
        readers.chunks,
        "Number of chunks, as in the paper: with fewer, ports are idle at both ends; with more, latency limits.",
        others=("16", "128", "256"),
    )
    latency: float = assumed(
        "500 ns",
        readers.time,
        "Latency of a link, about that of a switch hop; not stated.",
        others=("50 ns", "5 us"),
    )

    def platform(self, dims: Dims) -> Platform:
        """Return a machine with these dimensions."""
        made = tuple(
            Dimension(f"{kind}{at}", kind, n, rate, self.latency, Port(rate, rate))
            # Ports, not links: the schedulers see bandwidth per NPU.
            for at, (kind, n, rate) in enumerate(dims)
        )
        return Platform(made, collectives=Collectives(chunks=self.chunks))


def closed_form(platform: Platform) -> float:
    """Return the utilisation of the baseline when its slowest dimension never idles.

    Dimension d moves 2 (n_d - 1) ÷ (n_1 … n_d) of the bytes; all must wait for that which needs longest.
    """
    inside, parts = 1, []
    # n_d - 1 of n_d parts stay within a dimension; the rest goes on.
    for dimension in platform.dimensions:
        inside *= dimension.size
        parts.append((2 * (dimension.size - 1) / inside, dimension.bandwidth))
    # The slowest dimension never idles.
    longest = max(moved / rate for moved, rate in parts)
    return sum(moved for moved, _ in parts) / (longest * sum(rate for _, rate in parts))


@dataclass(frozen=True)
class Machine:
    """What was found for one machine: utilisation by column, by the bound and by the closed form; times, ns."""

    used: Mapping[str, float]
    time: Mapping[str, int]
    bound: float
    closed: float
    best: float


def measure(chosen: Assumptions, dims: Dims) -> Machine:
    """Simulate one machine under every scheduler."""
    platform = chosen.platform(dims)
    used, time = {}, {}
    for name, (how, within) in COLUMNS.items():
        # The order within a dimension belongs to each column.
        each = replace(platform, collectives=replace(platform.collectives, within_dimension=within))
        found = scheduled(under(each, how), "all-reduce", chosen.size)
        used[name], time[name] = found.used, found.time
    least = bound(platform, "all-reduce", chosen.size)
    # `used` is bytes over time; the bound has the same bytes in the least time.
    best = used["baseline"] * time["baseline"] / least
    return Machine(used, time, least, closed_form(platform), best)


def run(chosen: Assumptions) -> Outcome:
    """Simulate all machines and judge what the paper and the slides claim."""
    # A machine of one dimension has no order to choose.
    for name, dims in chosen.machines:
        if len(dims) < 2:
            raise InputError(
                f"--machines: {name} has one dimension, expected 2 or more: there is nothing to order"
            )
    large = {name: measure(chosen, dims) for name, dims in chosen.machines}
    equal = {name: measure(chosen, dims) for name, dims in chosen.equal}
    rates = {name: sum(rate for _, _, rate in dims) for name, dims in chosen.equal}
    title = f"All-reduce of {format_bytes(chosen.size)}, {chosen.chunks} chunks: bandwidth used by chunk schedulers"
    grids = (_used(large), _from_bound(large), _equal(equal, rates))
    claims = (*_claims(large), *_equal_claims(equal, rates))
    return Outcome(title, grids, claims, lambda figure: draw(large, figure))


def average(found: Mapping[str, Machine], of: Callable[[Machine], float]) -> float:
    """Return the mean over machines."""
    return sum(map(of, found.values())) / len(found)


def _used(found: Mapping[str, Machine]) -> Grid:
    header = ("scheduler", *found, "average", "paper")
    rows = []
    for name in COLUMNS:
        cells = [share(each.used[name]) for each in found.values()]
        # name=name binds the loop variable now.
        mean = average(found, lambda each, name=name: each.used[name])  # type: ignore[misc]
        rows.append((name, *cells, share(mean), share(PAPER[name]) if name in PAPER else ""))
    # Two columns that are no schedulers.
    more: dict[str, Callable[[Machine], float]] = {
        "bound": lambda each: each.best,
        "baseline, closed form": lambda each: each.closed,
    }
    for name, of in more.items():
        cells = [share(of(each)) for each in found.values()]
        rows.append((name, *cells, share(average(found, of)), ""))
    return Grid("Bandwidth used: bytes / (time x sum of the bandwidths)", header, tuple(rows))


def _from_bound(found: Mapping[str, Machine]) -> Grid:
    rows = []
    for name in COLUMNS:
        over = [each.time[name] / each.bound - 1 for each in found.values()]
        rows.append((name, *(share(part) for part in over), share(sum(over) / len(over))))
    return Grid("Time over the bound that no order beats", ("scheduler", *found, "average"), tuple(rows))


def _equal(found: Mapping[str, Machine], rates: Mapping[str, float]) -> Grid:
    rows = []
    for name, each in found.items():
        # W-1D has no partner: it is one.
        one = partner(name, found, rates)
        cells = [format_time(each.time[column]) for column in EQUAL_COLUMNS]
        more = [percent(each.time[c] / found[one].time[c]) if one else "" for c in EQUAL_COLUMNS]
        rows.append((name, *cells, *more))
    header = ("machine", *EQUAL_COLUMNS, *("to W-1D" for _ in EQUAL_COLUMNS))
    return Grid("Equal bandwidth per NPU, 512 NPUs: time, and against one dimension", header, tuple(rows))


def partner(name: str, found: Mapping[str, Machine], rates: Mapping[str, float]) -> str:
    """Return the machine of one dimension with the same bandwidth per NPU, or nothing for such a machine."""
    if name.startswith("W-1D"):
        return ""
    # Equal sums of bandwidth, to the last digit: both are written in EQUAL.
    return next((one for one in found if one.startswith("W-1D") and rates[one] == rates[name]), "")


def _claims(found: Mapping[str, Machine]) -> tuple[Claim, ...]:
    mean = {name: average(found, lambda m, name=name: m.used[name]) for name in COLUMNS}  # type: ignore[misc]
    said = [
        Claim(f"{name.capitalize()} uses {share(part)} of the bandwidth on average", SOURCE,
              "the machines are not the paper's", (Case("", mean[name], stated_share(part)),))
        for name, part in PAPER.items()
    ]  # fmt: skip
    first, fifo = "themis, smallest first", "themis, fifo"
    # Speed-ups per machine, and their mean: the paper averages ratios.
    faster = [each.time["baseline"] / each.time[first] for each in found.values()]
    reached = [each.bound / each.time[first] for each in found.values()]
    # Over all machines: the closed form must hold on each.
    off = max(abs(each.used["baseline"] - each.closed) for each in found.values())
    return (
        *said,
        Claim("Smallest chunk first is better than FIFO within a dimension", SOURCE,
              f"{(mean[first] - mean[fifo]) * 100:+.1f} points of bandwidth used",
              (Case("", mean[first] / mean[fifo], above(1)),)),
        Claim("Themis is 1.72 times as fast as the baseline on average, 2.70 at most", SOURCE,
              "the machines are not the paper's",
              (Case("average", sum(faster) / len(faster), stated(1.72)), Case("most", max(faster), stated(2.70)))),
        Claim("Themis is within 95 % of the bound on average, within 90 % on each machine", OUR_BAR,
              "of the bandwidth that no order of chunks exceeds",
              (Case("average", sum(reached) / len(reached), at_least(0.95, share)),
               Case("least", min(reached), at_least(0.9, share)))),
        Claim("The baseline is within 2 points of its closed form", OUR_BAR, "on the machine where most",
              (Case("", off, at_most(0.02, _points)),)),
    )  # fmt: skip


def _points(part: float) -> str:
    return f"{100 * part:.1f} points"


def _equal_claims(found: Mapping[str, Machine], rates: Mapping[str, float]) -> tuple[Claim, ...]:
    first, best = "themis, smallest first", "optimiser"
    # Machines of one dimension, where nothing can be ordered.
    ones = [
        each.time["baseline"] / each.time[first] - 1
        for name, each in found.items()
        if name.startswith("W-1D")
    ]
    pairs = [
        (each, found[partner(name, found, rates)])
        for name, each in found.items()
        if partner(name, found, rates)
    ]
    # `equal` may have been replaced by machines without partners.
    if not ones or not pairs:
        return ()
    gains = [each.time["baseline"] / each.time[first] for each, _ in pairs]
    greedy = max(each.time[first] / one.time[first] - 1 for each, one in pairs)
    optimal = max(each.time[best] / one.time[best] - 1 for each, one in pairs)
    return (
        Claim("Themis changes nothing in one dimension", CASE_2, "time, where it changes most",
              (Case("", max(map(abs, ones)), at_most(0.01, share)),)),
        Claim("Themis is a huge gain in several dimensions", CASE_2,
              f"huge is from {HUGE:g}x on here, no number is given",
              (Case("least", min(gains), at_least(HUGE)), Case("most", max(gains), at_least(HUGE)))),
        Claim("With equal bandwidth per NPU, times are near equal whatever the dimensions", CASE_2,
              "how much longer than one dimension, at most",
              (Case("Themis", greedy, at_most(0.08, share)), Case("optimiser", optimal, at_most(0.05, share)))),
    )  # fmt: skip


def draw(found: Mapping[str, Machine], figure: Any) -> None:
    """Draw bars of utilisation per machine, with a line at the bound."""
    (axes,) = figures.panels(figure)
    used = {name: [100 * each.used[name] for each in found.values()] for name in COLUMNS}
    figures.grouped(axes, list(found), used, COLOURS)
    for at, each in enumerate(found.values()):
        # The bound as a line over each group of bars.
        axes.plot([at - 0.45, at + 0.45], [100 * each.best] * 2, color="black", linewidth=1, label="bound")
    axes.set(ylabel="bandwidth used", ylim=(0, 105))
    figures.written(axes.yaxis, lambda value: f"{value:.0f} %")
    figures.legend(figure)
