"""The workloads of case studies 1 and 2: an all-reduce, and training steps of three models on 512 NPUs.

The paper's layer tables are not public. The batches are worked out from the text workloads of the same group
(github.com/astra-sim/libra, inputs/workload): an all-reduce of 805,306,368 bytes of activations of 2 bytes is
16 sequences of 2,048 tokens of GPT-3, and 8 of a hidden size of 24,576; gradients there have 4 bytes, in DLRM 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from armillary.engine import simulate
from armillary.evidence.reproduce import readers
from armillary.evidence.reproduce.assumptions import assumed, choice
from armillary.evidence.reproduce.case_machines import NPUS, MachineAssumptions
from armillary.platform.model import Platform, ProfileName
from armillary.report.time_breakdown import breakdown
from armillary.trace import GraphBuilder, Trace
from armillary.workload.generate import generate
from armillary.workload.models import load_model
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Data, Numbers, Parallel, Plan

ALL_REDUCE = "All-Reduce"


@dataclass(frozen=True)
class WorkloadAssumptions(MachineAssumptions):
    """What the slides do not say about machines and workloads."""

    size: int = assumed(
        "1 GB", readers.size, "Size of the all-reduce, as in the paper.", others=("1 MB", "100 MB")
    )
    dlrm_batch: int = assumed(
        "512",
        readers.whole,
        "Samples per NPU: gives the all-to-all of LIBRA's DLRM.",
        others=("64", "4096"),
    )
    gpt_3_tp: int = assumed(
        "16",
        readers.whole,
        "Tensor parallelism of GPT-3, as in LIBRA; the rest is data parallel.",
        others=("8", "32"),
    )
    gpt_3_batch: int = assumed(
        "16",
        readers.whole,
        "Sequences per replica of GPT-3: gives the all-reduces of LIBRA's.",
        others=("1",),
    )
    transformer_tp: int = assumed(
        "128",
        readers.whole,
        "Tensor parallelism of Transformer-1T, as in LIBRA's MSFT-1T. Its 160 heads become 128 wider ones with the "
        "same amount of work.",
        others=("32", "64"),
    )
    transformer_batch: int = assumed(
        "8", readers.whole, "Sequences per replica: gives the all-reduces of MSFT-1T.", others=("1",)
    )
    gradients: str = choice(
        "fp32",
        ("fp32", "bf16"),
        "Precision of gradient reductions of the Transformers: 4 bytes in LIBRA's files (DLRM: always 2, as there).",
    )
    overlap: bool = assumed(
        "yes",
        readers.yes_or_no,
        "Whether gradient reductions overlap the backward pass, as in ASTRA-sim's training loop.",
        others=("no",),
        choices=("yes", "no"),
    )


class Time(NamedTuple):
    """Of the slowest rank, in ns: `exposed` is without computation, `hidden` communication is part of `compute`."""

    total: int
    compute: int
    exposed: int
    hidden: int


def workloads(chosen: WorkloadAssumptions, ranks: int = NPUS) -> dict[str, Trace]:
    """Return the traces by name.

    Raises:
        InputError: a batch or a degree of parallelism is impossible.
    """
    # One node, replicated: all ranks do the same.
    builder = GraphBuilder()
    builder.all_reduce("all-reduce", size=chosen.size)
    return {
        ALL_REDUCE: Trace.replicate(builder.graph(), ranks),
        "DLRM": _step("dlrm-libra", ranks, 1, chosen.dlrm_batch, "bf16", chosen),
        "GPT-3": _step("gpt-3-175b", ranks, chosen.gpt_3_tp, chosen.gpt_3_batch, chosen.gradients, chosen),
        "Transformer-1T": _step(
            "transformer-1t", ranks, chosen.transformer_tp, chosen.transformer_batch, chosen.gradients, chosen
        ),
    }


def measure(trace: Trace, platform: Platform, profile: ProfileName) -> Time:
    """Simulate, and return where the time of the slowest rank goes."""
    timeline = simulate(trace, platform, profile=profile)
    # Of the slowest rank, which decides the step.
    parts = breakdown(timeline, int(np.argmax(timeline.finish)))
    tick = float(timeline.info.get("tick_ns", 1))
    # All that is not computation: communication, and waiting for it.
    exposed = parts.finish - parts.compute
    return Time(
        *(round(each * tick) for each in (parts.finish, parts.compute, exposed, parts.communication_hidden))
    )


def _step(name: str, ranks: int, tp: int, batch: int, gradients: str, chosen: WorkloadAssumptions) -> Trace:
    model = load_model(name)
    # As many heads as tp divides, each wider: as much work.
    if isinstance(model, Decoder) and model.attention.heads % tp and tp < model.attention.heads:
        heads = model.attention.heads // tp * tp
        model = model.model_copy(update={"attention": model.attention.model_copy(update={"heads": heads})})
    plan = Plan(
        ranks=ranks,
        # `batch` is that of a replica.
        batch=batch * max(ranks // tp, 1),
        microbatch=batch,
        # The paper's models had no sequence parallelism.
        parallel=Parallel(tp=tp, sequence=False),
        data=Data(overlap=chosen.overlap),
        numbers=Numbers(gradients="bf16" if gradients == "bf16" else "fp32"),
    )
    return generate(model, plan)
