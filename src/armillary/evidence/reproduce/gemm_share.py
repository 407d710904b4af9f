"""How much of the time of a training step are GEMMs? "About 70 %" for Transformer and GNMT.

The number stands on a motivation slide of the ASTRA-sim tutorial; device, batch and software are not stated. The
generator has no encoder-decoder transformer: it is taken for a decoder with as many weights in its layers. In GNMT the
element-wise work of an LSTM cell is in the kernel of the recurrent GEMM, and counts as GEMM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.base.units import format_time
from armillary.engine import simulate
from armillary.evidence.reproduce import readers
from armillary.evidence.reproduce.assumptions import assumed, choice
from armillary.evidence.reproduce.judge import POINTS, Case, at_most, joined, share, stated_share
from armillary.evidence.reproduce.outcome import Claim, Grid, Outcome
from armillary.evidence.reproduce.sources import MOTIVATION
from armillary.platform import load_platform
from armillary.platform.model import Platform
from armillary.report import figures
from armillary.trace import NodeType, Trace
from armillary.trace.gemm import GEMM
from armillary.workload.generate import generate
from armillary.workload.models.read import load_model, read_model
from armillary.workload.models.schema import Model
from armillary.workload.plan.schema import Plan

SAID = 0.7
DEVICES = {
    "v100": ("125 TFLOP/s", "900 GB/s"),
    "a100": ("312 TFLOP/s", "2039 GB/s"),
    # Peaks of Tensor Cores in 16 bits.
    "h100": ("989 TFLOP/s", "3350 GB/s"),
}
"""Peak of GEMMs in 16 bits, and memory bandwidth, of NVIDIA's data sheets (SXM)."""
WIDTHS = {"base": (512, 8), "big": (1024, 16)}
"""Hidden size and heads (arXiv 1706.03762, table 3)."""
# From what small GEMMs reach to what the largest do.
EFFICIENCIES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
PARTS = ("with weights", "of attention", "element-wise", "optimizer")
# Names of parts in the figure.
LABELS = {"with weights": "GEMMs with weights", "of attention": "GEMMs of attention"} | {
    each: each for each in PARTS[2:]
}
COLOURS = dict(zip(LABELS.values(), (figures.BLUE, figures.SKY, figures.ORANGE, figures.GREY), strict=True))
MODEL_COLOURS = (figures.BLUE, figures.VERMILION)


@dataclass(frozen=True)
class Assumptions:
    """What the slide does not say."""

    device: str = choice(
        "v100", tuple(DEVICES), "GPU of the time of these models, the first with Tensor Cores."
    )
    efficiency: float = assumed(
        "60 %", readers.part,
        "Share of the peak that GEMMs reach: 60 to 80 % for large ones, less for small ones.",
        others=("30 %", "45 %", "80 %"),
    )  # fmt: skip
    memory: float = assumed(
        "75 %",
        readers.part,
        "Share of the memory bandwidth that element-wise kernels reach: usual for large ones.",
        others=("50 %", "100 %"),
    )
    overhead: float = assumed(
        "5 us", readers.time, "Overhead of every kernel: its launch.", others=("0 ns", "10 us")
    )
    transformer: str = choice("big", tuple(WIDTHS), "Size of the model in MLPerf.")
    tokens: int = assumed(
        "5120",
        readers.whole,
        "Tokens per step and direction: MLPerf's batch per GPU.",
        others=("1024", "20480"),
    )
    sequence: int = assumed(
        "64", readers.whole, "Tokens per sentence: WMT has 30 on average.", others=("32", "256")
    )
    attention: str = choice("unfused", ("unfused", "flash"), "Softmax and masks were separate kernels.")
    counted: str = choice(
        "all",
        ("all", "weights"),
        "What counts as GEMM: also GEMMs of queries, keys and values, or only GEMMs with weights.",
    )
    optimizer: str = choice("adam", ("adam", "none"), "Both models use it; its kernels are not GEMMs.")


@dataclass(frozen=True)
class Share:
    """The time of a step by what its kernels do (ns).

    Attributes:
        model: Name.
        step: Time of the step.
        parts: By `PARTS`.
        gemm: Of it, in what counts as GEMM.
    """

    model: str
    step: float
    parts: dict[str, float]
    gemm: float

    @property
    def share(self) -> float:
        """GEMMs of the step."""
        return self.gemm / self.step


def models(chosen: Assumptions) -> dict[str, Model]:
    """Return both models.

    Six encoder layers have 12 h² weights, six decoder layers 16 h²: 168 h², those of 14 layers of a decoder.
    """
    hidden, heads = WIDTHS[chosen.transformer]
    transformer = read_model(
        {
            "kind": "decoder", "name": f"Transformer {chosen.transformer}", "layers": 14, "hidden": hidden,
            "vocabulary": 32768, "context": max(chosen.sequence, 512), "learned_positions": max(chosen.sequence, 512),
            "tied": True, "norm": "layer", "activation": "relu", "attention": {"heads": heads, "bias": "all"},
            "mlp": {"size": 4 * hidden, "bias": True},
        }
    )  # fmt: skip
    return {transformer.name: transformer, "GNMT": load_model("gnmt")}


def machine(chosen: Assumptions) -> Platform:
    """Return one NPU."""
    peak, memory = DEVICES[chosen.device]
    return load_platform(
        {
            # One NPU: no communication.
            "network": [{"topology": "Switch", "size": 1, "bandwidth": "1 GB/s", "latency": "0 ns"}],
            "npu": {"peak": peak, "memory": {"bandwidth": memory}},
            "compute": {
                "roofline": True,
                "efficiency": {
                    "compute": f"{100 * chosen.efficiency} %",
                    "memory": f"{100 * chosen.memory} %",
                },
                "kernel_overhead": f"{chosen.overhead} ns",
            },
        }
    )


def measure(chosen: Assumptions) -> list[Share]:
    """Simulate a step of both models.

    Raises:
        InputError: the tokens are less than a sentence.
    """
    if chosen.tokens < chosen.sequence:
        raise InputError(
            f"--tokens {chosen.tokens}: expected at least a sentence, --sequence {chosen.sequence}"
        )
    # The trace depends on none of these: neutral values let the cache serve the sweep.
    work = replace(chosen, efficiency=1.0, memory=1.0, overhead=0.0, device="v100", counted="all")
    return [_share(name, _trace(name, work), chosen) for name in models(chosen)]


@cache
def _trace(name: str, work: Assumptions) -> Trace:
    batch = work.tokens // work.sequence
    plan = {
        "ranks": 1, "batch": batch, "microbatch": batch, "sequence": work.sequence, "optimizer": work.optimizer,
        "clip": False,
    }  # fmt: skip
    if name != "GNMT":
        plan["attention"] = work.attention
    return generate(models(work)[name], Plan.model_validate(plan))


def _share(name: str, trace: Trace, chosen: Assumptions) -> Share:
    # fold=False: node times of the rank itself are read below.
    timeline = simulate(trace, machine(chosen), fold=False)
    graph = trace.graphs[0]
    # Nodes of the first rank come first in the arrays.
    count = graph.n_nodes
    took = (timeline.node_end[:count] - timeline.node_start[:count]).astype(float)
    # Other nodes take no compute time.
    took[graph.types != NodeType.COMP_NODE] = 0.0
    words = np.array(graph.names())
    attention = np.array(
        # Attention by name: the generator calls its GEMMs so.
        [".scores" in f".{w}" or ".values" in w or "attend" in w or w.startswith("attention") for w in words]
    )
    # Reshapes and masks have no operations to speak of.
    attention &= graph.ints("num_ops", 0) > 1
    # All kernels with shapes, less those of attention.
    gemm = graph.has(GEMM) & ~attention
    optimizer = np.array(["optimizer" in word for word in words])
    # Four parts that together are the step.
    masks = (gemm, attention, ~(gemm | attention | optimizer), optimizer)
    parts = {part: float(took[mask].sum()) for part, mask in zip(PARTS, masks, strict=True)}
    # What is counted is an assumption of its own.
    gemm = parts[PARTS[0]] + (parts[PARTS[1]] if chosen.counted == "all" else 0.0)
    return Share(name, float(timeline.total_ticks), parts, gemm)


def run(chosen: Assumptions) -> Outcome:
    """Simulate, and judge the number."""
    found = measure(chosen)
    header = ("model", "step", *PARTS, "GEMM")
    rows = tuple(
        (
            each.model, format_time(each.step),
            *(share(time / each.step) for time in each.parts.values()),
            share(each.share),
        )
        for each in found
    )  # fmt: skip
    swept = [measure(replace(chosen, efficiency=value)) for value in EFFICIENCIES]
    by = tuple(
        (share(value, 0), *(share(each.share) for each in shares))
        for value, shares in zip(EFFICIENCIES, swept, strict=True)
    )
    # The share for each efficiency, per model.
    curves = [[shares[at].share for shares in swept] for at in range(len(found))]
    # The second claim: how much the share moves with the efficiency.
    spread = [max(curve) - min(curve) for curve in curves]
    claims = (
        Claim(
            "GEMM is about 70 % of the runtime of Transformer and GNMT",
            MOTIVATION,
            f"for {share(SAID, 0)} GEMMs must reach "
            + joined([f"{_efficiency_for(curve)} ({each.model})" for each, curve in zip(found, curves, strict=True)])
            + f" of the peak; here it is {share(chosen.efficiency, 0)}",
            tuple(Case(each.model, each.share, stated_share(SAID, digits=0)) for each in found),
        ),
        Claim(
            "The share is a property of the models", f"{MOTIVATION}, implied",
            "by how much the share changes between GEMMs at 20 % and at 90 % of the peak: the efficiency of kernels "
            "decides it as much as the model does",
            tuple(
                Case(each.model, swing, at_most(POINTS, _points)) for each, swing in zip(found, spread, strict=True)
            ),
        ),
    )  # fmt: skip
    title = f"One {chosen.device.upper()}, {chosen.tokens} tokens a step, {chosen.attention} attention"
    grids = (
        Grid("Where the time of a training step goes: GEMMs with weights, of attention, …", header, rows),
        Grid(
            "GEMM share by what GEMMs reach of the peak",
            ("efficiency", *(each.model for each in found)),
            by,
        ),
    )
    return Outcome(title, grids, claims, lambda figure: draw(figure, found, swept))


def _points(part: float) -> str:
    return f"{100 * part:.0f} points"


def _efficiency_for(curve: list[float]) -> str:
    """Return the efficiency at which the share is as stated; it falls as GEMMs get faster."""
    if curve[0] <= SAID:
        return f"less than {share(EFFICIENCIES[0], 0)}"
    if curve[-1] >= SAID:
        return f"more than {share(EFFICIENCIES[-1], 0)}"
    # np.interp wants ascending x: the curve falls, so both are negated.
    return share(float(np.interp(-SAID, [-each for each in curve], EFFICIENCIES)), 0)


def draw(figure: Any, found: list[Share], swept: list[list[Share]]) -> None:
    """Draw the parts of a step, and the share over what GEMMs reach."""
    left, right = figures.panels(figure, ("share of a training step", "GEMM share of the step"), share=True)
    names = [each.model for each in found]
    parts = {LABELS[part]: [100 * each.parts[part] / each.step for each in found] for part in PARTS}
    figures.stacked(left, range(len(found)), parts, COLOURS, width=0.6)
    left.set_xticks(range(len(found)), names)
    shares = {name: [100 * point[at].share for point in swept] for at, name in enumerate(names)}
    reached = [100 * value for value in EFFICIENCIES]
    figures.curves(right, reached, shares, dict(zip(names, MODEL_COLOURS, strict=True)))
    right.set_xlabel("of the peak, what GEMMs reach")
    figures.written(right.xaxis, lambda value: f"{value:.0f} %")
    for axes in (left, right):
        axes.axhline(100 * SAID, color="black", linewidth=0.8, linestyle="--", label="stated")
        axes.set_ylim(0, 100)
        figures.written(axes.yaxis, lambda value: f"{value:.0f} %")
    figures.legend(figure)
