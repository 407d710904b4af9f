"""Rows of NVIDIA Megatron-Bridge (docs/performance-summary.md): tokens/s of a GPU on five generations.

What the rows leave open is from the recipes of that repository (scripts/performance/configs): distributed optimizer
that overlaps, gradients reduced in bf16, no recomputation but of small pieces, sequence beside tensor parallelism,
interleaved stages, DeepSeek-V3 with its module for a second token unless the row says without, Nemotron 3 Super with
two. Values in brackets, which are of another precision, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, inf
from pathlib import Path
from typing import Any, TypeVar

from armillary.base.csv_text import number_in
from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.machines import MACHINES
from armillary.evidence.validate.training.rows import read_rows
from armillary.workload.models import load_model
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.experts import Dispatcher

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
    "nemotron3nano": "nemotron-3-nano",
    "nemotron3super": "nemotron-3-super",
    "nemotron3ultra": "nemotron-3-ultra",
}
"""Presets by name without signs."""
# "CS" is a scale per tensor of its own largest value, which rows of fp8 that name none have, too: the only other recipe
# of scripts/performance is MX.
PRECISIONS: dict[str, dict[str, str]] = {
    "BF16": {"compute": "bf16"},
    **{name: {"compute": "fp8", "recipe": "current"} for name in ("FP8", "FP8-CS", "")},
    **{name: {"compute": "fp8", "recipe": "mx"} for name in ("MXFP8", "FP8-MX")},
    "NVFP4": {"compute": "fp4", "recipe": "nvfp4"},
}


@dataclass(frozen=True)
class Run:
    """How mixtures of experts run, by scripts/performance/configs.

    Attributes:
        overlap: Whether messages of experts run beside other microbatches (``moe_a2a_overlap``).
        graphs: What runs in CUDA graphs (``cuda_graph_scope``); None: the whole step (``full_iteration``).
        again: What the backward pass makes again (``recompute_modules``).
    """

    overlap: bool = False
    graphs: tuple[str, ...] | None = ()
    again: tuple[str, ...] = ()


WHOLE: tuple[str, ...] = ("attention", "router")
LATENT = ("mla_up_proj",)
SMALL = ("layernorm", "moe_act")
RUNS: tuple[tuple[str, str, str, str, Run], ...] = (
    # Model, devices, recipe, first release: the first that fits. Releases are "26.06": text compares as they do.
    ("deepseek-v3", "GB300", "mx", "26.06", Run(True, None)),
    ("deepseek-v3", "GB200 B300", "mx", "26.06", Run(True, None, LATENT)),
    ("deepseek-v3", "GB200", "", "", Run(False, WHOLE, LATENT)),
    ("deepseek-v3", "B200", "mx", "26.04.01", Run(True, WHOLE, (*LATENT, "mlp"))),
    ("deepseek-v3", "B300", "mx", "26.04.01", Run(False, WHOLE, LATENT)),
    ("deepseek-v3", "H100", "", "", Run(True, (), (*LATENT, "mlp"))),
    ("deepseek-v3", "", "", "", Run(again=LATENT)),
    ("kimi-k2", "", "", "", Run(again=LATENT)),
    ("gpt-oss-120b", "GB200 GB300", "mx", "26.06", Run(True, None)),
    ("gpt-oss-120b", "B300", "mx", "", Run(True, WHOLE)),
    ("gpt-oss-120b", "GB200", "", "26.04", Run(True, (), SMALL)),
    ("gpt-oss-120b", "GB300 B300", "", "", Run(False, WHOLE)),
    ("gpt-oss-120b", "", "", "", Run(again=SMALL)),
    ("qwen3-235b-a22b", "GB200 GB300", "mx", "26.06", Run(True, None)),
    ("qwen3-235b-a22b", "GB200 GB300", "", "", Run(False, WHOLE)),
    ("qwen3-235b-a22b", "B300 H100", "", "", Run(True)),
    ("qwen3-30b-a3b", "GB200 GB300", "mx", "26.06", Run(True, None)),
    ("qwen3-30b-a3b", "B200", "", "26.04", Run(False, WHOLE)),
    ("qwen3-30b-a3b", "GB200 GB300 B200 B300", "", "", Run(False, ("router",))),
    ("nemotron-3-nano", "H100", "", "", Run(False, ("attention",), ("moe", "layernorm", "core_attn"))),
    ("nemotron-3-nano", "", "", "", Run(False, WHOLE)),
    ("nemotron-3-super", "GB200", "mx", "", Run(False, ("attention",), (*SMALL, "core_attn", "moe"))),
    ("nemotron-3-super", "B200", "mx", "", Run(again=(*SMALL, "core_attn"))),
    ("nemotron-3-super", "", "", "", Run(False, WHOLE)),
    ("nemotron-3-ultra", "", "", "", Run(again=("moe_act",))),
)
"""The two stored states of these files do not say from which release on a line holds; where they differ, the release at
which rows of the same plan change is taken."""
DISPATCHERS: tuple[tuple[str, str, str, str, Dispatcher], ...] = (
    # As in RUNS. None of them sends fp8.
    ("deepseek-v3", "B200", "mx", "26.04.01", "deepep"),
    ("deepseek-v3", "H100", "", "", "deepep"),
    ("gpt-oss-120b", "", "mx", "", "hybridep"),
    ("gpt-oss-120b", "B300", "", "", "hybridep"),
    ("gpt-oss-120b", "", "", "", "alltoall"),
    ("qwen3-235b-a22b", "H100 B200 B300", "", "", "alltoall"),
    # HybridEP is younger than release 25.09.
    ("qwen3-30b-a3b", "", "", "25.11", "hybridep"),
    ("qwen3-30b-a3b", "", "", "", "alltoall"),
)
"""What sends tokens to experts (``moe_token_dispatcher_type``, ``moe_flex_dispatcher_backend``); of others HybridEP."""
JOINED = "26.04"
"""First release whose quantisation of experts is that of Transformer Engine 2.12: rows of equal plans rise by 5 to 10 %
from 26.02 on, and those of nvfp4 begin."""
SYSTEMS = {
    "DGX-H100": "dgx-h100", "DGX-B200": "dgx-b200", "DGX-B300": "dgx-b300", "DGX-GB200": "nvl72-gb200",
    "DGX-GB300": "nvl72-gb300",
}  # fmt: skip

NOTES = (
    "What Nemotron 3 Ultra moves to the host and back costs nothing: copies overlap. Modules that predict further "
    "tokens (DeepSeek-V3, Nemotron 3 Super and Ultra) have no pass of the head. LoRA is shown apart: adapters of rank "
    "16 on the projections of queries, keys and values, as in the recipes.",
    "Rows of one plan differ by 10 to 60 % between releases; what runs in CUDA graphs, and whether messages of experts "
    "run beside other microbatches, is from the recipes.",
)


def cases(path: Path) -> Iterator[Case]:
    """Yield the rows of a file.

    Raises:
        InputError: the file is malformed.
    """
    for line, row in read_rows(path, COLUMNS):
        yield _case(path, line, row)


def _case(path: Path, line: int, row: dict[str, str]) -> Case:
    def text_of(column: str) -> str:
        # "1 (2)" is another precision's value in brackets, "661[^note]" a footnote.
        return re.sub(r"[(\[].*", "", row[column]).strip().replace(",", "")

    def value(column: str, absent: int | None = None) -> int:
        text = text_of(column)
        if text.lower() in ("", "n/a", "-") and absent is not None:
            return absent
        found = number_in(text)
        # Only what a row may leave out may be 0, which says that it is not used.
        least = 1 if absent is None else 0
        if found is None or not least <= found < 2**53 or not found.is_integer():
            raise InputError(
                f"{path}:{line}: {column}: got {show(row[column])}, expected a whole number of at least {least}"
            )
        return int(found)

    rate = "Tokens / sec / GPU"
    measured = number_in(text_of(rate))
    if measured is None or not 0 < measured < inf:
        raise InputError(f"{path}:{line}: {rate}: got {show(row[rate])}, expected a number above 0")
    npus, batch, micro, sequence = (value(name) for name in ("#-GPUs", "GBS", "MBS", "Sequence Length"))
    tp, pp, cp, vp, ep = (max(value(name, 1), 1) for name in ("TP", "PP", "CP", "VP", "EP"))
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
            # What Megatron-core does to its buffer of gradients; scripts/performance turns the look for NaN off.
            "average": "kernel",
            "clear": True,
        },
        "numbers": {**PRECISIONS.get(word, {}), "gradients": "bf16"},
        "attention": "flash",
        "causal": True,
    }
    if _plain(row["Model"]) == "nemotron3ultra":
        # Megatron-FSDP within 64 GPUs, which NVLink connects.
        model_parallel = max(tp * pp * cp, 1)
        shard = gcd(npus // model_parallel, max(64 // model_parallel, 1)) or 1
        plan["data"] = {"sharding": "hsdp", "shard": shard}
    if lora:
        plan["lora"] = LORA
    if vp > 1 and pp > 1:
        plan["pipeline"] = {"schedule": "interleaved", "virtual": vp}
        if model is not None and pp * vp > model.layers:  # embedding and head are stages of their own
            plan["pipeline"]["layers"] = [0, *[1] * model.layers, 0]
    name, release = row["Model"].strip(), row["release"].partition(" ")[0]
    moe = model is not None and model.experts is not None
    if moe:
        of = (row["Model"], system, plan["numbers"].get("recipe", ""), release)
        plan["experts"] = {
            "domain": MACHINES[SYSTEMS[system]].domain,
            "dispatcher": _of(DISPATCHERS, *of, "hybridep"),
            "dispatch": "bf16",
            "quantise": "joined" if release >= JOINED else "apart",
        }
        run = _of(RUNS, *of, Run())
        if run.overlap:
            plan["pipeline"] = {**plan.get("pipeline", {}), "overlap": True}
        if run.graphs is None:
            # CUDA graphs of whole steps leave the CPU nothing to do.
            plan["host"] = {}
        elif run.graphs:
            plan["host"] = {"graphs": list(run.graphs)}
        if run.again:
            plan |= {"recompute": "selective", "recompute_modules": list(run.again)}
    return Case(
        label=f"{name} {system} x{npus} {word or 'FP8'} batch {batch} ({release})",
        group=system,
        measured=measured,
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


T = TypeVar("T")


def _of(
    table: Sequence[tuple[str, str, str, str, T]],
    name: str,
    system: str,
    recipe: str,
    release: str,
    other: T,
) -> T:
    """Return what the first line of a table says of a model, device, recipe and release; if none does, `other`."""
    plain = _plain(name)
    for model, devices, scaled, first, found in table:
        if (
            MODELS.get(plain) == model
            and (not devices or system.removeprefix("DGX-") in devices.split())
            and scaled in ("", recipe)
            and release >= first
        ):
            return found
    return other


def _plain(name: str) -> str:
    """Return the name of a model as rows have it, without signs, case and what stands in brackets."""
    return re.sub(r"[^a-z0-9]", "", name.split("(", maxsplit=1)[0].lower())


def _model(name: str) -> tuple[Decoder | None, str]:
    plain = _plain(name)
    if plain not in MODELS:
        return None, f"no model '{name}', expected {', '.join(MODELS.values())}"
    model = load_model(MODELS[plain])
    assert isinstance(model, Decoder)
    # Modules that predict further tokens are layers more; their passes of the head are left out.
    if plain == "deepseekv3" and "w/o" not in name:
        model = model.model_copy(update={"name": "DeepSeek-V3 with MTP", "layers": model.layers + 1})
    if plain in ("nemotron3super", "nemotron3ultra"):
        # `mtp_num_layers` 2 of `mtp_hybrid_override_pattern` "*E" in their recipes for pre-training.
        layout = f"{model.layout}{2 * '*E'}"
        update = {"name": f"{model.name} with MTP", "layers": len(layout), "layout": layout}
        model = model.model_copy(update=update)
    return model, ""
