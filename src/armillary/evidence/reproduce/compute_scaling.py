"""Faster and faster NPUs on a torus of 2 x 4 x 4: when does communication bound the step?

After the plot of the ASTRA-sim tutorial at Hot Interconnects, of which we have the machine's shape and the question,
but no values. Workload and batch decide the answer, so it is asked of several of each; links and NPU are assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from armillary.base.units import format_time
from armillary.engine import simulate
from armillary.evidence.reproduce import readers
from armillary.evidence.reproduce.assumptions import assumed, choice
from armillary.evidence.reproduce.judge import Case, above, below, share
from armillary.evidence.reproduce.outcome import Claim, Grid, Outcome
from armillary.evidence.reproduce.sources import SCALING
from armillary.platform import load_platform
from armillary.platform.model import Platform
from armillary.report import figures
from armillary.report.time_breakdown import breakdown
from armillary.workload.generate import generate
from armillary.workload.models.read import load_model
from armillary.workload.plan.schema import Plan

FACTORS = (1, 2, 4, 8, 16, 32)
SHAPE = (2, 4, 4)
WORKLOADS = ("resnet-50", "gnmt", "dlrm-libra", "vit-l-16")


@dataclass(frozen=True)
class Assumptions:
    """What the plot does not say."""

    workload: tuple[str, ...] = assumed(
        ", ".join(WORKLOADS),
        readers.several(readers.among(WORKLOADS)),
        "Data-parallel, so that gradients are all-reduced; DLRM also exchanges sums of its tables.",
        others=WORKLOADS,
    )
    samples: tuple[int, ...] = assumed(
        "1, 4, 16, 64, 256",
        readers.several(readers.whole),
        "Samples per NPU and step: from the minimum to more than usual for training on images.",
        others=("8", "32", "128"),
    )
    peak: float = assumed(
        "123 TFLOP/s", readers.flops,
        "Peak of an NPU at x1: an array of 256 x 256 at 940 MHz, as in a TPUv3-like NPU.",
        others=("60 TFLOP/s", "312 TFLOP/s"),
    )  # fmt: skip
    memory: float = assumed(
        "900 GB/s",
        readers.bandwidth,
        "Local memory bandwidth of an NPU at x1: HBM2, as in TPUv3 and V100.",
        others=("2 TB/s",),
    )
    model: str = choice(
        "systolic",
        ("systolic", "roofline"),
        "ASTRA-sim 1.0 took compute times from SCALE-sim; 2.0 has the roofline.",
    )
    dataflow: str = choice(
        "weight", ("output", "weight", "input"), "Dataflow of the array: weights stay, as in a TPU."
    )
    scales: str = choice(
        "all",
        ("all", "peak"),
        "What gets faster: the whole NPU, which divides every compute time, or only its peak.",
    )
    efficiency: float = assumed(
        "80 %",
        readers.part,
        "Share of the memory bandwidth that kernels reach: usual for large ones.",
        others=("100 %",),
    )
    inner: float = assumed(
        "200 GB/s",
        readers.bandwidth,
        "Bandwidth per link of the ring of 2, which is on a package.",
        others=("100 GB/s",),
    )
    outer: float = assumed(
        "25 GB/s",
        readers.bandwidth,
        "Bandwidth per link of the rings of 4, between packages: NVLink 2.",
        others=("50 GB/s", "100 GB/s"),
    )
    latency: float = assumed(
        "500 ns", readers.time, "Latency per hop, as in ASTRA-sim's examples.", others=("100 ns", "2 us")
    )


@dataclass(frozen=True)
class Point:
    """One step; times in ns.

    Attributes:
        factor: How much faster the NPU is.
        step: The whole.
        compute: In which the NPU computes, communication hidden behind it included.
        exposed: In which it waits for communication.
    """

    factor: int
    step: float
    compute: float
    exposed: float

    @property
    def part(self) -> float:
        """Exposed communication as a part of the step."""
        return self.exposed / self.step


Found = dict[tuple[str, int], list[Point]]
"""(workload, samples per NPU) -> a step for each factor."""


def machine(chosen: Assumptions, factor: int) -> Platform:
    """Return the torus with NPUs that are `factor` times as fast."""
    # "all" makes memory faster with the peak, so that every compute time is divided.
    size, faster = SHAPE, factor if chosen.scales == "all" else 1
    links = [chosen.inner, chosen.outer, chosen.outer]
    # Read as a study, so that keys are checked as a user's.
    platform = load_platform(
        {
            "network": [
                {
                    "name": f"dim{at}", "topology": "Torus", "size": size[at], "bandwidth": f"{links[at]} GB/s",
                    "per": "link", "latency": f"{chosen.latency} ns",
                }
                for at in range(3)
            ],
            "npu": {
                "peak": f"{chosen.peak * factor:.0f} FLOP/s",
                "memory": {"bandwidth": f"{chosen.memory * faster} GB/s"},
            },
            "compute": {"roofline": True, "efficiency": {"memory": f"{100 * chosen.efficiency} %"}},
            "collectives": {"chunks": 16},
        }
    )  # fmt: skip
    if chosen.model == "roofline":
        return platform
    array = 256
    # A multiplication and an addition per cell and cycle.
    clock = chosen.peak * factor / (2 * array**2)
    options = {"rows": array, "columns": array, "dataflow": chosen.dataflow, "clock": clock}
    return replace(platform, compute=replace(platform.compute, model="systolic", options=options))


def measure(chosen: Assumptions, workload: str, samples: int) -> list[Point]:
    """Simulate a step for every factor."""
    npus = SHAPE[0] * SHAPE[1] * SHAPE[2]
    # The batch is per NPU and step: weak scaling.
    plan = {
        "ranks": npus,
        "batch": npus * samples,
        "microbatch": samples,
        "optimizer": "momentum",
        "clip": False,
    }
    trace = generate(load_model(workload), Plan.model_validate(plan))
    points = []
    for factor in FACTORS:
        # The trace does not depend on the factor: generated once.
        timeline = simulate(trace, machine(chosen, factor))
        # Rank 0: all do the same.
        parts = breakdown(timeline, 0).parts()
        points.append(
            # All that is not computation, as in the plot: also waiting.
            Point(factor, timeline.total_ticks, parts["compute"], timeline.total_ticks - parts["compute"])
        )
    return points


def run(chosen: Assumptions) -> Outcome:
    """Simulate, and judge what the plot is there to say."""
    found = {
        (workload, samples): measure(chosen, workload, samples)
        for workload in chosen.workload
        for samples in chosen.samples
    }
    # Half of the step is where communication "bounds" it.
    bound = {key: Case(_name(*key), points[-1].part, above(0.5, share)) for key, points in found.items()}
    # Points of per cent, at the fastest NPU less the slowest.
    rising = tuple(
        Case(_name(*key), 100 * (points[-1].part - points[0].part), above(0, _points))
        for key, points in found.items()
    )
    flat = tuple(
        # A doubling at the end over a doubling at the start.
        Case(_name(*key), gain(points[-2:]) / gain(points[:2]), below(1))
        for key, points in found.items()
    )
    claims = (
        Claim("As compute gets faster, communication takes a larger part of the step", SCALING,
              "the part of a step in which an NPU waits for communication, x32 less x1", rising),
        Claim("Communication comes to bound the step", SCALING, _where(chosen, found), tuple(bound.values())),
        Claim("Faster compute alone gains less and less", SCALING,
              f"speed-up of x{FACTORS[-2]} to x{FACTORS[-1]} over that of x1 to x2", flat),
        # No cases: the source has no values, and the verdict is open.
        Claim("The values of the plot", SCALING,
              "they are not in its text; the table is ours under these assumptions", ()),
    )  # fmt: skip
    memory = " (operands fetched once, no buffers)" if chosen.model == "systolic" else ""
    title = (
        f"Torus of 2 x 4 x 4, {chosen.model} compute model{memory}; workload and batch are not public: "
        f"{len(chosen.workload)} x {len(chosen.samples)} tried"
    )
    return Outcome(title, (_shares(found), _steps(found)), claims, lambda figure: draw(figure, found))


def gain(points: list[Point]) -> float:
    """Return how much shorter the last step is than the first."""
    return points[0].step / points[-1].step


def _name(workload: str, samples: int) -> str:
    return f"{workload} {samples:,}"


def _points(value: float) -> str:
    return f"{value:.1f} points"


def _where(chosen: Assumptions, found: Found) -> str:
    """Return up to how many samples more than half of the step waits within the range, for each workload."""
    texts = []
    for workload in chosen.workload:
        over = {each: crossover(found[workload, each]) for each in chosen.samples}
        within = [each for each, factor in over.items() if factor is not None]
        texts.append(f"{workload} up to {max(within):,} samples" if within else f"{workload} never")
    return f"part of the step at x{FACTORS[-1]}; more than half: {'; '.join(texts)}; which the plot has is not public"


def _shares(found: Found) -> Grid:
    rows = tuple(
        (
            _name(*key), *(share(point.part) for point in points),
            "never" if (over := crossover(points)) is None else f"x{over:.3g}",
        )
        for key, points in found.items()
    )  # fmt: skip
    header = ("samples per NPU", *(f"x{factor}" for factor in FACTORS), "half from")
    return Grid("Exposed communication, part of the step, by compute capability", header, rows)


def _steps(found: Found) -> Grid:
    rows = tuple(
        (_name(*key), *(format_time(point.step) for point in points), f"{gain(points):.2f}")
        for key, points in found.items()
    )
    header = ("samples per NPU", *(f"x{factor}" for factor in FACTORS), "speed-up")
    return Grid("Step by compute capability", header, rows)


def crossover(points: list[Point]) -> float | None:
    """Return the factor from which more than half of the step is exposed, by a line over log2 between points."""
    # The first pair has no point before it.
    for one, two in zip([None, *points], points, strict=False):
        after = two.part
        if after > 0.5:
            # Bound already at x1.
            if one is None:
                return float(two.factor)
            before = one.part
            # Linear between points over log2 of the factor: the axis of the plot.
            part = (0.5 - before) / (after - before)
            return float(one.factor * (two.factor / one.factor) ** part)
    return None


def draw(figure: Any, found: Found) -> None:
    """Draw the exposed part of the step over compute capability: a panel for each workload, a line for each batch."""
    workloads = list(dict.fromkeys(workload for workload, _ in found))
    samples = list(dict.fromkeys(each for _, each in found))
    tints = (figures.BLUE, figures.SKY, figures.GREEN, figures.ORANGE, figures.VERMILION, figures.PURPLE)
    names = {each: f"{each:,} samples" for each in samples}
    colours = {name: tints[at % len(tints)] for at, name in enumerate(names.values())}
    for axes, workload in zip(figures.panels(figure, workloads, share=True), workloads, strict=True):
        series = {names[each]: [100 * point.part for point in found[workload, each]] for each in samples}
        # Where communication begins to bound the step.
        axes.axhline(50, color=figures.GREY, linewidth=0.8, linestyle="--")
        figures.curves(axes, FACTORS, series, colours)
        axes.set(xscale="log", ylim=(0, 100))
        axes.set_xticks(FACTORS, [f"x{factor}" for factor in FACTORS])
        axes.minorticks_off()
        axes.set_xlabel("compute capability")
        figures.written(axes.yaxis, lambda value: f"{value:.0f} %")
    figure.axes[0].set_ylabel("exposed communication, part of the step")
    figures.legend(figure)
