"""Measured serving beside other simulators: vLLM 0.15 on H100 under open loads (``sim_to_real/*.csv``).

A row has a metric of an experiment, as measured and as a simulator predicted it (inference-sim,
sim-to-real-accuracy-validation). We serve each experiment once, as its names and columns say, and set our
errors beside those of the others. No constant was fitted to rows. The client is inference-perf: its gaps are
exponential, at a constant rate, too, scaled so that a stage lasts as long as it says (loadgen/load_timer.py), and its
prompts are made once and sent again and again (datagen/shared_prefix_datagen.py).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from armillary.base.csv_text import number_in
from armillary.base.errors import ArmillaryError, InputError
from armillary.base.hints import show
from armillary.compute.machine import machine_of
from armillary.evidence.validate.table import Bar, Progress, Row, Suite, Table
from armillary.evidence.validate.training.rows import read_rows
from armillary.serving.interval import interval
from armillary.serving.outcome import Floats, Outcome, quantiles
from armillary.serving.requests import Requests
from armillary.serving.service import service
from armillary.serving.spread import Wanted
from armillary.workload.models import load_model
from armillary.workload.models.schema import Decoder

COLUMNS = (
    "experiment", "simulator", "model", "workload", "stage_index", "metric_name", "predicted", "actual", "hardware",
    "precision", "tp", "max_num_batched_tokens",
)  # fmt: skip
MODELS = {
    "Llama-3.1-8B-Instruct": "llama-3.1-8b", "Llama-3.1-70B-Instruct": "llama-3.1-70b",
    "Llama-2-70b-hf": "llama-2-70b", "Llama-2-7b-hf": "llama-2-7b", "Mixtral-8x7B-v0.1": "mixtral-8x7b",
    "Mixtral-8x22B-Instruct-v0.1": "mixtral-8x22b",
    "Llama-4-Scout-17B-16E-Instruct-FP8-dynamic": "llama-4-scout",
}  # fmt: skip
"""Last part of ``model`` -> model."""
SHAPES: dict[str, tuple[str, dict[str, int], int]] = {
    "CodeLlama-34b-Instruct-hf": (
        "llama-3.1-8b", {"layers": 48, "hidden": 8192, "vocabulary": 32000, "heads": 64, "kv_heads": 8}, 22016,
    ),
    "Yi-34B": (
        "llama-3.1-8b", {"layers": 60, "hidden": 7168, "vocabulary": 64000, "heads": 56, "kv_heads": 8}, 20480,
    ),
    "Mistral-Nemo-Instruct-2407": (
        "llama-3.1-8b", {"layers": 40, "hidden": 5120, "vocabulary": 131072, "heads": 32, "kv_heads": 8}, 14336,
    ),
    "Qwen3-14B": (
        "qwen3-32b", {"layers": 40, "hidden": 5120, "vocabulary": 151936, "heads": 40, "kv_heads": 8}, 17408,
    ),
}  # fmt: skip
"""The same -> model whose layers it has, its sizes, and its feed-forward size. Copies of their ``config.json`` say the
same: CodeLlama microsoft/vidur@01f216f vidur/config/model_config.py; Yi a test of "01-ai/Yi-34B" that lists configs;
Mistral-Nemo kevinstephano/thunder_model_blocks mistral/mistral_config.py; Qwen3-14B an annotated config.json of it (its
8 heads of keys and values are those of Qwen3-32B)."""
WORKLOADS = {
    "codegen": (566, 247, ((5.0, 600), (10.0, 600))),
    "general": (547, 248, ((8.0, 600), (20.0, 600))),
    "general-lite": (547, 248, ((2.4, 600), (6.0, 600))),
    "roleplay": (750, 251, ((6.0, 1200),)),
    "reasoning": (1034, 1448, ((4.0, 1200),)),
}
"""Workload -> mean tokens of prompt and answer, and rate (requests/s) and s of each stage (the validation's README; of
``lite`` only the peak is known, its first stage has the same share of it)."""
WIDE = {"Llama-4-Scout-17B-16E-Instruct-FP8-dynamic": "bf16"}
"""The same -> precision of projections of attention, which its makers leave out when they quantise Scout (``ignore`` of
vllm-project/llm-compressor examples/quantization_w8a8_fp8/llama4_fp8_block_example.py, with lm_head and router)."""
METRICS = ("e2e", "ttft", "itl")
Metric = Literal["e2e", "ttft", "itl"]
SEQUENCES = 128
PROMPTS = 100
"""Distinct prompts of a load: inference-perf's default, 10 groups of 10. How many there were is not published."""
SCORED = {"llmservingsim": 300}
"""Simulator -> first requests of an experiment that its rows are about."""


@dataclass(frozen=True)
class Point:
    """A measured metric, and what simulators predicted.

    Attributes:
        experiment: Its name.
        stage: Number of the stage; -1: all.
        metric: As ``ttft_mean``.
        measured: ms.
        others: Simulator -> ms.
        row: A row of it: what was served.
    """

    experiment: str
    stage: int
    metric: str
    measured: float
    others: dict[str, float]
    row: dict[str, str]


def read_points(paths: Sequence[Path]) -> list[Point]:
    """Return the measured metrics of files, each once.

    Raises:
        InputError: a file cannot be read, or a number of a row is none.
    """
    found: dict[tuple[str, int, str], Point] = {}
    for path in paths:
        for line, row in read_rows(path, COLUMNS):
            where = f"{path}:{line}"
            stage = int(_number(where, "stage_index", row, -1, 100))
            key = row["experiment"], stage, row["metric_name"]
            actual = _number(where, "actual", row, 0, 1e9)
            if actual <= 0:
                raise InputError(f"{where}: actual: got {show(row['actual'])}, expected ms above 0")
            point = found.setdefault(key, Point(*key, actual, {}, row))
            if row["predicted"].strip():
                point.others[row["simulator"]] = _number(where, "predicted", row, 0, 1e12)
    return list(found.values())


def _number(where: str, key: str, row: dict[str, str], low: float, high: float) -> float:
    found = number_in(row[key])
    if found is None or not low <= found <= high:
        raise InputError(f"{where}: {key}: got {show(row[key])}, expected a number from {low:g} to {high:g}")
    return found


def load_of(workload: str) -> tuple[Requests, np.ndarray[Any, Any]]:
    """Return the requests of a workload as its client sends them, and the stage of each."""
    prompt, output, stages = WORKLOADS[workload]
    arrival, stage, begun = [], [], 0.0
    random = np.random.RandomState(0)
    for number, (rate, lasts) in enumerate(stages):
        gone = np.cumsum(random.exponential(1, int(rate * lasts)))
        # The first comes at once, with the last gap the stage ends.
        arrival.append(begun + lasts * np.concatenate(([0], gone[:-1])) / gone[-1])
        stage.append(np.full(len(gone), number))
        begun += lasts
    at = np.rint(np.concatenate(arrival) * 1e9).astype(np.int64)
    # Each prompt is one block.
    shared = tuple((each % PROMPTS,) for each in range(len(at)))
    prompts, outputs = np.full(len(at), prompt, np.int64), np.full(len(at), output, np.int64)
    return Requests(at, prompts, outputs, shared=shared, shared_block=prompt), np.concatenate(stage)


def _model(name: str) -> Decoder | None:
    if name in MODELS:
        found = load_model(MODELS[name])
    elif name in SHAPES:
        like, sizes, feed = SHAPES[name]
        found = load_model(like)
        assert isinstance(found, Decoder) and found.mlp
        heads = {key: sizes[key] for key in ("heads", "kv_heads")}
        rest = {key: value for key, value in sizes.items() if key not in heads}
        own = found.attention.model_copy(update={**heads, "head_size": 128})
        found = found.model_copy(
            update={
                **rest,
                "name": name,
                "attention": own,
                "mlp": found.mlp.model_copy(update={"size": feed}),
            }
        )
    else:
        return None
    return found if isinstance(found, Decoder) else None


@functools.lru_cache(maxsize=64)
def _served(
    model: str, workload: str, hardware: str, precision: str, tp: str, budget: str, memory: str
) -> tuple[Outcome, np.ndarray[Any, Any]] | str:
    """Return the outcome of an experiment and the stage of each request, or why there is none."""
    found = _model(model.rpartition("/")[2])
    if found is None:
        return f"{model} is not modelled"
    if workload not in WORKLOADS:
        return f"the rate of {workload} is not published"
    if hardware != "H100":
        return f"device {hardware} is not modelled"
    requests, stages = load_of(workload)
    try:
        devices, tokens = int(float(tp)), int(float(budget))
        wanted = Wanted(
            precision="fp8" if precision == "FP8" else "bf16", budget=tokens, sequences=SEQUENCES,
            memory=float(memory or 0.9), attention_precision=WIDE.get(model.rpartition("/")[2]),
        )  # fmt: skip
        made = service(found, machine_of(f"{devices}xh100"), requests, wanted)
        return made.run(requests), stages
    except (ValueError, OverflowError):
        return (
            f"tp {tp}, max_num_batched_tokens {budget} and gpu_mem_util {memory or 0.9} are not all numbers"
        )
    except ArmillaryError as error:
        return str(error)


def _workload(point: Point) -> str:
    workload = point.row["workload"]
    lite = "-lite" in point.experiment and not workload.endswith("-lite")
    return f"{workload}-lite" if lite else workload


def _predicted(point: Point) -> float | str:
    """Return ms, or why there is none."""
    row = point.row
    found = _served(
        row["model"], _workload(point), row["hardware"], row["precision"], row["tp"], row["max_num_batched_tokens"],
        row.get("gpu_mem_util", ""),
    )  # fmt: skip
    if isinstance(found, str):
        return found
    outcome, stages = found
    name, _, which = point.metric.partition("_")
    values: Floats = getattr(outcome, "tpot" if name == "itl" else name)
    first = max((many for name, many in SCORED.items() if name in point.others), default=len(values))
    mine = values[:first] if point.stage < 0 else values[stages == point.stage]
    if not len(mine) or which not in ("mean", "p50", "p90", "p99"):
        return f"{point.metric} of stage {point.stage} is not known"
    return 1e3 * float(getattr(quantiles(mine), which))


def _table(metric: Metric, paths: Iterable[Path], progress: Progress) -> Table:
    points = [each for each in read_points(list(paths)) if each.metric.startswith(f"{metric}_")]
    rows: list[Row] = []
    others: dict[str, list[Row]] = {}
    for done, point in enumerate(points, 1):
        ours = _predicted(point)
        label = f"{point.experiment} {'all' if point.stage < 0 else f'stage {point.stage}'} {point.metric}"
        group = f"{point.row['model'].rpartition('/')[2]} tp {point.row['tp'].removesuffix('.0')}"
        value, reason = (math.nan, ours) if isinstance(ours, str) else (ours, "")
        # Those of runs in closed loops: of means only, and of these two metrics.
        mean = {"ttft_mean": "ttft", "itl_mean": "tpot"}.get(point.metric, "")
        rows.append(Row(label, point.measured, value, group, *interval(mean, value), reason))
        for name, predicted in point.others.items():
            others.setdefault(name, []).append(Row(label, point.measured, predicted, group))
        progress(done, len(points))
    if not rows:
        raise InputError(f"{', '.join(map(str, paths))}: no row has a metric of {metric}")
    source = "inference-sim/sim-to-real-accuracy-validation@dcec3fd: vLLM 0.15 on H100"
    notes = (
        f"Requests have mean lengths, and the {PROMPTS} prompts of the client's default, which it sends again and "
        "again: neither the spread of lengths nor the prompts were published.",
        f"What LLMServingSim predicted is about the first {SCORED['llmservingsim']} requests of a server that was not "
        "warmed up. Mixtral's wait up to 2.5 s for their first token: experts have first uses, which are not modelled.",
        "Chosen after a look at these rows: what the front end of vLLM takes, that prompts repeat, how many requests "
        "LLMServingSim's rows are of, and that Scout's attention is looked up.",
        "The parts are what other simulators predicted for the same rows.",
    )
    title = {"e2e": "End-to-end time", "ttft": "Time to first token", "itl": "Time between tokens"}[metric]
    parts = tuple(
        Table(
            f"sim-to-real-{metric}-{name}", f"{title}, predicted by {name}", "ms", source, tuple(own), "given"
        )
        for name, own in sorted(others.items())
    )
    bar = Bar(0.2 if metric == "ttft" else 0.1)
    return Table(
        f"sim-to-real-{metric}",
        f"{title} of open loads",
        "ms",
        source,
        tuple(rows),
        "fitted",
        bar,
        notes,
        parts,
    )


def _suite(metric: Metric) -> Suite:
    return Suite(
        f"sim-to-real-{metric}", f"{metric} of vLLM under open loads, beside other simulators",
        "serving/sim_to_real", functools.partial(_table, metric), COLUMNS, asked="takes a minute",
    )  # fmt: skip


SUITES: tuple[Suite, ...] = tuple(_suite(metric) for metric in METRICS)  # type: ignore[arg-type]
