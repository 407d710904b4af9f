"""Rows of MPT training with FSDP (mosaicml/llm-foundry, scripts/train/benchmarking).

Sizes of layers are those of its yamls; number of parameters agrees to the digit (tests). Flash attention, learned
positions as long as the sequence, vocabulary 50368, blocks recomputed where the row says so, gradients reduced in fp32
with mixed precision DEFAULT and in bf16 with PURE.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from armillary.base.errors import nearest
from armillary.evidence.validate.training.case import Case, gpt
from armillary.evidence.validate.training.rows import count, number, read_rows

COLUMNS = (
    "Model", "SeqLen (T)", "# GPUs", "GPU", "MicroBatchSize", "GradAccum", "GlobalBatchSize", "Throughput (T/s/GPU)",
    "Precision", "MP Mode", "Sharding Strategy", "Activation Checkpointing",
)  # fmt: skip
SIZES = {
    "125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12), "1b": (24, 2048, 16), "3b": (32, 2560, 20),
    "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56), "70b": (80, 8192, 64),
}  # fmt: skip
"""Layers, hidden size, heads."""
VOCABULARY = 50368
MACHINES_OF = {"h100_80gb": "dgx-h100", "a100_80gb": "roce-a100-80", "a100_40gb": "roce-a100-40"}

WORDS = {
    "Precision": ("bf16", "amp_bf16", "amp_fp8"),
    "MP Mode": ("DEFAULT", "PURE"),
    "Sharding Strategy": ("FULL_SHARD", "SHARD_GRAD_OP"),
    "Activation Checkpointing": ("True", "False"),
}
"""What a column may say: each decides a key of the plan, so another word would be a guess."""

NOTES = (
    "30B on 8 GPUs in microbatches of 1 is at the limit of memory, where the allocator waits for the device.",
)


def cases(path: Path) -> Iterator[Case]:
    """Yield the rows of a file.

    Raises:
        InputError: the file is malformed.
    """
    for line, row in read_rows(path, COLUMNS):
        sequence, npus, micro, batch = (
            count(path, line, row, name)
            for name in ("SeqLen (T)", "# GPUs", "MicroBatchSize", "GlobalBatchSize")
        )
        name, device = row["Model"].strip(), row["GPU"].strip()
        size, machine = SIZES.get(name), MACHINES_OF.get(device)
        unknown = ""
        for column, words in WORDS.items():
            if (word := row[column].strip()) not in words:
                unknown = f"{column}: got '{word}'{nearest(word, words)}, expected {' or '.join(words)}"
        # All checked: the last reason that applies is shown.
        if size is None:
            unknown = f"no model '{name}', expected {', '.join(SIZES)}"
        if machine is None:
            unknown = f"no GPU '{device}', expected {', '.join(MACHINES_OF)}"
        fp8 = row["Precision"] == "amp_fp8"
        # What the row says; all else is the same in all rows.
        plan: dict[str, Any] = {
            "batch": batch,
            "microbatch": micro,
            "sequence": sequence,
            # SHARD_GRAD_OP keeps gathered weights: only FULL_SHARD gathers them again.
            "data": {"sharding": "fsdp", "reshard": row["Sharding Strategy"] == "FULL_SHARD"},
            "numbers": {
                "compute": "fp8" if fp8 else "bf16",
                "gradients": "fp32" if row["MP Mode"] == "DEFAULT" else "bf16",
            },
            # Blocks are recomputed where the row says so.
            "recompute": "full" if row["Activation Checkpointing"] == "True" else "none",
            "early_stop": True,
            "attention": "flash",
            "causal": True,
        }
        yield Case(
            label=f"{name} s{sequence} {device} x{npus} micro {micro}",
            group=device + (" fp8" if fp8 else ""),
            measured=number(path, line, row, "Throughput (T/s/GPU)"),
            machine=machine or "",
            npus=npus,
            # A model needs both sizes and a machine.
            model=gpt(*size, sequence, VOCABULARY) if size and not unknown else None,
            plan=plan,
            stack="llm-foundry",
            amount=batch * sequence / npus,
            reason=unknown,
            facts={"size": name, "GPUs": str(npus), "device": device},
        )
