"""Ring all-reduce measured on V100s: is a ring with one bandwidth as near as ASTRA-sim 2.0 finds its own to be?

The paper measures 4 and 16 V100 from 64 MB to 1.5 GB and is 5 % off in the mean; its points are not public. vTrain's
tables have 2, 4 and 8 V100 to 1 GiB, so 4 GPUs can be judged; 16, which two machines or an NVSwitch join, and what is
larger than 1 GiB cannot. How the paper came by its bandwidth is not public either, so three ways are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from armillary.base.units import format_bytes, format_time
from armillary.engine import simulate
from armillary.evidence.reproduce import readers
from armillary.evidence.reproduce.assumptions import assumed, choice
from armillary.evidence.reproduce.judge import Case, at_most, percent, share
from armillary.evidence.reproduce.outcome import Claim, Grid, Outcome
from armillary.evidence.reproduce.sources import PAPER_NOTES, VALIDATION
from armillary.platform import load_platform
from armillary.report import figures
from armillary.trace import GraphBuilder, Trace

MIB = 2**20
SIZES = tuple(mib * MIB for mib in (64, 96, 128, 192, 256, 384, 512, 768, 1024))
"""Bytes: the paper's range, as far as the tables go."""
# MiB: the paper says MB, and nccl-tests count powers of two.
MEASURED_US = {
    2: (2998.8, 4483.8, 5969.8, 8939.7, 11912.0, 17864.0, 23808.0, 35706.0, 47613.5),
    4: (1202.0, 1780.0, 2362.4, 3526.3, 4717.6, 7079.0, 9442.1, 14177.5, 18870.5),
    8: (911.8, 1338.8, 1778.4, 2646.2, 3528.3, 5265.2, 7008.3, 10489.0, 13976.0),
}
"""GPUs -> times at `SIZES`, means of out of place and in place: VIA-Research/vTrain@f8dda84 (MIT),
trace_v100_AR_GPU{2,4,8}_1M_1024M_LUT."""
# "5 %" is the mean error of the paper.
PAPER = 0.05
DOCS = {2: 0.114, 4: 0.079, 8: 0.028}
"""GPUs -> error that ASTRA-sim's documentation states for an HPE server with V100s (geometric mean)."""
SHEET, PAIR, LARGEST = "data sheet", "as on 2 GPUs", "own 1 GiB"
WAYS = {
    # Three readings of "the bandwidth".
    SHEET: "links at the data sheet's bandwidth",
    PAIR: "the part of it that 2 GPUs reach at 1 GiB",
    LARGEST: "the part of it that as many GPUs reach at 1 GiB; the other sizes are judged",
}


@dataclass(frozen=True)
class Assumptions:
    """What neither paper nor tables say."""

    link: float = assumed(
        "25 GB/s", readers.bandwidth, "Bandwidth of an NVLink 2, each way: NVIDIA's data sheet of the "
        "V100.", others=("20 GB/s",)
    )  # fmt: skip
    links: tuple[int, ...] = assumed(
        "1, 4, 6",
        readers.counting_of(3, 1, 18),
        "Links of a GPU to the 1, 3 and 7 others: as in a DGX-1, and the fewest that carry the measured bandwidth.",
        others=("6, 6, 6",),
    )
    latency: float = assumed(
        "1 us",
        readers.time,
        "Latency of a hop, including NCCL's overhead: not public.",
        others=("0 ns", "5 us"),
    )
    network: str = choice(
        "analytical", ("analytical", "flow"), "Both have the same bandwidth; flow moves each message."
    )


@dataclass(frozen=True)
class Curve:
    """Times of one number of GPUs with a bandwidth found in one way; `error` leaves out what the way has seen."""

    gpus: int
    way: str
    times: tuple[float, ...]

    @property
    def errors(self) -> tuple[float, ...]:
        """Predicted over measured less 1, at `SIZES`."""
        measured = MEASURED_US[self.gpus]
        return tuple(time / (1e3 * true) - 1 for time, true in zip(self.times, measured, strict=True))

    @property
    def error(self) -> float:
        """Mean of absolute errors."""
        # What was fitted to does not count.
        errors = self.errors[:-1] if self.way == LARGEST else self.errors
        return fmean(abs(error) for error in errors)


def ring(gpus: int, bandwidth: float, size: int, chosen: Assumptions) -> float:
    """Return ns of a ring all-reduce where each GPU sends so many bytes per ns, over all its links."""
    platform = load_platform(
        {
            "network": [
                {
                    "topology": "Ring", "size": gpus, "bandwidth": f"{bandwidth!r} GB/s", "per": "npu",
                    "latency": f"{chosen.latency!r} ns",
                }
            ],
            "collectives": {"all-reduce": "ring"},
        }
    )  # fmt: skip
    builder = GraphBuilder()
    builder.all_reduce("all-reduce", size=size)
    trace = Trace.replicate(builder.graph(), gpus)
    return float(simulate(trace, platform, network_model=chosen.network).total_ticks)


def measure(chosen: Assumptions) -> list[Curve]:
    """Simulate every number of GPUs, size and way."""
    # Links of the data sheet to the others.
    sheet = {gpus: count * chosen.link for gpus, count in zip(MEASURED_US, chosen.links, strict=True)}
    reached = {
        # Predicted over measured at 1 GiB: the part of the data sheet that is reached.
        gpus: ring(gpus, rate, SIZES[-1], chosen) / (1e3 * MEASURED_US[gpus][-1])
        for gpus, rate in sheet.items()
    }
    curves = []
    for gpus, rate in sheet.items():
        # A larger rate by the part makes the prediction of 1 GiB exact.
        for way, part in ((SHEET, 1.0), (PAIR, reached[2]), (LARGEST, reached[gpus])):
            if way == PAIR and gpus == 2:  # which is its own
                continue
            times = tuple(ring(gpus, part * rate, size, chosen) for size in SIZES)
            curves.append(Curve(gpus, way, times))
    return curves


def run(chosen: Assumptions) -> Outcome:
    """Simulate, and judge as far as the tables go."""
    curves = measure(chosen)
    four = tuple(
        # Only 4 GPUs are in both sources; 2 and 8 are not judged by this claim.
        Case(f"{each.gpus} GPUs, {each.way}", each.error, at_most(PAPER, share))
        for each in curves
        if each.gpus == 4
    )
    every = tuple(
        # Every number of GPUs against its own error of the documentation.
        Case(f"{each.gpus} GPUs, {each.way}", each.error, at_most(DOCS[each.gpus], share))
        for each in curves
    )
    ways = "; ".join(f"{way}: {text}" for way, text in WAYS.items())
    claims = (
        Claim("A ring is met on 4 V100, 64 MB to 1.5 GB, with a mean error of 5 %", PAPER_NOTES,
              f"from 64 MiB to 1 GiB, on another machine; {ways}", four),
        # No cases: the tables do not reach that far.
        Claim("The same on 16 V100", PAPER_NOTES,
              "the tables end at 8 GPUs of one machine: what joins 16, two machines or an NVSwitch, is in none", ()),
        Claim("The same above 1 GiB", PAPER_NOTES, "the tables end at 1 GiB", ()),
        Claim("Errors of an HPE server with 2, 4 and 8 V100", VALIDATION,
              "another server with the same GPUs and links; its sizes are not stated", every),
    )  # fmt: skip
    return Outcome(
        f"Ring all-reduce on 2, 4 and 8 V100 to 1 GiB, {chosen.network} network: no 16 V100, no 1.5 GB",
        (_errors(curves), _measured()),
        claims,
        lambda figure: draw(figure, curves),
    )


def _errors(curves: Sequence[Curve]) -> Grid:
    rows = tuple(
        (f"{each.gpus} GPUs, {each.way}", *(percent(1 + error) for error in each.errors), share(each.error))
        for each in curves
    )
    header = ("bandwidth", *map(format_bytes, SIZES), "mean")
    return Grid(
        "Predicted over measured; the mean is of absolute errors without what was fitted", header, rows
    )


def _measured() -> Grid:
    rows = tuple(
        (f"{gpus} GPUs", *(format_time(1e3 * time) for time in measured))
        for gpus, measured in MEASURED_US.items()
    )
    return Grid("Measured", ("", *map(format_bytes, SIZES)), rows)


def draw(figure: Any, curves: Sequence[Curve]) -> None:
    """Draw the errors over the size, a panel for each number of GPUs."""
    colours = dict(zip(WAYS, (figures.VERMILION, figures.ORANGE, figures.GREEN), strict=True))
    counts = list(MEASURED_US)
    panels = figures.panels(figure, [f"{gpus} V100" for gpus in counts], share=True)
    for axes, gpus in zip(panels, counts, strict=True):
        axes.axhspan(-100 * PAPER, 100 * PAPER, color="#EEEEEE", zorder=0)
        axes.axhline(0, color=figures.GREY, linewidth=0.8)
        series = {each.way: [100 * error for error in each.errors] for each in curves if each.gpus == gpus}
        figures.curves(axes, SIZES, series, colours)
        axes.set(xscale="log")
        axes.set_xticks(SIZES[::2], [format_bytes(size) for size in SIZES[::2]], rotation=30)
        axes.minorticks_off()
        figures.written(axes.yaxis, lambda value: f"{value:+.0f} %")
    panels[0].set_ylabel("predicted / measured; grey: 5 %")
    figures.legend(figure)
