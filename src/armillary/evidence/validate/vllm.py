"""Runs of vLLM, request by request, from profiles of its layers: what LLMServingSim keeps of a run.

A run is a folder with ``vllm/requests.jsonl`` and ``vllm/meta.json`` (how the engine was started) and ``config.json``
(memory and links). Its layers are in ``profiles/HARDWARE/MODEL/PRECISION/tpN`` of the folder or one above. No constant
is fitted to runs: the engine is as it was started, kernels are as profiled, and collectives are rings on the links.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.base.json_text import parse_json
from armillary.base.reading import MOST_TEXT, decoded, read_plain
from armillary.evidence.validate.table import Bar, Progress, Row, Suite, Table
from armillary.serving.logs import read_log
from armillary.serving.outcome import Floats, Outcome, joined, quantiles
from armillary.serving.profile import profile_table
from armillary.serving.replica import Engine, serve_replica
from armillary.serving.requests import Ints
from armillary.workload.models import load_model, parameters, preset_names
from armillary.workload.models.schema import Decoder

COLUMNS = (
    "request_id", "input_toks", "output_toks", "arrival_time", "queued_ts", "scheduled_ts", "first_token_ts",
    "last_token_ts",
)  # fmt: skip
PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "auto": "bf16"}
ABOVE = 5
"""Folders above a run in which profiles may be."""
BYTES = 2
"""Of a number in 16 bits."""
ONE_SHOT = 8 * 2**20
"""Bytes below which two devices on PCIe sum by a kernel of vLLM's, in which each reads what the other has
(custom_all_reduce.py: ``should_custom_ar``, ``max_size``); more devices without NVLink use NCCL's rings."""
Metric = Literal["ttft", "tpot"]


@dataclass(frozen=True)
class Run:
    """A measured run; times are s of each request.

    Attributes:
        name: Device, model and tp.
        ttft: Measured time to first token.
        tpot: Measured time per token after the first; nan where there is none.
        outcome: The same run, simulated; None: it is not.
        reason: Why it is not.
        notes: What was taken from where.
    """

    name: str
    ttft: Floats
    tpot: Floats
    outcome: Outcome | None
    reason: str = ""
    notes: tuple[str, ...] = ()


def read_run(path: Path) -> Run:
    """Return a run, measured and simulated.

    Args:
        path: Its ``requests.jsonl``.

    Raises:
        InputError: a file of it is missing or malformed.
    """
    requests = read_log(path)
    stamps = _stamps(path, len(requests))
    # Sorted by arrival, as the log is; two clocks whose distance is that of the quickest request.
    stamps = stamps[np.argsort(stamps[:, 0], kind="stable")]
    between = (stamps[:, 1] - stamps[:, 0]).min()
    arrival = stamps[:, 0] + between
    ttft, tokens = stamps[:, 2] - arrival, requests.output - 1
    if not (ttft > 0).all() or not (stamps[:, 3] >= stamps[:, 2]).all():
        raise InputError(
            f"{path}: a request has its first token before it came, or its last before its first"
        )
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot = np.where(tokens > 0, (stamps[:, 3] - stamps[:, 2]) / np.maximum(tokens, 1), np.nan)
    home = path.parent.parent if path.parent.name == "vllm" else path.parent
    meta = _object(path.with_name("meta.json"))
    config = _object(home / "config.json")
    started = _part(meta, "engine_kwargs", path.with_name("meta.json"))
    nodes = _list(config, "nodes", home / "config.json")
    instances = _list(nodes[0], "instances", home / "config.json")
    own = instances[0]
    name, hardware = (_text(own, key, home / "config.json") for key in ("model_name", "hardware"))
    tp = _whole(started, "tensor_parallel_size", path.with_name("meta.json"), 1, 4096, 1)
    label = f"{hardware} {name.rpartition('/')[2]} tp {tp}"
    if len(nodes) * len(instances) > 1 or _whole(started, "data_parallel_size", path, 1, 4096, 1) > 1:
        return Run(
            label, ttft, np.asarray(tpot), None, "several instances share the load, by a rule it does not say"
        )
    model = _model(name, home / "config.json")
    folder = _profile(
        home, hardware, name, PRECISIONS.get(str(started.get("dtype")), str(started.get("dtype"))), tp
    )
    engine, notes = _engine(meta, started, own, model, tp, path.with_name("meta.json"))
    experts = (model.experts.count, model.experts.top_k) if model.experts is not None else None
    reduces, gathers = _collectives(model, engine, tp, config, home / "config.json")
    table = profile_table(
        folder, model.layers, engine.budget, engine.sequences, experts=experts, extra_ns=reduces, head_ns=gathers,
    )  # fmt: skip
    found = joined(requests, [serve_replica(requests, engine, table)], [np.arange(len(requests))])
    return Run(label, ttft, np.asarray(tpot), found, notes=tuple(notes))


def _collectives(
    model: Decoder, engine: Engine, tp: int, config: Mapping[str, Any], path: Path
) -> tuple[Ints | None, Ints | None]:
    """Return ns of the collectives of a step, by tokens and by sequences.

    Each layer has two all-reduces, and the embedding one. Logits of a sequence, of which each device has a share, are
    gathered before the sampler.
    """
    if tp == 1:
        return None, None
    bandwidth, latency = (_number(config, key, path) for key in ("link_bw", "link_latency"))
    if not bandwidth:
        raise InputError(f"{path}: link_bw: got 0, expected GB/s above 0")
    size = np.arange(engine.budget + 1.0) * model.hidden * BYTES
    each = 2 * (tp - 1) * (size / tp / bandwidth + latency)
    if tp == 2:
        each = np.where(size < ONE_SHOT, np.minimum(each, size / bandwidth + latency), each)
    logits = np.arange(engine.sequences + 1.0) * model.vocabulary * BYTES
    gathered = (tp - 1) * (logits / tp / bandwidth + latency)
    found, last = np.rint((2 * model.layers + 1) * each).astype(np.int64), np.rint(gathered).astype(np.int64)
    found[0] = last[0] = 0
    return np.asarray(found), np.asarray(last)


def _engine(
    meta: Mapping[str, Any],
    started: Mapping[str, Any],
    own: Mapping[str, Any],
    model: Decoder,
    tp: int,
    path: Path,
) -> tuple[Engine, list[str]]:
    """Return the engine as it was started, and what its file does not say."""
    cache = meta.get("kv_cache")
    cache = cache if isinstance(cache, dict) else {}
    block = _whole(cache, "block_size", path, 1, 4096, 16)
    blocks, notes = cache.get("num_gpu_blocks"), []
    if blocks is None:
        memory = _part(own, "npu_mem", path)
        room = _number(memory, "mem_size", path) * 2**30 * _number(memory, "mem_util", path, 0.9)
        # As in LLMServingSim: the share is for weights and cache.
        heads = max(1, -(-model.kv_heads // tp))
        each = 2 * model.layers * heads * model.head_size * BYTES * block
        blocks = int((room - parameters(model).total * BYTES / tp) // each)
        notes.append(f"{blocks:,} blocks from mem_size and mem_util: the run does not say how many it found")
    else:
        blocks = _whole(cache, "num_gpu_blocks", path, 1, 2**27, 1)
    if blocks < 1:
        raise InputError(f"{path}: npu_mem: weights leave no room for keys and values")
    resolved = meta.get("resolved_config")
    scheduler = resolved.get("scheduler_config") if isinstance(resolved, dict) else None
    ahead = scheduler.get("async_scheduling") if isinstance(scheduler, dict) else None
    return Engine(
        _whole(started, "max_num_batched_tokens", path, 1, 2**17, 2048),
        _whole(started, "max_num_seqs", path, 1, 2**14, 256),
        block,
        blocks,
        ahead is not False,
        cache.get("enable_prefix_caching") is not False,
    ), notes


def _model(name: str, path: Path) -> Decoder:
    """Return the model whose preset's name the name begins with."""
    plain = re.sub(r"[^a-z0-9]", "", name.rpartition("/")[2].lower())
    fits = [each for each in preset_names() if plain.startswith(re.sub(r"[^a-z0-9]", "", each))]
    found = load_model(max(fits, key=len)) if fits else None
    if not isinstance(found, Decoder):
        raise InputError(f"{path}: model_name: got {show(name)}, expected a model of armillary generate list")
    return found


def _profile(home: Path, hardware: str, model: str, precision: str, tp: int) -> Path:
    """Return the folder of the layers of a run."""
    inside = Path("profiles", hardware, model, precision, f"tp{tp}")
    # What a file says leads to no folder but one below profiles.
    if ".." in inside.parts or inside.is_absolute():
        raise InputError(f"{home}: the profile {inside} is not below profiles")
    places = [home, *home.resolve().parents][: ABOVE + 1]
    for place in places:
        # A name may be too long for a file.
        with suppress(OSError, ValueError):
            if (place / inside).is_dir():
                return place / inside
    raise InputError(
        f"{home}: there is no {str(inside)[:200]} in it or up to {ABOVE} folders above, expected a profile of layers"
    )


def _stamps(path: Path, count: int) -> Floats:
    """Return (requests, 4): arrival, queued, first and last token in s."""
    rows = []
    for line, text in enumerate(decoded(read_plain(path, MOST_TEXT), path).split("\n"), 1):
        if text.strip():
            row = parse_json(text, f"{path}:{line}")
            keys = ("arrival_time", "queued_ts", "first_token_ts", "last_token_ts")
            rows.append([_number(row, key, Path(f"{path}:{line}")) for key in keys])
    return np.array(rows).reshape(count, 4)


def _object(path: Path) -> dict[str, Any]:
    try:
        found = parse_json(bytes(read_plain(path, MOST_TEXT)).decode("utf-8-sig"), path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}), expected a file of the run"
        ) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: got {show(found)}, expected an object")
    return found


def _part(values: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    found = values.get(key)
    if not isinstance(found, dict):
        raise InputError(f"{path}: {key}: got {show(found)}, expected an object")
    return found


def _list(values: Mapping[str, Any], key: str, path: Path) -> list[dict[str, Any]]:
    found = values.get(key)
    if not isinstance(found, list) or not found or not all(isinstance(each, dict) for each in found):
        raise InputError(f"{path}: {key}: got {show(found)}, expected a list of objects")
    return found


def _text(values: Mapping[str, Any], key: str, path: Path) -> str:
    found = values.get(key)
    if not isinstance(found, str) or not found:
        raise InputError(f"{path}: {key}: got {show(found)}, expected a name")
    return found


def _number(values: Mapping[str, Any], key: str, path: Path, usual: float | None = None) -> float:
    found = values.get(key, usual)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1e15:
        raise InputError(f"{path}: {key}: got {show(found)}, expected a number from 0")
    return float(found)


def _whole(values: Mapping[str, Any], key: str, path: Path, low: int, high: int, usual: int) -> int:
    found = values.get(key)
    found = usual if found is None else found
    if type(found) is not int or not low <= found <= high:
        raise InputError(f"{path}: {key}: got {show(found)}, expected a whole number from {low} to {high:,}")
    return found


TITLES: Mapping[Metric, str] = {"ttft": "Time to first token", "tpot": "Time per token"}


def _table(metric: Metric, runs: Sequence[Run]) -> Table:
    """Return mean and percentiles of each run, with its requests as a part."""
    name, title = f"vllm-{metric}", f"{TITLES[metric]} of vLLM's requests, from profiles of its layers"
    source = "LLMServingSim@5daddb2, bench: vLLM 0.19, ShareGPT, Poisson"
    summed: list[Row] = []
    each: list[Row] = []
    for run in runs:
        measured = getattr(run, metric)
        predicted = np.full(len(measured), math.nan) if run.outcome is None else getattr(run.outcome, metric)
        known = ~np.isnan(measured)
        each += [
            Row(f"{run.name} request {at}", 1e3 * float(measured[at]), 1e3 * float(predicted[at]), run.name,
                reason=run.reason)
            for at in np.flatnonzero(known)
        ]  # fmt: skip
        one, other = quantiles(measured), quantiles(predicted)
        summed += [
            Row(f"{run.name} {key}", 1e3 * value, 1e3 * getattr(other, key), run.name, reason=run.reason)
            for key, value in vars(one).items()
        ]
    notes = [
        "Rows are mean, median, 90th and 99th percentile of a run; the part has each request.",
        "Kernels are as profiled, one layer at a time without graphs; steps add nothing for the CPU.",
        "No constant was fitted, but the rule was written with the two runs of its authors in sight.",
        "All-reduces are rings on the links of config.json, between two devices below 8 MiB one exchange: two of each "
        "layer and one of the embedding. Logits are gathered.",
        *dict.fromkeys(f"{run.name}: {note}." for run in runs for note in run.notes),
    ]
    part = Table(f"{name}-requests", "Each request", "ms", source, tuple(each), "blind")
    bar = Bar(0.02 if metric == "ttft" else 0.01, 0.05)
    return Table(name, title, "ms", source, tuple(summed), "blind", bar, tuple(notes), (part,))


def _suite(metric: Metric) -> Suite:
    def run(files: Iterable[Path], progress: Progress) -> Table:
        found, paths = [], list(files)
        for done, path in enumerate(paths, 1):
            found.append(read_run(path))
            progress(done, len(paths))
        return _table(metric, found)

    return Suite(
        f"vllm-{metric}", f"{TITLES[metric]} of vLLM's requests", "serving/vllm_requests", run, COLUMNS
    )


SUITES: tuple[Suite, ...] = (_suite("ttft"), _suite("tpot"))
