"""Tables 1 and 2 of arXiv 2104.04473 (Megatron-LM, 2021): GPT on Selene, 8 A100-80 and 8 HDR adapters a node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from armillary.evidence.validate.training.case import Case, gpt, megatron_flops
from armillary.evidence.validate.training.vtrain import MEGATRON, SERIAL

SOURCE = "https://arxiv.org/abs/2104.04473"
VOCABULARY, SEQUENCE = 51200, 2048


@dataclass(frozen=True)
class Published:
    """A row: parameters in billions, the model, the plan, TFLOP/s of a GPU by equation 3."""

    parameters: float
    heads: int
    hidden: int
    layers: int
    tp: int
    pp: int
    gpus: int
    batch: int
    teraflops: float


# TFLOP/s by equation 3, which counts the recomputed forward pass.
TABLE_1 = (
    Published(1.7, 24, 2304, 24, 1, 1, 32, 512, 137),
    Published(3.6, 32, 3072, 30, 2, 1, 64, 512, 138),
    Published(7.5, 32, 4096, 36, 4, 1, 128, 512, 142),
    Published(18.4, 48, 6144, 40, 8, 1, 256, 1024, 135),
    Published(39.1, 64, 8192, 48, 8, 2, 512, 1536, 138),
    Published(76.1, 80, 10240, 60, 8, 4, 1024, 1792, 140),
    Published(145.6, 96, 12288, 80, 8, 8, 1536, 2304, 148),
    Published(310.1, 128, 16384, 96, 8, 16, 1920, 2160, 155),
    Published(529.6, 128, 20480, 105, 8, 35, 2520, 2520, 163),
    Published(1008.0, 160, 25600, 128, 8, 64, 3072, 3072, 163),
)
GPT_3, MT_NLG = (96, 12288, 96), (128, 20480, 105)
# Table 2 compares both at the same sizes.
ZERO_3 = (
    (174.6, GPT_3, 384, 1536, 4, 144.0), (174.6, GPT_3, 768, 1536, 2, 88.0), (174.6, GPT_3, 1536, 1536, 1, 44.0),
    (529.6, MT_NLG, 640, 2560, 4, 138.0), (529.6, MT_NLG, 1120, 2240, 2, 98.0), (529.6, MT_NLG, 2240, 2240, 1, 48.0),
)  # fmt: skip
"""Of table 2: parameters, model, GPUs, batch, microbatch, TFLOP/s of a GPU."""
PTD_P = (
    (174.6, GPT_3, 12, 384, 1536, 153.0), (174.6, GPT_3, 12, 768, 1536, 149.0), (174.6, GPT_3, 12, 1536, 1536, 141.0),
    (529.6, MT_NLG, 35, 560, 2240, 171.0), (529.6, MT_NLG, 35, 1120, 2240, 167.0),
    (529.6, MT_NLG, 35, 2240, 2240, 159.0),
)  # fmt: skip
"""Of table 2: parameters, model, pipeline stages, GPUs, batch, TFLOP/s of a GPU; microbatch 1, tp 8."""


def _case(row: Published, micro: int, virtual: int, changes: dict[str, Any] | None = None) -> Case:
    plan: dict[str, Any] = {
        **MEGATRON,
        # Unfused element-wise kernels were still the rule then.
        "numbers": {**MEGATRON["numbers"], "fused": False},  # fused from Megatron-LM 3.0 (2022) on
        "batch": row.batch,
        "microbatch": micro,
        "sequence": SEQUENCE,
        "parallel": {"tp": row.tp, "pp": row.pp, "sequence": False, **SERIAL},
        **(changes or {}),
    }
    if virtual > 1:
        plan["pipeline"] = {**MEGATRON["pipeline"], "schedule": "interleaved", "virtual": virtual}
    flops = megatron_flops(row.batch, SEQUENCE, row.layers, row.hidden, VOCABULARY)
    return Case(
        label=f"{row.parameters}B on {row.gpus}",
        group="Megatron-LM",
        measured=row.teraflops,
        machine="dgx-a100-80",
        npus=row.gpus,
        model=gpt(row.layers, row.hidden, row.heads, SEQUENCE, VOCABULARY),
        plan=plan,
        stack="megatron-lm-2022",
        amount=flops / row.gpus / 1e12,
    )


def table_1() -> list[list[Case]]:
    """Return, for each row, the plans among which the authors will have taken the fastest.

    The paper does not say microbatch and virtual stages of a row. It finds microbatches of 1 to 8 best and that a
    larger one needs the memory: candidates are 1, 2, 4 and 8 up to 76B, 1 and 2 above, and up to 3 virtual stages.
    """
    choices = []
    for row in TABLE_1:
        replicas = row.gpus // (row.tp * row.pp)
        # A microbatch must divide what a replica has.
        micros = [
            b for b in ((1, 2, 4, 8) if row.parameters < 100 else (1, 2)) if row.batch % (replicas * b) == 0
        ]
        virtuals = [
            # Virtual stages must divide the layers.
            v for v in (1, 2, 3)
            if v == 1 or (row.pp > 1 and row.layers % (row.pp * v) == 0)
        ]  # fmt: skip
        choices.append(
            [
                _case(row, b, v)
                for b in micros
                for v in virtuals
                # Interleaved schedules need a multiple of the stages in microbatches.
                if v == 1 or (row.batch // (replicas * b)) % row.pp == 0
            ]
        )
    return choices


def table_2() -> Iterator[Case]:
    """Yield the rows of table 2: ZeRO-3 without model parallelism, and PTD-P."""
    for size, (heads, hidden, layers), gpus, batch, micro, teraflops in ZERO_3:
        row = Published(size, heads, hidden, layers, 1, 1, gpus, batch, teraflops)
        # ZeRO-3 shards everything over data parallelism; there is no model parallelism.
        found = _case(row, micro, 1, {"data": {"sharding": "fsdp"}})
        yield replace(found, label=f"ZeRO-3 {found.label}", group="ZeRO-3")
    for size, (heads, hidden, layers), pp, gpus, batch, teraflops in PTD_P:
        row = Published(size, heads, hidden, layers, 8, pp, gpus, batch, teraflops)
        # As many virtual stages as the layers allow, up to 3.
        virtual = 2 if layers % (2 * pp) == 0 else 3 if layers % (3 * pp) == 0 else 1
        found = _case(row, 1, virtual)
        yield replace(found, label=f"PTD-P {found.label}", group="PTD-P")
