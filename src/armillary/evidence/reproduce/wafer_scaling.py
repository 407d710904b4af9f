"""Case study 1 of ASTRA-sim 2.0 (ISPASS 2023), second half: scaling the wafer up against scaling the cluster out.

From 512 NPUs, Ring 2 x FullyConnected 8 x Ring 8 x Switch 4, either the first dimension grows (more NPUs on a wafer) or
the last (more wafers), to 1,024, 2,048 and 4,096 NPUs. "Up to 2.51x" is all that is public of the results.

While the wafer is the narrowest dimension, the gain is proportional to its bandwidth, so the number picks it: with 8
NPUs on a wafer all of it carries 2 x 7/8 of the vector, in the base the second dimension carries 2 x 7/8 of half of it
at 200 GB/s; the quotient is the bandwidth of the wafer over 400 GB/s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, cast

from armillary.base.units import format_bandwidth, format_time
from armillary.engine import simulate
from armillary.evidence.reproduce import readers
from armillary.evidence.reproduce.assumptions import assumed, choice
from armillary.evidence.reproduce.case_machines import MACHINES, Block, NetworkAssumptions, networked
from armillary.evidence.reproduce.judge import Case, above, joined, percent, stated, times
from armillary.evidence.reproduce.outcome import Claim, Grid, Outcome
from armillary.evidence.reproduce.sources import PAPER_NOTES
from armillary.report import figures
from armillary.trace import GraphBuilder, Trace

if TYPE_CHECKING:
    from armillary.platform.model import ProfileName

# The base is not in it.
SPEEDUP = 2.51
FACTORS = (2, 4, 8)
"""How many times as many NPUs: 1,024 to 4,096."""
WAFERS = (250.0, 500.0, 750.0, 900.0, 1000.0, 1100.0, 1250.0, 1500.0, 2000.0)
"""Bandwidths of the wafer to compare, bytes/ns: from the slides' 250 GB/s on."""
COLOURS = {"scaled up": figures.VERMILION, "scaled out": figures.GREY}


@dataclass(frozen=True)
class Assumptions(NetworkAssumptions):
    """What is not public of it; shapes and the other bandwidths are those of Conv-4D on the slides."""

    wafer: float = assumed(
        "1000 GB/s",
        readers.bandwidth,
        "Bandwidth of the first dimension: not public; chosen to give the number that it should explain. The slides' "
        "Conv-4D has 250.",
        others=("250 GB/s", "500 GB/s", "2000 GB/s"),
    )
    size: int = assumed(
        "1 GB", readers.size, "Size of the all-reduce, as in the paper.", others=("1 MB", "100 MB")
    )
    profile: str = choice(
        "physical",
        ("physical", "astra-sim"),
        "Profile astra-sim has the conventions of ASTRA-sim 2: one-way rings, and one chunk at a time in a dimension.",
    )


def blocks(chosen: Assumptions, up: int = 1, out: int = 1) -> tuple[Block, ...]:
    """Return the machine with `up` times the NPUs on a wafer, and `out` times as many wafers."""
    # All dimensions but the first and the last stay.
    first, *middle, last = MACHINES["Conv-4D"]
    return (
        # `up` grows the wafer, `out` the last dimension.
        Block(first.topology, first.size * up, chosen.wafer), *middle, last._replace(size=last.size * out)
    )  # fmt: skip


# Sweep and claims share most simulations.
@cache
def time(chosen: Assumptions, up: int = 1, out: int = 1) -> float:
    """Return the time of the all-reduce, ns."""
    dimensions = blocks(chosen, up, out)
    builder = GraphBuilder()
    builder.all_reduce("all-reduce", size=chosen.size)
    trace = Trace.replicate(builder.graph(), prod(each.size for each in dimensions))
    profile = cast("ProfileName", chosen.profile)
    timeline = simulate(trace, networked(dimensions, chosen, profile), profile=profile)
    return timeline.total_ticks * float(timeline.info.get("tick_ns", 1))


def gains(chosen: Assumptions) -> tuple[list[float], list[float]]:
    """Return how much faster the machine of each of `FACTORS` is than the base: scaled up, scaled out."""
    base = time(chosen)
    return [base / time(chosen, up=factor) for factor in FACTORS], [
        base / time(chosen, out=factor) for factor in FACTORS
    ]


def run(chosen: Assumptions) -> Outcome:
    """Simulate both ways of growing, and sweep the bandwidth that the number picks."""
    # sorted: the chosen bandwidth may be none of the list.
    swept = {rate: gains(replace(chosen, wafer=rate)) for rate in sorted({*WAFERS, chosen.wafer})}
    title = (
        f"A wafer scaled up against out: {chosen.size / 1e9:g} GB all-reduce, {chosen.profile}, "
        f"{format_bandwidth(chosen.wafer)} on the wafer assumed"
    )
    return Outcome(
        title, (_times(chosen), _sweep(swept)), _claims(chosen, swept), lambda figure: _draw(figure, chosen, swept)
    )  # fmt: skip


Swept = dict[float, tuple[list[float], list[float]]]


def _times(chosen: Assumptions) -> Grid:
    rows = []
    base = time(chosen)
    # The base, and both ways of growing.
    grown = [
        ("base", 1, 1), *(("up", each, 1) for each in FACTORS), *(("out", 1, each) for each in FACTORS)
    ]  # fmt: skip
    for name, up, out in grown:
        sizes = [block.size for block in blocks(chosen, up, out)]
        took = time(chosen, up, out)
        rows.append(
            (name, "x".join(map(str, sizes)), f"{prod(sizes):,}", format_time(took), times(base / took))
        )
    return Grid("Time of the all-reduce", ("grown", "shape", "NPUs", "time", "to base"), tuple(rows))


def _sweep(swept: Swept) -> Grid:
    rows = tuple(
        (format_bandwidth(rate), *map(times, up), times(max(up)), times(max(out))) for rate, (up, out) in swept.items()
    )  # fmt: skip
    header = ("wafer", *(f"up x{factor}" for factor in FACTORS), "best up", "best out")
    return Grid("Gain by the assumed bandwidth", header, rows)


def _claims(chosen: Assumptions, swept: Swept) -> tuple[Claim, ...]:
    up, out = swept[chosen.wafer]
    best = max(up)
    expected = stated(SPEEDUP)
    # Which bandwidths agree with the number: the claim is circular, and says so.
    fitting = [rate for rate, (each, _) in swept.items() if expected.agrees(max(each), max(each))]
    # WAFERS begins with the slides' bandwidth.
    slides = max(swept[WAFERS[0]][0])
    picked = (
        f"of the bandwidths tried only {joined([format_bandwidth(rate) for rate in fitting])} agree"
        if fitting
        else "no bandwidth tried agrees"
    )
    return (
        Claim(
            f"Scaling the wafer up speeds collectives up by up to {SPEEDUP}x",
            PAPER_NOTES,
            f"the number picks the bandwidth of the wafer, which is not public: {picked}; with "
            f"{format_bandwidth(WAFERS[0])} as on the slides it is {times(slides)} at best",
            (Case(f"x{FACTORS[up.index(best)]} at {format_bandwidth(chosen.wafer)}", best, expected),),
        ),
        Claim(
            "Scaling up is faster than scaling out to as many NPUs",
            f"{PAPER_NOTES}, implied",
            f"scaled out, time changes by {percent(1 / max(out))} to {percent(1 / min(out))}",
            tuple(
                Case(f"{512 * factor:,} NPUs", one / other, above(1))
                for factor, one, other in zip(FACTORS, up, out, strict=True)
            ),
        ),
    )


def _draw(figure: Any, chosen: Assumptions, swept: Swept) -> None:
    left, right = figures.panels(figure, ("gain over 512 NPUs", "best gain of scaling up"))
    base_and = (512, *(512 * factor for factor in FACTORS))
    up, out = swept[chosen.wafer]
    # The base is 1 by definition.
    series = {"scaled up": [1.0, *up], "scaled out": [1.0, *out]}
    figures.curves(left, range(len(base_and)), series, COLOURS, thick="scaled up")
    left.set_xticks(range(len(base_and)), [f"{npus:,}" for npus in base_and])
    left.set_xlabel(f"NPUs, {format_bandwidth(chosen.wafer)} on the wafer")
    rates = list(swept)
    figures.curves(right, rates, {"scaled up": [max(each) for each, _ in swept.values()]}, COLOURS)
    right.axvline(chosen.wafer, color="black", linewidth=0.8, linestyle=":", label="assumed")
    right.set_xlabel("bandwidth of the wafer, TB/s")
    figures.written(right.xaxis, lambda value: f"{value / 1000:g}")
    for axes in (left, right):
        axes.axhline(SPEEDUP, color="black", linewidth=0.8, linestyle="--", label=f"stated: {SPEEDUP}x")
        axes.set_ylim(0, None)
        figures.written(axes.yaxis, lambda value: f"{value:g}x")
    figures.legend(figure)
