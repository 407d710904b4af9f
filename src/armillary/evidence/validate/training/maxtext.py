"""Recipes of MaxText on TPUs (AI-Hypercomputer/tpu-recipes): one page for each measured run.

A recipe states a line of the log (seconds of a step, tokens per second of a device and per step) and the settings of
the run. ``steps.tsv`` lists recipes with their lines; a recipe's page alone is read by the line it states. Devices are
the tokens of a step over those of a device. Settings that a page leaves to MaxText have the defaults of its `base.yml`;
what a page only names is assumed: pure FSDP over the chips of a slice, replicas over slices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.markdown import MOST_ROWS, page_text, whole_text
from armillary.workload.models import load_model
from armillary.workload.models.schema import Decoder

COLUMNS = ("file", "seconds", "tokens_per_s_device", "tokens_per_step")
"""Of a list of recipes, between tabs."""
LOG = ("completed step", "seconds", "Tokens/s/device", "total_weights")
"""Of a line of the log."""
_LINE = re.compile(
    r"completed step: *\d+, *seconds: *([\d.]+).{0,200}?Tokens/s/device: *([\d.,]+)"
    r"(?:.{0,200}?total_weights: *([\d,]+))?"
)
MODELS = {
    "llama2-7b": "llama-2-7b", "llama2-13b": "llama-2-13b", "llama2-70b": "llama-2-70b", "llama3-8b": "llama-3-8b",
    "llama3-70b": "llama-3-70b", "llama3-405b": "llama-3-405b", "llama3.1-8b": "llama-3.1-8b",
    "llama3.1-70b": "llama-3.1-70b", "llama3.3-70b": "llama-3.1-70b", "llama3.1-405b": "llama-3-405b",
    "llama4-17b-16e": "llama-4-scout", "llama4-17b-128e": "llama-4-maverick", "gemma3-4b": "gemma-3-4b",
    "gemma3-12b": "gemma-3-12b", "gemma3-27b": "gemma-3-27b", "mixtral-8x7b": "mixtral-8x7b",
    "mixtral-8x22b": "mixtral-8x22b", "deepseek3-671b": "deepseek-v3", "gpt3-175b": "gpt-3-175b",
    "qwen3-30b-a3b": "qwen3-30b-a3b", "qwen3-235b-a22b": "qwen3-235b-a22b", "gpt-oss-120b": "gpt-oss-120b",
    "kimi-k2-1t": "kimi-k2",
}  # fmt: skip
"""MaxText's names of models."""
TPUS = {
    "tpu-v5p": r"v5p", "tpu-v6e": r"v6e|trillium", "tpu-v7": r"tpu7x|v7x|ironwood",
}  # fmt: skip
VOCABULARY = {"gpt3-175b": 50304}
"""Where MaxText pads it."""
MOST_DEVICES = 2**20
DEVICES_OF_CHIP = {"tpu-v7": 2}
"""Devices that JAX sees of a chip, where not one."""

NOTES = (
    "The step that a recipe's page states as what one should see.",
    "Results that are offloaded to the host cost nothing: copies overlap; norms after blocks (Gemma 3) are left out.",
)


def cases(path: Path) -> Iterator[Case]:
    """Yield the rows of a list of recipes, or the one of a recipe's page.

    Raises:
        InputError: the file, or a page that it lists, cannot be read or is too large; a row is malformed.
    """
    if path.suffix.lower() == ".md":
        yield _page(path)
        return
    lines = [(at, line) for at, line in enumerate(whole_text(path).splitlines(), 1) if line.strip()]
    lines = [(at, line) for at, line in lines if not line.startswith("#")]
    if len(lines) > MOST_ROWS:
        raise InputError(f"{path}: more than {MOST_ROWS:,} rows")
    header = [cell.strip() for cell in lines[0][1].split("\t")] if lines else []
    lacking = [name for name in COLUMNS if name not in header]
    if lacking:
        raise InputError(f"{path}: no column '{lacking[0]}', expected {', '.join(COLUMNS)} between tabs")
    for at, line in lines[1:]:
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != len(header):
            raise InputError(f"{path}:{at}: {len(cells)} cells, expected {len(header)} as in the header")
        yield _row(path, at, dict(zip(header, cells, strict=True)))


def _page(path: Path) -> Case:
    text = page_text(path)
    found = _LINE.search(text)
    if not found:
        raise InputError(
            f"{path}: states no step time, expected a line 'completed step: 15, seconds: 17.182, …'"
        )
    try:
        seconds, rate, total = (float(each.replace(",", "")) if each else 0.0 for each in found.groups())
    except ValueError:
        seconds = rate = total = 0.0
    if not seconds * rate > 0:
        raise InputError(f"{path}: got '{found[0][:60]}', expected seconds and Tokens/s/device above 0")
    return _case(path, "/".join(path.parts[-4:-1]) or path.name, text, seconds, rate, total)


def _row(path: Path, at: int, row: Mapping[str, str]) -> Case:
    values = []
    for name in COLUMNS[1:]:
        try:
            value = float(row[name].replace(",", ""))
        except ValueError:
            value = float("nan")
        if not 0 < value < float("inf"):
            raise InputError(f"{path}:{at}: {name}: got '{row[name]}', expected a number above 0")
        values.append(value)
    page = _inside(path.parent, row["file"])
    if page is None or not page.is_file():
        return _refused(
            row["file"], values[0], f"no page '{row['file']}' beside the list, which has the settings"
        )
    return _case(path, row["file"], page_text(page), *values)


def _inside(folder: Path, name: str) -> Path | None:
    """Return a file below a folder; None: it would lie outside, or no file can have that name."""
    if "\0" in name:
        return None
    page = (folder / name).resolve()
    return page if page.is_relative_to(folder.resolve()) else None


def _refused(label: str, seconds: float, reason: str) -> Case:
    return Case(label, "refused", seconds * 1e3, "", 0, None, {}, "maxtext", reason=reason)


class _Settings:
    """The settings of a page: ``"name": value`` of MaxText's benchmarks, or ``name=value`` of its command line."""

    def __init__(self, text: str) -> None:
        self.values: dict[str, str] = {}
        for name, value in re.findall(
            r"[\"']?\b([a-z][a-z0-9_]*)[\"']?\s*[:=]\s*[\"']?([\w.+-]+)[\"']?", text
        ):
            # The first statement counts: later ones are of other variants.
            self.values.setdefault(name, value)

    def text(self, name: str, default: str) -> str:
        return self.values.get(name, default)

    def number(self, name: str, default: float) -> float:
        try:
            value = float(self.values.get(name, default))
        except ValueError:
            return default
        # No setting is as large; whole numbers of this size are exact.
        return value if abs(value) < 2**31 else default

    def axis(self, name: str, default: int = 1) -> int:
        """Return the size of an axis; -1: what the others leave."""
        return int(self.number(name, default))


def _case(path: Path, label: str, text: str, seconds: float, rate: float, total: float) -> Case:
    settings, assumed = _Settings(text), list[str]()
    title = f"{label}\n{text[:300]}"
    kind = settings.text("model_type", "") or (
        settings.text("model_name", "") if "base_emb_dim" not in text else ""
    )
    name = next((each for each in sorted(MODELS, key=len, reverse=True) if each in (kind, kind.lower())), "")
    name = name or _named(title)
    if not name:
        return _refused(label, seconds, f"no model '{kind}', expected {', '.join(MODELS)}")
    tpu = next((each for each, words in TPUS.items() if re.search(words, title, re.IGNORECASE)), "")
    tpu = tpu or next((each for each, words in TPUS.items() if re.search(words, text, re.IGNORECASE)), "")
    if not tpu:
        return _refused(label, seconds, f"no TPU is named, expected {', '.join(TPUS)}")
    if not total > 0:
        return _refused(label, seconds, "no tokens of a step (total_weights), from which the devices follow")
    each = rate * seconds
    ratio = total / each if each else inf
    devices = round(ratio) if ratio < inf else 0
    if devices < 1 or abs(devices / ratio - 1) > 0.003:
        return _refused(
            label,
            seconds,
            f"{total:.0f} tokens of a step over {each:.0f} of a device are {ratio:.2f} devices",
        )
    if devices > MOST_DEVICES:
        return _refused(label, seconds, f"{devices:.3g} devices, expected at most {MOST_DEVICES:,}")
    sequence = int(settings.number("max_target_length", 0))
    stated = "per_device_batch_size" in settings.values
    if sequence < 1:
        sequence = 2048 if stated else 8192
        assumed.append(f"sequences of {sequence:,} tokens" + (", MaxText's default" if stated else ""))
    per_device = total / devices / sequence
    chips = DEVICES_OF_CHIP.get(tpu, 1)
    if stated and abs(settings.number("per_device_batch_size", 0) - per_device) > 0.01:
        said = settings.values["per_device_batch_size"]
        assumed.append(
            f"{per_device:g} samples of a device, as the log counts tokens; the settings say {said}"
        )
    slices = max(1, int(settings.number("num_slices", 1)))
    if devices % slices:
        return _refused(label, seconds, f"{devices} devices in {slices} slices, expected a multiple")
    axes = _axes(settings, devices, slices)
    if isinstance(axes, str):
        return _refused(label, seconds, axes)
    if not stated:
        assumed.append("FSDP over all chips and recomputed blocks: the page names its configuration only")
    batch = round(per_device * devices)
    # JAX sees several devices of a chip, which share a copy: as ranks of tp, or as one rank of FSDP.
    if devices % chips or axes["tp"] % min(chips, axes["tp"]):
        return _refused(label, seconds, f"{devices} devices of {chips} to a chip, expected a multiple")
    devices //= chips
    if axes["tp"] > 1:
        axes["tp"] //= chips
    replicas = devices // (axes["tp"] * axes["pp"] * axes["cp"])
    pieces = max(1, int(settings.number("gradient_accumulation_steps", 1)))
    if axes["pp"] > 1:
        pieces *= max(1, int(settings.number("num_pipeline_microbatches", axes["pp"])))
    if not replicas or not batch or batch % (replicas * pieces):
        return _refused(
            label, seconds, f"{batch} samples on {replicas} replicas in {pieces} microbatches: not whole"
        )
    precision = settings.text("quantization", "")
    if precision not in ("", *QUANTIZED):
        return _refused(
            label, seconds, f"quantization '{precision}', expected {', '.join(QUANTIZED)} or none"
        )
    if precision == "int8":
        assumed.append("int8 costs what fp8 does")
    model = _model(name, sequence, settings)
    plan: dict[str, Any] = {
        "batch": batch,
        "microbatch": batch // (replicas * pieces),
        "sequence": sequence,
        "parallel": {key: axes[key] for key in ("tp", "pp", "cp")},
        "data": _data(axes, replicas),
        "numbers": {"compute": "fp8" if precision else "bf16", "gradients": "bf16"},
        **_recompute(settings, assumed),
        "attention": "flash",
        "causal": True,
    }
    if axes["cp"] > 1:
        plan["parallel"]["context"] = "all-gather"
    if model.experts:
        plan["parallel"] |= {"ep": axes["ep"], "etp": axes["tp"]}
    return Case(
        label=label,
        group=tpu,
        measured=seconds * 1e3,
        machine=tpu,
        npus=devices,
        model=model,
        plan=plan,
        stack="maxtext",
        facts={"model": name, "GPUs": str(devices), "device": tpu, "precision": precision or "bf16"},
        assumed=tuple(assumed),
    )


NAMED = {
    "query_proj": ("q",), "key_proj": ("k",), "value_proj": ("v",), "qkv_proj": ("q", "k", "v"), "out_proj": ("out",),
    "context": ("attention",), "mlpwi_0": ("gate",), "mlpwi_1": ("up",), "mlpwi": ("gate", "up"), "mlpwo": ("down",),
}  # fmt: skip
"""Names of checkpoints in MaxText -> what ``keep`` of a plan calls them."""
_QKV, _MLP = ("q", "k", "v"), ("gate", "up", "down")
POLICIES: dict[str, tuple[str, ...]] = {
    "full": (), "minimal": (*_QKV, "out", *_MLP), "minimal_offloaded": (*_QKV, "out", *_MLP),
    "minimal_with_context": (*_QKV, "out", "attention", *_MLP), "minimal_flash": (*_QKV, "out", "attention", *_MLP),
    "qkv_proj_offloaded": _QKV, "save_qkv_proj": _QKV, "save_out_proj": ("out",),
    "save_dot_except_mlp": (*_QKV, "out"), "save_dot_except_mlpwi": (*_QKV, "out", "down"),
    "save_dot_with_context_except_mlp": (*_QKV, "out", "attention"),
}  # fmt: skip
"""Remat policies of MaxText (src/MaxText/layers/decoders.py) and what they keep."""
QUANTIZED = ("int8", "fp8", "fp8_full", "qwix_fp8")


def _named(title: str) -> str:
    """Return the model that a title or folder names: ``Llama3.1-70B-MaxText``."""
    plain = re.sub(r"[^a-z0-9.]", "", title.lower())
    found = {re.sub(r"[^a-z0-9.]", "", name): name for name in MODELS}
    found |= {
        "llama417b16e": "llama4-17b-16e",
        "llama4scout": "llama4-17b-16e",
        "llama4maverick": "llama4-17b-128e",
    }
    return next((found[each] for each in sorted(found, key=len, reverse=True) if each in plain), "")


def _model(name: str, sequence: int, settings: _Settings) -> Decoder:
    model = load_model(MODELS[name])
    assert isinstance(model, Decoder)
    changes: dict[str, Any] = {"context": max(model.context, sequence)}
    if name in VOCABULARY:
        changes["vocabulary"] = VOCABULARY[name]
    if model.learned_positions is not None:
        changes["learned_positions"] = max(model.learned_positions, sequence)
    factor = settings.number("capacity_factor", -1)
    if model.experts and factor > 0 and settings.text("sparse_matmul", "True") == "False":
        # Tokens beyond an expert's capacity are dropped, and missing ones padded.
        changes["experts"] = model.experts.model_copy(update={"capacity_factor": factor})
    return model.model_copy(update=changes)


def _axes(settings: _Settings, devices: int, slices: int) -> dict[str, int] | str:
    """Return sizes of tp, pp, cp, ep, and of shard: ranks that share a copy; text: why they do not fit."""
    names = ("data", "fsdp", "fsdp_transpose", "tensor", "tensor_transpose", "tensor_sequence", "sequence", "context",
             "context_autoregressive", "expert", "pipeline", "autoregressive")  # fmt: skip
    found: dict[str, dict[str, int]] = {}
    for level, size, free in (("ici", devices // slices, "fsdp"), ("dcn", slices, "data")):
        sizes = {
            name: settings.axis(f"{level}_{name}_parallelism", -1 if name == free else 1) for name in names
        }
        # Defaults of base.yml have -1 for one axis; a page that gives another -1 takes it from that one.
        wild = [name for name, value in sizes.items() if value == -1]
        given = [name for name in wild if f"{level}_{name}_parallelism" in settings.values]
        for name in wild:
            sizes[name] = 1
        known = 1
        for value in sizes.values():
            if value < 1:
                return f"{level} axes {sizes}: expected sizes of at least 1, or -1"
            known *= value
        if size % known:
            return f"{level} axes of {known} devices, expected a divisor of {size}"
        if rest := (given or wild):
            sizes[rest[0]] = size // known
        elif known != size:
            return f"{level} axes of {known} devices, expected {size}"
        found[level] = sizes
    ici, dcn = found["ici"], found["dcn"]

    def both(*chosen: str) -> int:
        product = 1
        for name in chosen:
            product *= ici[name] * dcn[name]
        return product

    return {
        "tp": both("tensor", "tensor_transpose", "tensor_sequence", "autoregressive"),
        "pp": both("pipeline"),
        "cp": both("sequence", "context", "context_autoregressive"),
        "ep": both("expert"),
        "copies": both("data"),
    }


def _data(axes: Mapping[str, int], replicas: int) -> dict[str, Any]:
    """Return how replicas share weights: all of them, those of a slice, or none."""
    copies = axes["copies"]
    if copies == 1:
        return {"sharding": "fsdp"}
    if copies == replicas:
        return {"sharding": "ddp"}
    return {"sharding": "hsdp", "shard": replicas // copies}


def _recompute(settings: _Settings, assumed: list[str]) -> dict[str, Any]:
    policy = settings.text("remat_policy", "full")
    if policy == "custom":
        # Names that a page gives to the device or, offloaded, to the host; all others are computed again.
        named = [names for name, names in NAMED.items() if settings.text(name, "") in ("device", "offload")]
        kept = {each for names in named for each in names}
    else:
        kept = set(POLICIES.get(policy, ()))
        if policy not in POLICIES:
            assumed.append(f"remat policy {policy} is taken for full")
    return {"recompute": "full", "early_stop": True, **({"keep": sorted(kept)} if kept else {})}
