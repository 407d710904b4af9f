"""Tables 4 and 5 of arXiv 2205.05198 (Korthikanti et al., 2022): full and selective recomputation on A100-80."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from armillary.evidence.validate.training.case import Case, gpt
from armillary.evidence.validate.training.vtrain import MEGATRON

SOURCE = "https://arxiv.org/abs/2205.05198"
VOCABULARY, SEQUENCE = 51200, 2048
SIZES = {"22B": (48, 6144, 64), "175B": (96, 12288, 96), "530B": (105, 20480, 128), "1T": (128, 25600, 160)}
"""Layers, hidden size, heads: table 3."""
TABLE_5 = (
    ("22B", 8, 1, 4, 4, 1, 1.42, 1.10),
    ("175B", 64, 8, 64, 1, 3, 18.13, 13.75),
    ("530B", 280, 35, 280, 1, 3, 49.05, 37.83),
    ("1T", 512, 64, 512, 1, 1, 94.42, 71.49),
)
"""Model, GPUs, pipeline stages, batch, microbatch, virtual stages; s with full recomputation, and selective."""
TABLE_4 = (
    ("no recomputation", "none", False, 7.7, 11.9), ("sequence parallel", "none", True, 7.2, 11.8),
    ("full recomputation", "full", False, 7.7, 19.5), ("selective recomputation", "selective", False, 7.7, 13.2),
    ("selective and sequence parallel", "selective", True, 7.2, 13.1),
)  # fmt: skip
"""A layer of 22B, tp 8, microbatch 4: recomputation, sequence parallelism, ms forward and backward."""


def _case(
    label: str,
    size: str,
    gpus: int,
    plan: dict[str, Any],
    recompute: str,
    sequence: bool,
    milliseconds: float,
) -> Case:
    layers, hidden, heads = SIZES[size]
    # sequence parallelism as the row says.
    parallel = {"tp": 8, "sequence": sequence, **plan.pop("parallel", {})}
    return Case(
        label=label,
        group="full" if recompute == "full" else "selective" if recompute == "selective" else "none",
        measured=milliseconds,
        machine="dgx-a100-80",
        npus=gpus,
        # `layers` of the plan replaces those of the size, for single layers.
        model=gpt(plan.pop("layers", layers), hidden, heads, SEQUENCE, VOCABULARY),
        plan={**MEGATRON, "sequence": SEQUENCE, "recompute": recompute, "parallel": parallel, **plan},
        stack="megatron-lm-2022",
    )


def table_5() -> Iterator[Case]:
    """Yield two cases for each model: full recomputation without sequence parallelism, and selective with it."""
    for size, gpus, pp, batch, micro, virtual, full, present in TABLE_5:
        for word, recompute, sequence, seconds in (
            ("full recomputation", "full", False, full),
            # The two columns of the table.
            ("selective, sequence parallel", "selective", True, present),
        ):
            plan: dict[str, Any] = {"batch": batch, "microbatch": micro, "parallel": {"pp": pp}}
            if virtual > 1:
                plan["pipeline"] = {**MEGATRON["pipeline"], "schedule": "interleaved", "virtual": virtual}
            yield _case(f"{size}, {word}", size, gpus, plan, recompute, sequence, seconds * 1e3)


def table_4() -> Iterator[tuple[Case, Case]]:
    """Yield for each row a model of two layers and one of one layer: what the second takes more is a layer."""
    for word, recompute, sequence, forward, backward in TABLE_4:
        # Both models differ in one layer only.
        two, one = (
            _case(
                # The paper measured a forward and a backward pass: no optimizer.
                word, "22B", 8, {"batch": 4, "microbatch": 4, "optimizer": "none", "layers": layers},
                recompute, sequence, forward + backward,
            )
            for layers in (2, 1)
        )  # fmt: skip
        yield two, one
