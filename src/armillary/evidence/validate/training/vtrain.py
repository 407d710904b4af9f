"""Rows of vTrain (arXiv 2312.12391, VIA-Research/vTrain): GPT on A100-80 nodes with Megatron-LM.

The software, as far as paper and rows tell: fp16, 1F1B, no sequence parallelism (of 2022), gradients reduced after the
last backward pass, unfused attention with dropout.

Many nodes recompute all (18.4B on 256 GPUs takes 9.6 s where Megatron-LM's paper, which recomputes, has 9.4 s), with a
vocabulary of 50257 padded as Megatron-LM does. One node does neither, as vTrain's own model
(src/model/gpt_modeling.py: 50257 // tp rows):

- With recomputation, an additional sample would run GEMMs of width 1,024 and 2,048 at 342 and 312 TFLOP/s, of a peak of
  312.
- Without tp the head takes three times as long as with tp 2: its rows do not begin at whole loads.

Rows of one node are sums. To 0.3 %, a layer of a microbatch takes the same in all rows of one width, tp and microbatch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.evidence.validate.training.case import Case, gpt, padded
from armillary.evidence.validate.training.machines import MACHINES
from armillary.evidence.validate.training.rows import count, number, read_rows

COLUMNS = (
    "# GPUs", "global batch", "micro batch", "hidden size", "attention heads", "# layers", "sequence length",
    "tensor parallelism", "data parallelism", "pipeline parallelism", "iteration time (ms)",
)  # fmt: skip
MULTI = ("Parameters (billion)",)
MACHINE = "vtrain-a100"
VOCABULARY = 50257
MEGATRON: dict[str, Any] = {
    # What all of them have: rows say the rest.
    "recompute": "full",
    "pipeline": {"scatter": True},
    "attention": "unfused",
    "dropout": True,
    "data": {"sharding": "ddp", "overlap": False},
    "numbers": {"gradients": "bf16"},
}
"""What all runs of Megatron-LM of 2021 and 2022 have in common; fp16 costs what bf16 does."""

SERIAL = {"backward": "serial"}
"""The same of `parallel`, before the software of 2022 that overlaps gradients of weights with collectives of tp."""


def kernels(microbatch: int, heads: int, tp: int) -> str:
    """Return which kernels of attention Megatron-LM had.

    Its fused softmax takes a multiple of 4 pairs of sample and head (megatron/model/fused_softmax.py).
    """
    # Multiples of 4 pairs of sample and head, see there.
    return "unfused" if microbatch * heads // tp % 4 == 0 else "eager"


NOTES = (
    "Steps that kernels do not fill are bound by the CPU; what it takes for a kernel differs between tp 2, "
    "4 and 8 by up to 30 %, which shapes do not explain.",
)


def cases(path: Path) -> Iterator[Case]:
    """Yield the rows of a file.

    Raises:
        InputError: the file is malformed.
    """
    for line, row in read_rows(path, COLUMNS):
        # All but the measured time are whole numbers.
        values = [count(path, line, row, name) for name in COLUMNS[:-1]]
        npus, batch, micro, hidden, heads, layers, sequence, tp, dp, pp = values
        # A row that does not multiply out is malformed.
        if tp * dp * pp != npus:
            raise InputError(
                f"{path}:{line}: tp {tp} x dp {dp} x pp {pp} = {tp * dp * pp}, expected # GPUs {npus}"
            )
        if hidden % heads:
            raise InputError(
                f"{path}:{line}: hidden size {hidden}: expected a multiple of {heads} attention heads"
            )
        plan = {
            **MEGATRON,
            "batch": batch,
            "microbatch": micro,
            "sequence": sequence,
            "parallel": {"tp": tp, "pp": pp, "dp": dp, "sequence": False, **SERIAL},
            "attention": kernels(micro, heads, tp),
        }
        alone = npus <= MACHINES[MACHINE].domain
        if alone:
            plan["recompute"] = "none"
        size = f"h{hidden} l{layers}"
        yield Case(
            label=f"{size} tp{tp} dp{dp} pp{pp} batch {batch} micro {micro}",
            group=f"h{hidden}",
            measured=number(path, line, row, COLUMNS[-1]),
            machine=MACHINE,
            npus=npus,
            model=gpt(
                layers, hidden, heads, sequence, VOCABULARY // tp * tp if alone else padded(VOCABULARY, tp)
            ),
            plan=plan,
            stack="megatron-lm-2022",
            facts={"size": size, "GPUs": str(npus), "tp": str(tp)},
        )
