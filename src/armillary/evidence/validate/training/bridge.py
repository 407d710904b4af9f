"""Rows of NVIDIA Megatron-Bridge (docs/performance-summary.md): tokens/s of a GPU on five generations.

What the rows leave open is from the recipes of that repository (scripts/performance/configs): distributed optimizer
that overlaps, gradients reduced in bf16, no recomputation but of small pieces, sequence beside tensor parallelism,
interleaved stages, DeepSeek-V3 with its module for a second token unless the row says without. Values in brackets,
which are of another precision, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.machines import MACHINES
from armillary.evidence.validate.training.rows import read_rows
from armillary.workload.models import load_model
from armillary.workload.models.schema import Attention, Decoder, Experts

COLUMNS = (
    "release", "task", "System", "Model", "#-GPUs", "Precision", "GBS", "MBS", "Sequence Length", "FSDP", "TP", "PP",
    "CP", "VP", "EP", "Tokens / sec / GPU",
)  # fmt: skip
# As rows name them, without signs and case.
MODELS = {
    "llama38b": "llama-3-8b",
    "llama370b": "llama-3-70b",
    "llama31405b": "llama-3-405b",
    "deepseekv3": "deepseek-v3",
    "qwen330ba3b": "qwen3-30b-a3b",
    "qwen3235ba22b": "qwen3-235b-a22b",
    "gptoss120b": "gpt-oss-120b",
    "kimik2": "kimi-k2",
}
"""Presets by name without signs."""
# "-CS" and "MX" are ways of scaling within fp8, which the model does not tell apart; "" names none and is
# fp8.
PRECISIONS = {
    "BF16": "bf16",
    "FP8": "fp8",
    "FP8-CS": "fp8",
    "MXFP8": "fp8",
    "FP8-MX": "fp8",
    "NVFP4": "fp4",
    "": "fp8",
}
# Releases are "26.06": text compares as they do.
GRAPHS = "26.06"
"""From this release on experts run in CUDA graphs of whole steps, and their messages beside other microbatches."""
SYSTEMS = {
    "DGX-H100": "dgx-h100", "DGX-B200": "dgx-b200", "DGX-B300": "dgx-b300", "DGX-GB200": "nvl72-gb200",
    "DGX-GB300": "nvl72-gb300",
}  # fmt: skip

NOTES = (
    "Nemotron 3 Nano is taken for attention with a window; Super and Ultra are refused. "
    "LoRA is shown apart: adapters of rank 16 on the projections of queries, keys and values, as in the recipes.",
    "Rows of one plan differ by 10 to 60 % between releases; constants know only before and after 26.06.",
)


def cases(path: Path) -> Iterator[Case]:
    """Yield the rows of a file.

    Raises:
        InputError: the file is malformed.
    """
    for line, row in read_rows(path, COLUMNS):
        yield _case(path, line, row)


def _case(path: Path, line: int, row: dict[str, str]) -> Case:
    def value(column: str, absent: int | None = None) -> int:
        # "1 (2)" is another precision's value in brackets, "661[^note]" a footnote.
        # Brackets hold another precision's value.
        text = re.sub(r"[(\[].*", "", row[column]).strip().replace(",", "")
        if text in ("", "n/a") and absent is not None:
            return absent
        try:
            return int(float(text))
        except (ValueError, OverflowError):
            # A footnote or text where a number must be.
            raise InputError(
                f"{path}:{line}: {column}: got '{row[column]}', expected a whole number"
            ) from None

    npus, batch, micro, sequence = (value(name) for name in ("#-GPUs", "GBS", "MBS", "Sequence Length"))
    tp, pp, cp, vp, ep = (value(name, 1) for name in ("TP", "PP", "CP", "VP", "EP"))
    system, word = row["System"].strip(), row["Precision"].split("(")[0].strip()
    model, reason = _model(row["Model"])
    # Order matters: the first reason is shown.
    lora = row["task"].startswith("LoRA")
    if system not in SYSTEMS:
        model, reason = None, f"no machine '{system}', expected {', '.join(SYSTEMS)}"
    if word not in PRECISIONS:
        model, reason = None, f"no precision '{word}', expected {', '.join(filter(None, PRECISIONS))}"
    # Kernels run in the order in which Megatron-core issues them: one connection to the device.
    parallel: dict[str, Any] = {"tp": tp, "pp": pp, "cp": cp, "backward": "in-order"}
    # Expert parallelism is separate from tensor parallelism, which here is 1 within experts.
    if model is not None and model.experts:
        parallel |= {"ep": ep, "etp": 1}
    elif tp > 1 and not lora:
        # Dense models overlap tensor parallelism with GEMMs in these recipes.
        parallel["overlap"] = True
    plan: dict[str, Any] = {
        "batch": batch,
        "microbatch": micro,
        "sequence": sequence,
        "parallel": parallel,
        "data": {"sharding": "fsdp"}
        if value("FSDP", 0)
        else {
            "sharding": "zero-1",
            "bucket": "500 MiB",
            # What Megatron-core does to its buffer of gradients.
            "average": "kernel",
            "check": True,
            "clear": True,
        },
        "numbers": {"compute": PRECISIONS.get(word, "bf16"), "gradients": "bf16"},
        # Transformer Engine had no fused kernel for learned sinks then: scores go through memory.
        "attention": "unfused" if _sinks(model) and row["release"].split()[0] < GRAPHS else "flash",
        "causal": True,
    }
    if lora:
        plan["lora"] = LORA
    if vp > 1 and pp > 1:
        plan["pipeline"] = {"schedule": "interleaved", "virtual": vp}
        if model is not None and pp * vp > model.layers:  # embedding and head are stages of their own
            plan["pipeline"]["layers"] = [0, *[1] * model.layers, 0]
    name, release = row["Model"].strip(), row["release"].split()[0]
    moe = model is not None and model.experts is not None
    if moe:
        plan["experts"] = {"domain": MACHINES[SYSTEMS[system]].domain}
        if release >= GRAPHS:
            # From 26.06 on messages run beside other microbatches.
            plan["pipeline"] = {**plan.get("pipeline", {}), "overlap": True}
            # CUDA graphs of whole steps leave the CPU nothing to do.
            plan["host"] = {}
    return Case(
        label=f"{name} {system} x{npus} {word or 'FP8'} batch {batch} ({release})",
        group=system,
        measured=value("Tokens / sec / GPU"),
        machine=SYSTEMS.get(system, ""),
        npus=npus,
        model=model,
        plan=plan,
        stack="megatron-core",
        apart="LoRA" if lora else "",
        # Tokens per GPU of a step.
        amount=batch * sequence / npus,
        reason=reason,
        facts={
            "model": name,
            "GPUs": str(npus),
            "device": system,
            "precision": word or "FP8",
            "release": release,
        },
    )


LORA = {"rank": 16, "targets": ["qkv"]}
"""Adapters of the recipes for performance: only the projections of queries, keys and values have one."""


def _sinks(model: Decoder | None) -> bool:
    return model is not None and model.attention.sinks


def nano() -> Decoder:
    """Return a decoder that costs what Nemotron 3 Nano does: 23 layers of Mamba-2, 6 of attention, 23 of experts.

    Mamba-2 takes as long as FlashAttention-2 over 2,048 keys (arXiv 2405.21060, figure 10): a window of that size; six
    layers see all keys. Keys and values are widened until all projections together are as large as those of both
    kinds of layers, to 2 %. Its convolution is left out. Numbers: config.json of
    nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.
    """
    return Decoder(
        name="Nemotron 3 Nano (as attention)",
        layers=23,
        hidden=2688,
        vocabulary=131072,
        context=262144,
        tied=False,
        norm="rms",
        activation="relu",
        attention=Attention(heads=64, kv_heads=64, head_size=64, window=2048, full_layers=6),
        experts=Experts(count=128, top_k=6, size=1856, shared=1, shared_size=3712, router_bias=True),
    )


def _model(name: str) -> tuple[Decoder | None, str]:
    plain = re.sub(r"[^a-z0-9]", "", name.split("(", maxsplit=1)[0].lower())
    if plain == "nemotron3nano":
        return nano(), ""
    if plain.startswith("nemotron3"):
        # Refused rather than taken for something else.
        return None, f"{name} has experts on a latent vector and Mamba-2, which models cannot describe"
    if plain not in MODELS:
        return None, f"no model '{name}', expected {', '.join(MODELS.values())}"
    model = load_model(MODELS[plain])
    assert isinstance(model, Decoder)
    # Unless the row says "w/o MTP".
    if plain == "deepseekv3" and "w/o" not in name:
        # The module that predicts a second token is a layer more; its second pass of the head is left out.
        model = model.model_copy(update={"name": "DeepSeek-V3 with MTP", "layers": model.layers + 1})
    return model, ""
