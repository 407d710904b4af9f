"""Measured serving, a row for each configuration: mean TTFT and TPOT of a closed loop (``silicon_sample.csv``).

The rows are aiconfigurator's sample of InferenceX and of runs of NVIDIA's. Each is served as its client did it:
requests of the lengths that it draws, sent by as many clients, by the rule of its engine.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from armillary.base.csv_text import number_in
from armillary.base.errors import ArmillaryError, InputError
from armillary.base.hints import show
from armillary.compute.machine import machine_of
from armillary.evidence.validate.configurations import NEAR, Point, answers
from armillary.evidence.validate.start_scripts import BLACKWELL, Recipe
from armillary.evidence.validate.table import Bar, Progress, Row, Suite, Table
from armillary.evidence.validate.training.rows import read_rows
from armillary.serving.interval import interval
from armillary.serving.load import load_requests
from armillary.serving.outcome import quantiles
from armillary.serving.requests import Requests
from armillary.serving.service import Service, service
from armillary.serving.spread import Wanted
from armillary.workload.models import load_model

COLUMNS = (
    "silicon_data_source", "backend", "model_path", "system", "precision", "mode", "isl", "osl", "tp_size",
    "attention_dp_size", "moe_tp_size", "moe_ep_size", "silicon_ttft_ms", "silicon_tpot_ms",
)  # fmt: skip
MODELS = {
    "Llama-3.1-70B": "llama-3.1-70b", "Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b", "Qwen3-32B": "qwen3-32b",
    "Qwen3-235B-A22B-FP8": "qwen3-235b-a22b", "gpt-oss-120b": "gpt-oss-120b",
    "DeepSeek-V3": "deepseek-v3", "DeepSeek-R1": "deepseek-v3", "Kimi-K2.5": "kimi-k2", "MiniMax-M2.5": "minimax-m2.5",
    "Qwen3.5-397B-A17B": "qwen3.5-397b-a17b", "GLM-5": "glm-5", "GLM-5-FP8": "glm-5", "DeepSeek-V3.2": "deepseek-v3.2",
}  # fmt: skip
"""Last part of ``model_path`` -> model. InferenceX's Llama 70B is 3.3, DeepSeek-V3 is R1: of the same shapes."""
DEVICES = {
    "h100_sxm": "h100", "h200_sxm": "h200", "b200_sxm": "b200", "a100_sxm": "a100", "b300_sxm": "b300",
    "gb200_sxm": "gb200", "gb300_sxm": "gb300",
}  # fmt: skip
WARMED = "2026-01-21"
"""Day from which on InferenceX's client warms the server up."""
BALANCE = 60
"""Steps for which InferenceX's recipes let a prompt wait until each rank has one (``timeout_iters``)."""
Metric = Literal["tpot", "ttft"]


@dataclass(frozen=True)
class Case:
    """A row.

    Attributes:
        label: What was measured.
        group: Model, device, engine and precision.
        key: Equal in rows that say the same twice.
        model: As we call it; "": not known.
        devices: Of the replica.
        device: Preset.
        numbers: Engine and precisions.
        fused: Whether an all-reduce does the norm behind it; None: as usual on the device.
        dp: Ranks that have requests of their own.
        ep: Devices over which whole experts are divided.
        budget: Most tokens of a step.
        poll: Steps between looks for new requests.
        memory: Share of the memory, as the engine takes it; None: its default.
        graphs: Tokens of the largest CUDA graph.
        sequences: Most that run at a time.
        clients: Of the closed loop.
        lengths: Most tokens of prompt and answer.
        ranges: Tokens of both, as a load says them.
        requests: How many.
        measured: TTFT and TPOT in ms.
        warm: Whether the server had been warmed up.
        left_out: Why it is no measurement of what its columns say; "": it is one.
        reason: Why it cannot be served here; "": it can.
    """

    label: str
    group: str
    key: tuple[Any, ...]
    model: str
    devices: int
    device: str
    numbers: tuple[tuple[str, str], ...]
    fused: bool | None
    dp: int
    ep: int
    budget: int
    poll: int
    memory: float | None
    graphs: int
    sequences: int
    clients: int
    lengths: tuple[int, int]
    ranges: tuple[str, str]
    requests: int
    measured: tuple[float, float]
    warm: bool
    left_out: str
    reason: str


def read_cases(path: Path) -> list[Case]:
    """Return the rows of a file.

    Raises:
        InputError: it cannot be read, or a number of a row is none.
    """
    return [_case(f"{path}:{line}", row) for line, row in read_rows(path, COLUMNS)]


def _case(where: str, row: dict[str, str]) -> Case:
    source, backend, precision = row["silicon_data_source"], row["backend"], row["precision"]
    name = row["model_path"].rpartition("/")[2]
    model, device = MODELS.get(name, ""), DEVICES.get(row["system"], row["system"])
    isl, osl = (_number(where, key, row, 1, 10**6) for key in ("isl", "osl"))
    found = re.search(r"silicon_concurrency=(\d{1,6})\b", source)
    clients = min(max(int(found[1]), 1), 20_000) if found else 0
    devices, dp, ep = _devices(where, row, "2026-04-06" in source or "db-dump" in source)
    day = re.search(r"measured=(\d{4}-\d\d-\d\d)", source)
    recipe = Recipe(backend, device, model, precision, devices, day[1] if day else WARMED)
    # Rows of NVIDIA's own have lengths as they stand.
    own = "source_file=/" in source
    if not own:
        dp, ep = recipe.spread(clients, isl, osl, (dp, ep))
    ranges = (str(isl), str(osl)) if own else (f"{isl * 8 // 10 or 1}-{isl}", f"{osl * 8 // 10 or 1}-{osl}")
    measured = _ms(where, "silicon_ttft_ms", row), _ms(where, "silicon_tpot_ms", row)
    rounded = tuple(round(each, 2) for each in measured)
    left_out = ""
    if row["mode"] != "agg":
        left_out = "prefill and decoding apart, whose numbers of workers are lost"
    elif not clients:
        left_out = "no number of clients"
    elif (backend == "trtllm" and device == "h200" and "measured=2026-01-14" in source) or (
        device in BLACKWELL and "Qwen3.5" in name and "measured=2026-03-20" in source and devices == 4
    ):
        left_out = "hidden drafts (MTP)"
    elif "h200_sxm/vllm/0.12.0" in source:
        left_out = "flags and arrivals of the client are not known"
    elif "1.3.0rc1" in source and device == "h100":
        left_out = "several replicas, of which it says nothing"
    elif (name, clients, device) == ("gpt-oss-120b", 512, "h100") and "measured=2025-12" in source:
        left_out = "far fewer requests ran at a time than were let in, which nothing explains"
    elif name == "Kimi-K2.5" and device == "h200" and clients == 16 and measured[1] > 60:
        left_out = "four times the time of its neighbours"
    budget = recipe.budget(clients, isl, own)
    poll = recipe.poll(clients)
    reason = ""
    if not model:
        reason = f"{name} is not modelled"
    elif device not in DEVICES.values():
        reason = f"device {device} is not modelled"
    elif dp not in (1, devices):
        reason = f"ranks of {devices // dp} devices with requests of their own are not modelled"
    elif precision not in ("", "bf16", "fp8", "fp4", "int4"):
        reason = f"precision {precision} is not modelled"
    return Case(
        f"{name} {device} {backend} {precision or 'bf16'} {isl}/{osl} tp {devices} x {clients}".replace("  ", " "),
        f"{name} {device} {backend} {precision or 'bf16'}",
        (row["mode"], name.replace("-R1", "-V3"), device, backend, isl, osl, clients, rounded),
        model, devices, device, recipe.served_as(own), recipe.fused,
        dp, devices if ep > 1 else 1, budget, poll, None if own else recipe.memory(isl), recipe.graphs,
        recipe.sequences(clients), clients,
        (isl, osl), ranges, min(20 * clients, 2000) if own else 10 * clients, measured,
        own or day is None or day[1] >= WARMED, left_out, reason,
    )  # fmt: skip


def _devices(where: str, row: dict[str, str], wrong: bool) -> tuple[int, int, int]:
    """Return devices of a replica, how many ranks have requests of their own, and over how many experts are divided.

    Files whose converter multiplied tp by ep are repaired as the fact sheet of the data says.
    """
    tp, dp, moe, ep = (
        max(1, _number(where, key, row, 0, 10**4, 1))
        for key in ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    )
    if ep == 1 or not wrong:
        return tp * dp, dp, ep
    if row["backend"] == "vllm":
        return tp, 1, ep
    return moe, moe if dp > 1 else 1, ep


def _number(where: str, key: str, row: dict[str, str], low: int, high: int, usual: int | None = None) -> int:
    text = row[key].strip().removesuffix(".0")
    if not text and usual is not None:
        return usual
    found = int(text) if text.isdecimal() and len(text) < 10 else -1
    # Rows of disaggregated serving leave these out, and are themselves left out.
    if not low <= found <= high:
        raise InputError(
            f"{where}: {key}: got {show(row[key])}, expected a whole number from {low} to {high:,}"
        )
    return found


def _ms(where: str, key: str, row: dict[str, str]) -> float:
    found = number_in(row[key])
    if found is None or not 0 < found < 1e9:
        raise InputError(f"{where}: {key}: got {show(row[key])}, expected ms above 0")
    return found


@functools.lru_cache(maxsize=1)
def _served(paths: tuple[Path, ...], stamps: tuple[float, ...]) -> tuple[tuple[Case, float, float, str], ...]:
    """Return each case with TTFT and TPOT in ms, or why there is none: both tables have the same rows."""
    cases = [case for path in paths for case in read_cases(path)]
    groups: dict[tuple[Any, ...], list[Case]] = {}
    distinct: dict[tuple[Any, ...], Case] = {}
    for case in cases:
        distinct.setdefault(case.key, case)
    for case in distinct.values():
        kind = (
            case.model,
            case.device,
            case.devices,
            case.numbers,
            case.fused,
            case.dp,
            case.ep,
            case.memory,
            case.graphs,
        )
        groups.setdefault(kind, []).append(case)
    found: list[tuple[Case, float, float, str]] = []
    for mine in groups.values():
        usable = [case for case in mine if not case.left_out and not case.reason]
        built: Service | str = _service(usable) if usable else ""
        for case in mine:
            if case.left_out or case.reason or isinstance(built, str):
                found.append((case, math.nan, math.nan, case.left_out or case.reason or str(built)))
                continue
            lengths = "input={},output={}".format(*case.ranges)
            load = f"closed:clients={case.clients},requests={case.requests},{lengths}"
            try:
                engine = replace(built.engine, budget=case.budget, poll=case.poll, sequences=case.sequences)
                outcome = replace(built, engine=engine).run(load_requests(load))
                ttft, tpot = quantiles(outcome.ttft).mean, quantiles(outcome.tpot).mean
                found.append((case, 1e3 * ttft, 1e3 * tpot, ""))
            except ArmillaryError as error:
                found.append((case, math.nan, math.nan, str(error)))
    return tuple(found)


def _service(cases: Sequence[Case]) -> Service | str:
    """Return what serves these cases, which differ in their loads only, or why nothing does."""
    first, many = cases[0], max(case.clients for case in cases)
    isl, osl = (max(case.lengths[at] for case in cases) for at in (0, 1))
    longest = Requests(
        np.where(np.arange(many) < many, 0, -1),
        np.full(many, isl, np.int64),
        np.full(many, osl, np.int64),
        many,
    )
    try:
        options: dict[str, Any] = dict(first.numbers)
        budget = max(case.budget for case in cases)
        # Recipes of TensorRT-LLM for DeepSeek let prompts wait for each other.
        balance = (
            BALANCE if first.dp > 1 and (first.model, options["engine"]) == ("deepseek-v3", "trtllm") else 0
        )
        wanted = Wanted(
            dp=first.dp, ep=first.ep, budget=budget, sequences=many, cached=False, balance=balance,
            memory=first.memory, graphs=first.graphs, fused=first.fused, **options,
        )  # fmt: skip
        return service(
            load_model(first.model), machine_of(f"{first.devices}x{first.device}"), longest, wanted
        )
    except ArmillaryError as error:
        return str(error)


def _point(case: Case, ttft: float, tpot: float) -> Point:
    """Return a run as one of the configurations among which its model, device and lengths leave a choice."""
    # An answer has nine tenths of the tokens that it may have, where lengths are drawn.
    tokens = case.lengths[1] * (1.0 if case.ranges[1].isdigit() else 0.9)

    def rates(first: float, each: float) -> tuple[float, float]:
        return 1e3 / each, 1e3 * case.clients * tokens / (first + each * (tokens - 1)) / case.devices

    return Point(
        (case.model, case.device, case.lengths),
        (case.numbers, case.devices, case.dp, case.ep, case.memory, case.graphs),
        case.clients, rates(*case.measured), rates(ttft, tpot),
    )  # fmt: skip


def _choices(served: Iterable[tuple[Case, float, float, str]]) -> Iterator[str]:
    """Yield how often the configuration that is predicted to be best nearly is, if there is a choice."""
    found = answers(
        _point(case, ttft, tpot) for case, ttft, tpot, reason in served if not (case.left_out or reason)
    )
    if found.asked:
        yield (
            f"Best configuration at equal interactivity, of {found.asked} questions in {found.cells} cells (model, "
            f"device, lengths): the one predicted to be best reaches {100 * NEAR:.0f} % of the best measured "
            f"throughput in {100 * found.good / found.asked:.1f} %."
        )


def _table(metric: Metric, paths: Iterable[Path], progress: Progress) -> Table:
    files = tuple(paths)
    served = _served(files, tuple(path.stat().st_mtime for path in files))
    progress(len(served), len(served))
    at = 0 if metric == "ttft" else 1
    rows, aside = [], Counter[str]()
    for case, ttft, tpot, reason in served:
        if case.left_out:
            aside[case.left_out] += 1
        elif metric == "ttft" and not case.warm:
            aside["before the client warmed servers up: their first requests have first uses"] += 1
        elif metric == "ttft" and case.model == "llama-3.1-8b" and case.ranges[1].isdigit():
            # NVIDIA's runs, of fixed lengths: at 8 clients 191, 318 and 550 ms for answers of 128, 256 and 512 tokens
            # to equal prompts.
            aside["a tenth of their requests wait for a whole answer, which nobody explains"] += 1
        else:
            value = (ttft, tpot)[at]
            rows.append(
                Row(case.label, case.measured[at], value, case.group, *interval(metric, value), reason)
            )
    if not rows:
        raise InputError(f"{', '.join(map(str, files))}: no row can be served, expected some of mode 'agg'")
    notes = (
        "Each row is a closed loop with the lengths that its client draws; equal rows count once.",
        "Engines by their rules, with budgets and precisions of InferenceX's start scripts, else by their defaults.",
        "What a step of NVIDIA's own runs may hold is not known: prompts of 1,024 tokens in all, or a longer one, and "
        "a token of each client, as their rates show.",
        "Constants of kernels.yaml are fitted to kernels. Chosen after a look at these rows were what the front end "
        "takes (gpt-oss on vLLM with 4 clients), what a step of TensorRT-LLM holds, its fp8 GEMMs beside their "
        "tables, that MiniMax's norm of queries and keys is summed over devices, which devices fuse norms, whose table "
        "experts take (int4, mxfp4, fp8 of blocks on B200, SGLang's on H200), that rows of TensorRT-LLM's table of "
        "experts on H100 are left out, which version's latent attention TensorRT-LLM has, the low tiles of Triton's "
        "experts, fp8 caches of Qwen3-32B, and which runs are left out.",
        "Where rows do not say what start scripts chose, the scripts do: over how many devices experts and requests "
        "are divided, and whether all-reduces do norms.",
        *(_choices(served) if metric == "tpot" else ()),
        *(f"Left out: {count} row{'s' * (count > 1)}, {why}." for why, count in aside.most_common()),
    )
    title = {
        "tpot": "Mean time per token of serving runs",
        "ttft": "Mean time to first token of serving runs",
    }[metric]
    source = "silicon_sample.csv: InferenceX and NVIDIA's runs (ai-dynamo/aiconfigurator@095f58a)"
    bar = Bar(0.12) if metric == "tpot" else Bar(0.2)
    return Table(f"serving-{metric}", title, "ms", source, tuple(rows), "fitted", bar, notes)


def _suite(metric: Metric) -> Suite:
    title = {"tpot": "Time per token of serving runs", "ttft": "Time to first token of serving runs"}[metric]
    return Suite(
        f"serving-{metric}", title, "serving/silicon_sample.csv", functools.partial(_table, metric), COLUMNS,
        asked="takes minutes",
    )  # fmt: skip


SUITES: tuple[Suite, ...] = (_suite("tpot"), _suite("ttft"))
