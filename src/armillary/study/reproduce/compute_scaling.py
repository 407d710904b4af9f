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
from armillary.study.reproduce.assumptions import assumed, whole
from armillary.study.reproduce.outcome import Claim, Grid, Outcome, Verdict
from armillary.units import format_time, parse_bandwidth, parse_flops, parse_percent, parse_time
from armillary.workload.generate import generate
from armillary.workload.models.read import load_model
from armillary.workload.plan.schema import Plan

SOURCE = "ASTRA-sim tutorial, Hot Interconnects: compute scaling"
FACTORS = (1, 2, 4, 8, 16, 32)
SHAPE = (2, 4, 4)
WORKLOADS = ("resnet-50", "gnmt", "dlrm-libra", "vit-l-16")


@dataclass(frozen=True)
class Assumptions:
    """What the plot does not say."""

    workload: str = assumed(
        "resnet-50", str, "the data-parallel example of ASTRA-sim's own files; its gradients are all-reduced",
        others=("gnmt", "dlrm-libra", "vit-l-16"), choices=WORKLOADS,
    )  # fmt: skip
    samples: int = assumed("32", whole, "per NPU and step: usual for ResNet-50", others=("8", "128"))
    peak: float = assumed(
        "123 TFLOP/s", parse_flops, "of an NPU at x1: an array of 256 x 256 at 940 MHz, as in a TPUv3-like NPU",
        others=("60 TFLOP/s", "312 TFLOP/s"),
    )  # fmt: skip
    memory: float = assumed(
        "900 GB/s",
        parse_bandwidth,
        "local memory of an NPU at x1: HBM2, as in TPUv3 and V100",
        others=("2 TB/s",),
    )
    model: str = assumed(
        "systolic", str, "ASTRA-sim 1.0 took compute times from SCALE-sim; roofline is what 2.0 has",
        others=("roofline",), choices=("systolic", "roofline"),
    )  # fmt: skip
    dataflow: str = assumed(
        "weight",
        str,
        "of the array: weights stay, as in a TPU",
        others=("output",),
        choices=("output", "weight", "input"),
    )
    scales: str = assumed(
        "all", str, "what gets faster: all of the NPU, which divides every compute time, or its peak alone",
        others=("peak",), choices=("all", "peak"),
    )  # fmt: skip
    efficiency: float = assumed(
        "80 %", parse_percent, "share of the memory bandwidth that kernels reach", others=("100 %",)
    )
    inner: float = assumed(
        "200 GB/s", parse_bandwidth, "per link of the ring of 2, which is on a package", others=("100 GB/s",)
    )
    outer: float = assumed(
        "25 GB/s",
        parse_bandwidth,
        "per link of the rings of 4, between packages: NVLink 2",
        others=("50 GB/s", "100 GB/s"),
    )
    latency: float = assumed(
        "500 ns", parse_time, "per hop, as in ASTRA-sim's examples", others=("100 ns", "2 us")
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
            f"{100 * share:.1f} %", f"{points[0].step / point.step:.2f}",
        )
        for point, share in zip(points, shares, strict=True)
    )  # fmt: skip
    header = ("compute", "step", "compute time", "exposed communication", "exposed", "speed-up")
    over = crossover(points)
    rising = all(one <= two + 1e-3 for one, two in pairwise(shares))
    bound: Verdict = "fails" if not rising else "holds" if over is not None else "partly"
    gain = points[0].step / points[-1].step
    flat: Verdict = "holds" if gain < FACTORS[-1] / 2 else "partly" if gain < 0.9 * FACTORS[-1] else "fails"
    where = "never up to x32" if over is None else "from x1 on" if over <= 1 else f"from x{over:.3g} on"
    claims = (
        Claim(
            "As compute gets faster, communication bounds the step.", SOURCE,
            f"exposed communication grows from {100 * shares[0]:.1f} % to {100 * shares[-1]:.1f} % of the step; "
            f"it is more than half {where}", bound,
        ),
        Claim(
            "Faster compute alone gains less and less.", SOURCE,
            f"x32 makes the step {gain:.2f} times as fast; from x16 to x32 {points[-2].step / points[-1].step:.2f} "
            "times",
            flat,
        ),
        Claim(
            "The values of the plot.", SOURCE,
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
        share = two.exposed / two.step
        if share > 0.5:
            if one is None:
                return float(two.factor)
            before = one.exposed / one.step
            part = (0.5 - before) / (share - before)
            return float(one.factor * (two.factor / one.factor) ** part)
    return None


def draw(figure: Any, points: list[Point]) -> None:
    """Draw compute and exposed communication stacked: of the step at x1, and of the step itself."""
    names = [f"x{point.factor}" for point in points]
    for axes, title, wholes in zip(
        figure.subplots(1, 2),
        ("time of a step, relative to x1 (%)", "share of the step (%)"),
        ([points[0].step] * len(points), [point.step for point in points]),
        strict=True,
    ):
        compute = [100 * point.compute / all_ for point, all_ in zip(points, wholes, strict=True)]
        exposed = [100 * point.exposed / all_ for point, all_ in zip(points, wholes, strict=True)]
        axes.bar(names, compute, color="#0072B2", label="compute", width=0.65)
        axes.bar(names, exposed, bottom=compute, color="#D55E00", label="exposed communication", width=0.65)
        axes.set_xlabel("compute capability of an NPU")
        axes.set_ylabel(title)
        axes.set_ylim(0, 100)
        axes.spines[["top", "right"]].set_visible(False)
    for at, point in enumerate(points):
        axes.text(at, 101, format_time(point.step), ha="center", fontsize=8)
    figure.axes[0].legend(frameon=False)
