"""Runs of MLPerf Training: the median step time of each result log, from its tracked statistics.

A log says batch, sequence and accumulated microbatches. Which machine it ran on stands in its path (`machine_of`).
Parallelism and precision stand in the launch scripts of submissions (`mlperf_scripts`); of the others they are chosen
by rules, the same for all rows, which each case states:

- Replicas are ``batch / (microbatch x accumulation)``, with the largest microbatch that leaves a replica a whole
  number of GPUs, and 1 where a replica has several.
- A replica of Llama 3.1 405B has context parallel 2, 8 pipeline stages of 8 virtual stages each, and tensor parallelism
  over the rest, as NVIDIA publishes of 512 GB300 (tp 2 pp 8 cp 2 vp 8, 1,152 samples); one of 8B doubles context
  and tensor parallelism in turn: cp 2, tp 2 cp 2, tp 2 cp 4.
- Blackwell trains in NVFP4, as NVIDIA says of release 5.1, older GPUs in fp8.
- LoRA is of Llama 2 70B, rank 16 on the projections of attention (the benchmark's reference). Its replicas share the
  sequence (cp). Without a script, paths that name no container from 25.09 on are taken for fp8, which was chosen after
  looking at them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.machines import MACHINES
from armillary.evidence.validate.training.mlperf_scripts import script_of
from armillary.evidence.validate.training.rows import count, number, read_rows
from armillary.workload.models import load_model
from armillary.workload.models.schema import Decoder

COLUMNS = (
    "release", "benchmark", "log", "global_batch", "seq_len", "grad_accum", "run_minutes", "median_train_step_time_s",
)  # fmt: skip
MODELS = {
    "llama31_405b": "llama-3-405b", "llama31_8b": "llama-3-8b", "gpt3": "gpt-3-175b", "llama2_70b_lora": "llama-2-70b",
}  # fmt: skip
MACHINES_OF = {
    "GB300": "nvl72-gb300", "GB200": "nvl72-gb200", "B300": "dgx-b300", "B200": "dgx-b200", "H200": "dgx-h200",
    "H100": "dgx-h100", "A100": "dgx-a100-80",
}  # fmt: skip
OTHERS = ("MI300X", "MI325X", "MI350X", "MI355X", "L40S", "Gaudi2", "Gaudi3", "v5p", "v6e", "Trillium")
"""Devices that paths name and that have no machine here."""
CLUSTERS = {"theia": "GB300", "tyche": "GB200", "hsg": "GB200", "eos": "H100", "hpf": "H200"}
"""Names of clusters in paths whose GPU they do not say, by the systems' descriptions; hpf as its owner's others."""
PRODUCTS = {"NB3": "GB300", "NB3RT": "B300", "NBR": "B200", "NBRT": "B200", "TNBR": "B200"}
"""Last part of the names of Supermicro's systems."""
MOST = 2**20
"""GPUs of a run, at most."""
PER_NODE = {"GB300": 4, "GB200": 4}
"""GPUs of a node; of all others 8."""
LORA: dict[str, Any] = {"rank": 16, "targets": ["qkv", "out"]}
NVFP4_SINCE = "25.09"
FP4 = ("GB300", "GB200", "B300", "B200")

NOTES = (
    "The median of a log's train_step_time; run_minutes, the time to train, includes evaluation and depends on luck.",
    "Rows of one configuration are results of several runs of it.",
)


def cases(path: Path) -> Iterator[Case]:
    """Yield the rows of a file.

    Raises:
        InputError: the file is malformed.
    """
    for line, row in read_rows(path, COLUMNS):
        yield _case(path, line, {name: value.strip() for name, value in row.items()})


def _case(path: Path, line: int, row: dict[str, str]) -> Case:
    lora = "lora" in row["benchmark"]
    measured = number(path, line, row, COLUMNS[-1]) * 1e3 if row[COLUMNS[-1]] else float("nan")
    # A run has a folder of results; its number in it is the run's.
    parts = row["log"].split("/")
    system = parts[2] if len(parts) > 2 else row["log"]
    release, benchmark = row["release"], row["benchmark"]
    label = f"{release} {benchmark} {parts[0]} {system} {Path(row['log']).stem}"
    group = f"{benchmark} (LoRA)" if lora else benchmark
    facts = {"model": benchmark, "release": release}

    def refused(reason: str, apart: str = "") -> Case:
        aside = apart or ("LoRA" if lora else "")
        return Case(label, group, measured, "", 0, None, {}, "nemo", reason=reason, facts=facts, apart=aside)

    if benchmark not in MODELS:
        return refused(f"no model '{benchmark}', expected {', '.join(MODELS)}")
    if not measured > 0:
        return refused(
            "no step time in the log; run_minutes, the time to train, cannot be predicted", "no step time"
        )
    found = machine_of(system)
    if isinstance(found, str):
        return refused(found)
    device, npus = found
    batch = count(path, line, row, "global_batch")
    sequence = count(path, line, row, "seq_len") if row["seq_len"] else 8192
    model = load_model(MODELS[benchmark])
    assert isinstance(model, Decoder)
    accumulated = number(path, line, row, "grad_accum") if row["grad_accum"] else 1.0
    if not 1 <= npus <= MOST:
        return refused(f"{npus} GPUs by the log's path, expected 1 to {MOST:,}")
    split = _split(batch, accumulated, npus)
    if isinstance(split, str):
        return refused(split)
    microbatch, replica = split
    script = script_of(release, benchmark, parts[0], system)
    if script and prod(script.axes) != replica:
        # Another run of that system.
        script = None
    tp, stages, cp = script.axes if script else _axes(model, replica, lora)
    pipeline = _pipeline(model, stages)
    domain = MACHINES[MACHINES_OF[device]].domain
    if model.attention.heads % tp or tp > domain:
        return refused(f"a replica of {replica} GPUs: no parallelism is known for it")
    recipe = script.recipe if script else _recipe(release, device, lora, system)
    precision = "fp4" if recipe == "nvfp4" else "fp8"
    plan: dict[str, Any] = {
        "batch": batch,
        "microbatch": microbatch,
        "sequence": sequence,
        "parallel": {"tp": tp, "pp": stages, "cp": cp, **({"overlap": True} if tp > 1 else {})},
        **({"pipeline": pipeline} if pipeline else {}),
        "data": {"sharding": "zero-1", "bucket": "500 MiB"},
        **({"lora": LORA} if lora else {}),
        "numbers": {"compute": precision, "recipe": recipe, "gradients": "bf16"},
        "attention": "flash",
        "causal": True,
        # In CUDA graphs the CPU has nothing to do.
        **({"host": {}} if script is None or script.graphs else {}),
    }
    axes = " ".join(f"{name} {size}" for name, size in (("tp", tp), ("pp", stages), ("cp", cp)) if size > 1)
    return Case(
        label=label,
        group=group,
        measured=measured,
        machine=MACHINES_OF[device],
        npus=npus,
        model=model.model_copy(update={"context": max(model.context, sequence)}),
        plan=plan,
        stack="nemo",
        facts={**facts, "GPUs": str(npus), "device": device, "precision": precision},
        apart="LoRA" if lora else "",
        assumed=(
            f"{'NVFP4' if precision == 'fp4' else 'FP8'} on {device}, "
            f"{'by the launch script of the submission' if script else 'which rows do not say'}",
            *(
                (
                    f"adapters of rank {LORA['rank']} on {' and '.join(LORA['targets'])}, as the benchmark says",
                )
                * lora
            ),
            f"{axes or 'data parallelism only'} for {benchmark} where a replica has {replica} GPUs",
            "distributed optimizer that overlaps, gradients in bf16, no recomputation, fused attention",
        ),
    )


def _recipe(release: str, device: str, lora: bool, system: str) -> str:
    """Return how operands are scaled where no script says it."""
    if device in FP4 and (not lora or _container(system) >= NVFP4_SINCE):
        return "nvfp4"
    # Settings that the scripts of a benchmark share, since 5.1: one scale per tensor, in LoRA of earlier steps.
    return "delayed" if lora or release < "v5.1" else "current"


def _container(system: str) -> str:
    """Return the release of NVIDIA's container that a system's path names, e.g. "25.09"; "": none."""
    found = re.search(r"ngc(\d+\.\d+)", system)
    return found[1] if found else ""


def machine_of(system: str) -> tuple[str, int] | str:
    """Return the GPU and how many a system of a log's path has, or why that cannot be said.

    Paths name nodes (``_n8``, ``.n8``, ``8x…``), GPUs of a node (``x8B200``, ``B200.8``) and all GPUs (``ngpu512``).
    """
    names = sorted((*MACHINES_OF, *OTHERS), key=len, reverse=True)
    # "GB200" is not the B200 of "4GB200".
    found = re.search("|".join(names), system, re.IGNORECASE)
    device = next(name for name in names if name.lower() == found[0].lower()) if found else ""
    device = device or CLUSTERS.get(re.split(r"[-_.]", system)[0], "")
    if not device:
        last = re.split(r"[-_]", system)
        device = next((PRODUCTS[part] for part in reversed(last) if part in PRODUCTS), "")
    if not device:
        return f"the log's path '{system}' names no GPU"
    if device not in MACHINES_OF:
        return f"no machine with {device}, expected {', '.join(MACHINES_OF)}"
    if whole := re.search(r"ngpu(\d+)", system):
        return device, int(whole[1])
    node = PER_NODE.get(device, 8)
    # "8xB200", "x8H200", "B200.8", "b200_8x8": GPUs of a node.
    for pattern in (rf"(\d+)x?{device}", rf"{device}\.(\d+)", r"_\d+x(\d+)(?:_|$)", rf"{device}x(\d+)"):
        if each := re.search(pattern, system, re.IGNORECASE):
            node = int(each[1])
            break
    nodes = 1
    for pattern in (r"[_.]n(\d+)", r"^(\d+)x(?!\d*[A-Z]*(?:B|H)\d00)", r"_(\d+)x\d+(?:_|$)"):
        if many := re.search(pattern, system):
            nodes = int(many[1])
            break
    if found := re.match(r"(\d+)x\w+?x(\d+)x(\d+)", system):
        # Racks x nodes x GPUs: "1xKinabalux18x4GB200".
        nodes, node = int(found[1]) * int(found[2]), int(found[3])
    return device, nodes * node


def _split(batch: int, accumulated: float, npus: int) -> tuple[int, int] | str:
    """Return the microbatch and GPUs of a replica."""
    at_once = batch / accumulated
    if at_once != int(at_once) or at_once < 1:
        return f"batch {batch} in {accumulated:g} microbatches: expected a whole number of samples at a time"
    samples = int(at_once)
    if samples <= npus:
        return (1, npus // samples) if npus % samples == 0 else _uneven(samples, npus)
    return (samples // npus, 1) if samples % npus == 0 else _uneven(samples, npus)


def _uneven(samples: int, npus: int) -> str:
    return f"{samples} samples at a time on {npus} GPUs: expected a multiple or a divisor"


def _axes(model: Decoder, replica: int, lora: bool) -> tuple[int, int, int]:
    """Return tp, pp and cp of a replica of so many GPUs, where no script says them."""
    if lora:
        return 1, 1, replica
    # Models that do not fit into few GPUs are divided into stages.
    stages = 8 if model.hidden >= 12288 and replica % 8 == 0 else 1
    left = replica // stages
    if stages == 1:
        # In turn, context parallelism first: it leaves GEMMs whole.
        tp = 2 ** (max(0, left.bit_length() - 1) // 2) if left & (left - 1) == 0 else 1
        return tp, 1, left // tp
    cp = 2 if left % 2 == 0 else 1
    return left // cp, stages, cp


def _pipeline(model: Decoder, stages: int) -> dict[str, Any]:
    if stages == 1:
        return {}
    pipeline: dict[str, Any] = {"schedule": "interleaved", "virtual": 8}
    each, odd = divmod(model.layers + 2, stages * 8)
    if model.layers % (stages * 8) and not odd:
        # Embedding and head count as layers: 126 of 405B on 64 virtual stages are 1, 2, …, 2, 1.
        pipeline["layers"] = [each - 1, *[each] * (stages * 8 - 2), each - 1]
    return pipeline
