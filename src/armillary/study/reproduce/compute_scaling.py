"""Faster and faster NPUs on a torus of 2 x 4 x 4: when does communication bound the step?

After the plot of the ASTRA-sim tutorial at Hot Interconnects, of which we have the machine's shape and the question,
but no values: workload, links and NPU are assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from armillary.engine import simulate
from armillary.platform import load_platform
from armillary.platform.model import KernelModel, Platform
from armillary.report.time_breakdown import breakdown
from armillary.study.reproduce import figures, readers
from armillary.study.reproduce.assumptions import assumed, choice
from armillary.study.reproduce.judge import share, verdict
from armillary.study.reproduce.outcome import Claim, Grid, Outcome
from armillary.study.reproduce.sources import SCALING
from armillary.units import format_time
from armillary.workload.generate import generate
from armillary.workload.models.read import load_model
from armillary.workload.plan.schema import Plan

FACTORS = (1, 2, 4, 8, 16, 32)
SHAPE = (2, 4, 4)
WORKLOADS = ("resnet-50", "gnmt", "dlrm-libra", "vit-l-16")


@dataclass(frozen=True)
class Assumptions:
    """What the plot does not say."""

    workload: str = choice(
        "resnet-50",
        WORKLOADS,
        "The data-parallel example of ASTRA-sim's own files; its gradients are all-reduced.",
    )
    samples: int = assumed("32", readers.whole, "Per NPU and step: usual for ResNet-50.", others=("8", "128"))
    peak: float = assumed(
        "123 TFLOP/s", readers.flops,
        "Of an NPU at x1: an array of 256 x 256 at 940 MHz, as in a TPUv3-like NPU.",
        others=("60 TFLOP/s", "312 TFLOP/s"),
    )  # fmt: skip
    memory: float = assumed(
        "900 GB/s",
        readers.bandwidth,
        "Local memory of an NPU at x1: HBM2, as in TPUv3 and V100.",
        others=("2 TB/s",),
    )
    model: str = choice(
        "systolic",
        ("systolic", "roofline"),
        "ASTRA-sim 1.0 took compute times from SCALE-sim; roofline is what 2.0 has.",
    )
    dataflow: str = choice(
        "weight", ("output", "weight", "input"), "Of the array: weights stay, as in a TPU."
    )
    scales: str = choice(
        "all",
        ("all", "peak"),
        "What gets faster: all of the NPU, which divides every compute time, or its peak alone.",
    )
    efficiency: float = assumed(
        "80 %",
        readers.part,
        "Of the memory bandwidth, what kernels reach: usual for large ones.",
        others=("100 %",),
    )
    inner: float = assumed(
        "200 GB/s", readers.bandwidth, "Per link of the ring of 2: on a package.", others=("100 GB/s",)
    )
    outer: float = assumed(
        "25 GB/s",
        readers.bandwidth,
        "Per link of the rings of 4, between packages: NVLink 2.",
        others=("50 GB/s", "100 GB/s"),
    )
    latency: float = assumed(
        "500 ns", readers.time, "Per hop, as in ASTRA-sim's examples.", others=("100 ns", "2 us")
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


def machine(chosen: Assumptions, factor: int) -> Platform:
    """Return the torus with NPUs that are `factor` times as fast."""
    size, faster = SHAPE, factor if chosen.scales == "all" else 1
    links = [chosen.inner, chosen.outer, chosen.outer]
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
    clock = chosen.peak * factor / (2 * array**2)
    options = {"rows": array, "columns": array, "dataflow": chosen.dataflow, "clock": clock}
    return replace(platform, kernel_model=KernelModel("systolic", options))


def measure(chosen: Assumptions) -> list[Point]:
    """Simulate a step for every factor."""
    npus = SHAPE[0] * SHAPE[1] * SHAPE[2]
    plan = {
        "ranks": npus,
        "batch": npus * chosen.samples,
        "microbatch": chosen.samples,
        "optimizer": "momentum",
    }
    trace = generate(load_model(chosen.workload), Plan.model_validate(plan))
    points = []
    for factor in FACTORS:
        timeline = simulate(trace, machine(chosen, factor))
        parts = breakdown(timeline, 0).parts()
        points.append(
            Point(factor, timeline.total_ticks, parts["compute"], timeline.total_ticks - parts["compute"])
        )
    return points


def run(chosen: Assumptions) -> Outcome:
    """Simulate, and judge what the plot is there to say."""
    points = measure(chosen)
    shares = [point.exposed / point.step for point in points]
    rows = tuple(
        (
            f"x{point.factor}", format_time(point.step), format_time(point.compute), format_time(point.exposed),
            share(waits), f"{points[0].step / point.step:.2f}",
        )
        for point, waits in zip(points, shares, strict=True)
    )  # fmt: skip
    header = ("compute", "step", "compute time", "exposed communication", "exposed", "speed-up")
    over = crossover(points)
    rising = all(one <= two + 1e-3 for one, two in pairwise(shares))
    bound = verdict(rising and over is not None, rising)
    gain = points[0].step / points[-1].step
    flat = verdict(gain < FACTORS[-1] / 2, gain < 0.9 * FACTORS[-1])
    where = "never up to x32" if over is None else "from x1 on" if over <= 1 else f"from x{over:.3g} on"
    claims = (
        Claim(
            "As compute gets faster, communication bounds the step", SCALING,
            f"exposed communication grows from {share(shares[0])} to {share(shares[-1])} of the step; "
            f"it is more than half {where}", bound,
        ),
        Claim(
            "Faster compute alone gains less and less", SCALING,
            f"x32 makes the step {gain:.2f} times as fast; from x16 to x32 {points[-2].step / points[-1].step:.2f} "
            "times",
            flat,
        ),
        Claim(
            "The values of the plot", SCALING,
            "they are not in its text; the table is ours under these assumptions", "open",
        ),
    )  # fmt: skip
    title = f"{chosen.workload}, {chosen.samples} samples per NPU, torus of 2 x 4 x 4, {chosen.model} compute model"
    return Outcome(
        title,
        (Grid("Step by compute capability", header, rows),),
        claims,
        lambda figure: draw(figure, points),
    )


def crossover(points: list[Point]) -> float | None:
    """Return the factor from which more than half of the step is exposed, by a line over log2 between points."""
    for one, two in zip([None, *points], points, strict=False):
        after = two.exposed / two.step
        if after > 0.5:
            if one is None:
                return float(two.factor)
            before = one.exposed / one.step
            part = (0.5 - before) / (after - before)
            return float(one.factor * (two.factor / one.factor) ** part)
    return None


def draw(figure: Any, points: list[Point]) -> None:
    """Draw compute and exposed communication stacked: of the step at x1, and of the step itself."""
    panels = figures.panels(figure, ("time of a step, x1 = 100 %", "share of the step"))
    places = range(len(points))
    for axes, wholes in zip(
        panels, ([points[0].step] * len(points), [point.step for point in points]), strict=True
    ):
        pairs = list(zip(points, wholes, strict=True))
        parts = {
            "compute": [100 * point.compute / whole for point, whole in pairs],
            "exposed communication": [100 * point.exposed / whole for point, whole in pairs],
        }
        tops = figures.stacked(axes, places, parts, figures.STEP)
        axes.set_xticks(places, [f"x{point.factor}" for point in points])
        axes.set_xlabel("compute capability of an NPU")
        figures.written(axes.yaxis, lambda value: f"{value:.0f} %")
        if axes is panels[0]:
            for at, top, point in zip(places, tops, points, strict=True):
                axes.text(at, top + 1, format_time(point.step), ha="center", fontsize=8)
    figures.legend(figure)
