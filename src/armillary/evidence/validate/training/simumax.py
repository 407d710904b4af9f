"""Rows of SimuMax (MooreThreads/SimuMax, summary of its B200 release): steps and peaks of memory of Megatron-LM.

What rows leave open is from that repository: sizes of models from configs/models (its Llama-3.1 405B has 16 heads of
keys, its Mixtral as many as heads), and from simu_tools/megatron_scripts sequences of 4096 unless the name says
otherwise, microbatches of one, bf16, fp32 gradients, the distributed optimizer without overlap, which checks
gradients for NaN and scales them, sequence beside tensor
parallelism, no recomputation, the vocabulary padded to 128 rows of each rank, every expert on one rank of ep,
capacity factor 1 with padding, one dense layer first, Transformer Engine 2.11. Rows of a name with ``cef`` fuse the
loss. Context parallelism is all-to-all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError, one_of
from armillary.base.json_text import parse_json
from armillary.evidence.calibrate.samples import measured_text
from armillary.evidence.validate.training.case import Case, padded
from armillary.workload.models import load_model
from armillary.workload.models.schema import MOST_LAYERS, Decoder

COLUMNS = ("case", "model", "parallel", "layer_num", "mbc", "real_ms")
STACK = "megatron-core"
MACHINE = "dgx-b200"
SEQUENCE = 4096
NPUS = 8
GIB = 2**30
PEAKS = {
    "allocated": ("max_allocated_mb", "real_alloc_gib"),
    "reserved": ("max_reserved_mb", "real_reserved_gib"),
}
"""Peaks of memory: their key of each rank, in MiB, and the key of the largest, in GiB."""
# As rows name them, without signs and case -> preset, and what the configuration there has otherwise.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama27b": ("llama-2-7b", {}),
    "llama213b": ("llama-2-13b", {}),
    "llama38b": ("llama-3-8b", {"vocabulary": 128257}),
    "llama370b": ("llama-3-70b", {}),
    "llama3405b": ("llama-3-405b", {"attention": {"kv_heads": 16}}),
    "mixtral8x7b": ("mixtral-8x7b", {"attention": {"kv_heads": 32}}),
    "mixtral8x22b": ("mixtral-8x22b", {}),
    "deepseekv2": (
        "deepseek-v3",
        {
            "name": "DeepSeek-V2", "hidden": 5120, "vocabulary": 102400, "mlp": {"size": 12288},
            "experts": {
                "count": 160, "top_k": 6, "size": 1536, "shared": 2, "groups": 1, "top_groups": 1,
                "router_bias": False, "dense_first": 1,
            },
        },
    ),
    "deepseekv3": ("deepseek-v3", {"experts": {"router_bias": False, "dense_first": 1}}),
    "kimi1t": ("kimi-k2", {"experts": {"router_bias": False}}),
}  # fmt: skip
RECOMPUTE = ("full", "selective")

NOTES = (
    "What rows leave open is from the scripts of the repository: microbatches of one, no overlap of replicas, padded "
    "vocabularies, capacity factor 1.",
)


def cases(path: Path) -> Iterator[Case]:
    """Yield the rows of a file, with times in ms.

    Raises:
        InputError: the file is malformed.
    """
    for where, row in rows(path):
        yield _case(where, row, positive(where, row, "real_ms"))


def peaks(path: Path, what: str) -> Iterator[Case]:
    """Yield the rows of a file, with the most bytes that a rank has ``allocated`` or ``reserved``.

    Raises:
        InputError: the file is malformed.
    """
    each, largest = PEAKS[what]
    for where, row in rows(path):
        ranks = row.get("peak_memory_by_rank_mb") or {}
        if not isinstance(ranks, dict) or not all(isinstance(one, dict) for one in ranks.values()):
            raise InputError(f"{where}: peak_memory_by_rank_mb: expected an object of ranks")
        found = [positive(f"{where}: rank {rank}", one, each) for rank, one in ranks.items() if each in one]
        if found:
            yield _case(where, row, max(found) * 2**20)
        elif largest in row:
            yield _case(where, row, positive(where, row, largest) * GIB)
        else:
            yield _case(where, row, 1.0, f"neither {each} of ranks nor {largest}")


def rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield a label for errors and the keys of each row of a file: a list, or an object with a list of ``rows``.

    Raises:
        InputError: it is neither, or a row lacks a key.
    """
    try:
        found = parse_json(measured_text(path), path)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: is not JSON ({error})") from None
    found = found.get("rows") if isinstance(found, dict) else found
    if not isinstance(found, list) or not found:
        raise InputError(f"{path}: expected a list of rows, or an object with 'rows'")
    for number, row in enumerate(found):
        if not isinstance(row, dict):
            raise InputError(f"{path}: row {number}: expected an object")
        where = f"{path}: row {row.get('case', number)}"
        if lacking := [name for name in COLUMNS if name not in row]:
            raise InputError(f"{where}: no '{lacking[0]}', expected {', '.join(COLUMNS)}")
        yield where, row


_MOST = 1e300


def positive(where: str, row: Mapping[str, Any], key: str) -> float:
    """Return a number above 0.

    Raises:
        InputError: it is none.
    """
    value = row.get(key)
    # An integer may be beyond every float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MOST:
        raise InputError(f"{where}: {key}: got {value!r}, expected a number above 0")
    return float(value)


def _case(where: str, row: Mapping[str, Any], measured: float, reason: str = "") -> Case:
    name = str(row["case"])
    words = name.lower().split("_")
    axes = {axis: _axis(where, row, words, axis) for axis in ("tp", "cp", "pp", "ep", "dp")}
    tp, cp, pp, ep = (axes[axis] or 1 for axis in ("tp", "cp", "pp", "ep"))
    npus = tp * cp * pp * axes["dp"] if axes["dp"] else len(row.get("peak_memory_by_rank_mb") or ()) or NPUS
    layers, count = (_whole(where, row, key) for key in ("layer_num", "mbc"))
    # A copy of a model is not validated again.
    if layers > MOST_LAYERS:
        raise InputError(f"{where}: layer_num: got {layers}, expected at most {MOST_LAYERS:,}")
    virtual = _whole(where, row, "vp_size") if row.get("vp_size") is not None else 1
    model, unknown = _model(str(row["model"]), layers, tp)
    reason = reason or unknown
    if npus % (tp * cp * pp):
        reason = f"{npus} GPUs: expected a multiple of tp {tp} x cp {cp} x pp {pp}"
    if row.get("status", "ok") != "ok":
        reason = f"status {row['status']!r}, expected 'ok'"
    # Kernels run in the order in which Megatron-core issues them: one connection to the device.
    parallel: dict[str, Any] = {"tp": tp, "cp": cp, "pp": pp, "backward": "in-order"}
    if cp > 1:
        parallel["context"] = "all-to-all"
    if ep > 1 or (model is not None and model.experts):
        parallel |= {"ep": ep, "etp": 1}
    micro = _number(words, "mbs") or 1
    sequence = _number(words, "seq") or SEQUENCE
    replicas = max(1, npus // (tp * cp * pp))
    plan: dict[str, Any] = {
        "batch": replicas * micro * count,
        "microbatch": micro,
        "sequence": sequence,
        "parallel": parallel,
        "data": {"sharding": "zero-1", "overlap": False, "average": "kernel", "check": True, "clear": True},
        "numbers": {"compute": "fp8" if "fp8" in words else "bf16", "gradients": "fp32"},
        "recompute": next((kind for kind in RECOMPUTE if kind in words), "none"),
        "attention": "flash",
        "loss": "fused" if "cef" in words else "unfused",
        "causal": True,
    }
    if virtual > 1:
        plan["pipeline"] = {"schedule": "interleaved", "virtual": virtual}
    return Case(
        label=name,
        group=str(row["model"]),
        measured=measured,
        machine=MACHINE,
        npus=npus,
        model=None if reason else model,
        plan=plan,
        stack=STACK,
        reason=reason,
        facts={
            "model": str(row["model"]),
            "tp": str(tp),
            "cp": str(cp),
            "pp": str(pp),
            "sequence": str(sequence),
        },
    )


def _axis(where: str, row: Mapping[str, Any], words: list[str], axis: str) -> int | None:
    """Return the ranks along an axis, from a key of its own, the text of ``parallel``, or the name of the case."""
    if (key := f"{axis}_size") in row:
        return _whole(where, row, key)
    found = re.search(rf"(?<![a-z]){axis}(\d+)", str(row["parallel"]).lower())
    number = int(found[1]) if found else _number(words, axis)
    if number == 0:
        raise InputError(f"{where}: {axis}: got 0, expected at least 1")
    return number


def _number(words: list[str], prefix: str) -> int | None:
    """Return the number behind a prefix in the words of a name, such as 32768 of ``seq32768``."""
    found = [int(word[len(prefix) :]) for word in words if re.fullmatch(rf"{prefix}\d+", word)]
    return found[0] if found else None


def _whole(where: str, row: Mapping[str, Any], key: str) -> int:
    value = positive(where, row, key)
    if value != int(value):
        raise InputError(f"{where}: {key}: got {row[key]!r}, expected a whole number")
    return int(value)


def _model(name: str, layers: int, tp: int) -> tuple[Decoder | None, str]:
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    if plain not in MODELS:
        return None, f"no model '{name}', expected {one_of(MODELS)}"
    preset, other = MODELS[plain]
    model = load_model(preset)
    assert isinstance(model, Decoder)
    parts = {
        key: getattr(model, key).model_copy(update=value)
        for key, value in other.items()
        if isinstance(value, dict)
    }
    model = model.model_copy(update={**other, **parts, "layers": layers})
    # Megatron-LM drops what exceeds an expert's capacity and pads to it.
    if model.experts:
        experts = model.experts.model_copy(
            update={"capacity_factor": 1.0, "dense_first": min(model.experts.dense_first, layers)}
        )
        model = model.model_copy(update={"experts": experts})
    return model.model_copy(update={"vocabulary": padded(model.vocabulary, tp)}), ""
