"""Tables of torchtitan (pytorch/torchtitan, benchmarks and docs/performance.md): Markdown, tokens/s of a GPU.

A table says some of what it measured in its cells, some in the paragraph above it, some under its heading, and leaves
the rest to the defaults of torchtitan's `train_configs`. Facts are looked for in that order; what is nowhere is assumed
and said (`Case.assumed`). Gradients are reduced in fp32, parameters gathered in bf16, blocks checkpointed without
reentry; under pipeline parallelism gathered weights stay and there are as many microbatches as stages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.markdown import TableText, tables
from armillary.workload.models import load_model
from armillary.workload.models.schema import Decoder

COLUMNS = (("TPS/GPU",), ("WPS",), ("TPS",))
"""A page has a table with one of these columns."""
_RATE = re.compile(
    r"(tps|wps|tok(en)?s\s*(/|per)\s*s(ec(ond)?)?)(\s*(/|per)\s*(gpu|device))?(\s*\(.*\))?", re.IGNORECASE
)
MODELS = {
    ("2", "7"): "llama-2-7b", ("2", "13"): "llama-2-13b", ("2", "70"): "llama-2-70b",
    ("3", "8"): "llama-3-8b", ("3", "70"): "llama-3-70b", ("3", "405"): "llama-3-405b",
}  # fmt: skip
"""By generation of Llama and size; 3.1, 3.2 and 3.3 have the layers of 3."""
SEQUENCES = {"2": 4096, "3": 8192}
"""Default length of torchtitan's configurations of that generation."""
NARROW = re.compile(r"grand teton|hbm2e|9[456] ?gb", re.IGNORECASE)
"""Words of pages whose H100 are those of Grand Teton: 96 GB of HBM2e, 500 W."""
MACHINES_OF = {
    "A100": "roce-a100-80", "H100": "dgx-h100", "H200": "dgx-h200", "B200": "dgx-b200", "GB200": "nvl72-gb200",
    "B300": "dgx-b300", "GB300": "nvl72-gb300",
}  # fmt: skip

MOST = 2**20
"""GPUs of a run, at most."""
NOTES = (
    "Throughput of one moment (step 90 or 100), of a GPU; memory is not compared.",
    "Attention is the fused kernel of PyTorch (scaled_dot_product_attention).",
)


def cases(path: Path) -> Iterator[Case]:
    """Yield the rows of the tables of a page that have a column of throughput.

    Raises:
        InputError: the page cannot be read, is too large, or has no such table.
    """
    found = False
    for table in tables(path):
        rate = next((name for name in table.header if _RATE.fullmatch(_plain(name))), None)
        if rate is None:
            continue
        found = True
        for line, cells in table.rows:
            yield _case(path, line, table, dict(zip(table.header, cells, strict=True)), rate)
    if not found:
        raise InputError(f"{path}: no table with throughput, expected a column TPS/GPU, TPS or WPS")


@lru_cache(256)
def _searched(pattern: str, text: str) -> re.Match[str] | None:
    # All rows of a table look at the same text around it.
    return re.search(pattern, text, re.IGNORECASE)


@dataclass
class _Facts:
    """What a row says, from its cells outwards."""

    cells: Mapping[str, str]
    table: TableText
    assumed: list[str] = field(default_factory=list)

    @property
    def near(self) -> str:
        """Cells that are no numbers, caption and heading."""
        words = [text for text in self.cells.values() if not re.fullmatch(r"[\d.,%\s]*", text)]
        return " ; ".join([*words, self.table.caption, self.table.section.split("\n", 1)[0]])

    def column(self, pattern: str) -> str | None:
        """Return the cell of the first column with such a name."""
        for name, text in self.cells.items():
            if re.fullmatch(pattern, _plain(name), re.IGNORECASE):
                return _plain(text) or None
        return None

    def places(self) -> Iterator[str]:
        """Yield texts from the nearest to the farthest."""
        yield self.near
        yield self.table.section
        yield self.table.page

    def search(self, pattern: str, *, page: bool = False) -> str | None:
        """Return the first group of the nearest match."""
        for text in list(self.places())[: 3 if page else 2]:
            if found := _searched(pattern, text):
                return found[1]
        return None

    def setting(self, *names: str) -> str | None:
        """Return a setting of torchtitan: a flag or a line of a configuration."""
        for name in names:
            if found := self.search(rf"\b{name}\"?\s*[= :]\s*[\"']?([\w.-]+)", page=True):
                return found
        return None

    def count(self, columns: str, *patterns: str, settings: tuple[str, ...] = ()) -> int | None:
        """Return a whole number of a column, of a text, or of a setting."""
        text = self.column(columns)
        for pattern in patterns:
            text = text or self.search(pattern)
        text = text or (self.setting(*settings) if settings else None)
        digits = re.match(r"[\d,]+", text or "")
        return int(digits[0].replace(",", "")) or None if digits else None


def _plain(text: str) -> str:
    """Return a cell without footnotes and marks."""
    return re.sub(r"\[\^[^\]]{0,99}\]|[*`]", "", text).strip()


def _number(text: str) -> float:
    found = re.match(r"[\d,]*\.?\d+", _plain(text))
    value = float(found[0].replace(",", "")) if found else 0.0
    return value if value > 0 else float("nan")


class _UnknownError(Exception):
    """A row that cannot be described, with the reason."""


def _case(path: Path, line: int, table: TableText, cells: dict[str, str], rate: str) -> Case:
    facts = _Facts(cells, table)
    measured = _number(cells[rate])
    words = [
        _plain(text)
        for name, text in cells.items()
        if name != rate and not name.lower().startswith(("memory", "mfu"))
    ]
    said = ", ".join(each for each in words if each)
    try:
        if not measured > 0:
            raise _UnknownError(f"{rate}: got '{cells[rate]}', expected a number above 0")
        return _described(facts, said, measured)
    except _UnknownError as unknown:
        label = f"{path.name}:{line} {said}"
        return Case(label, "refused", measured, "", 0, None, {}, "torchtitan", reason=str(unknown))


def _described(facts: _Facts, said: str, measured: float) -> Case:
    generation, size, model = _model(facts)
    device, machine = _machine(facts)
    npus = _npus(facts)
    axes = _axes(facts, npus)
    sequence = facts.count(
        r"seq(uence)?[ _]?(len(gth)?)?",
        r"seq(?:uence)?[ _]?len(?:gth)?\s*(?:of|=|:)?\s*([\d,]+)",
        settings=("seq_len",),
    )
    if sequence is None:
        sequence = SEQUENCES[generation]
        facts.assumed.append(f"sequences of {sequence:,} tokens, torchtitan's default for Llama {generation}")
    local, batch = _batch(facts, axes["dp"])
    near = facts.near
    compiled = bool(re.search(r"compile", near, re.IGNORECASE))
    fp8 = bool(re.search(r"float8|fp8", near, re.IGNORECASE))
    if fp8 and not compiled:
        facts.assumed.append("torch.compile where Float8 is on: without it Float8 is not faster")
        compiled = True
    elif not compiled and "compile" not in facts.table.page.lower():
        facts.assumed.append("no torch.compile, which was off by default")
    recompute = _recompute(facts)
    parallel: dict[str, Any] = {"tp": axes["tp"], "pp": axes["pp"], "cp": axes["cp"]}
    if axes["tp"] > 1 and re.search(r"async[- ]?tp|async[- ]?tensor", near, re.IGNORECASE):
        parallel["overlap"] = True
    if axes["cp"] > 1:
        parallel["context"] = "all-gather-steps"
        facts.assumed.append("context parallelism gathers keys and values, torchtitan's default")
    plan: dict[str, Any] = {
        "batch": batch,
        "microbatch": local,
        "sequence": sequence,
        "parallel": parallel,
        # Under pipeline parallelism gathered weights stay until the end of the step.
        "data": {"sharding": "fsdp", "reshard": axes["pp"] == 1, "copies": True},
        "numbers": {"compute": "fp8" if fp8 else "bf16", "gradients": "fp32"},
        **recompute,
        "compiled": compiled,
        "early_stop": True,
        # Models have a linear layer for each of queries, keys, values, gate and up; nothing compiles the loss.
        "projections": "separate",
        "loss": "eager",
        "attention": "flash",
        "causal": True,
    }
    if axes["pp"] > 1:
        pieces = min(axes["pp"], local)
        if local % pieces:
            raise _UnknownError(
                f"local batch {local}: expected a multiple of {pieces} microbatches, one for each stage"
            )
        plan["microbatch"] = local // pieces
        plan["pipeline"] = _pipeline(facts, near, model, axes["pp"])
        facts.assumed.append("as many microbatches as pipeline stages, torchtitan's default")
    return Case(
        # Without the number of a line: a row is the same wherever it stands.
        label=f"Llama {generation} {size}B {device} x{npus} s{sequence}: {said}",
        group=f"Llama {generation} {size}B {device}" + (" fp8" if fp8 else ""),
        measured=measured,
        machine=machine,
        npus=npus,
        model=model.model_copy(update={"context": max(model.context, sequence)}),
        plan=plan,
        stack="torchtitan",
        amount=batch * sequence / npus,
        facts={
            "model": f"{generation} {size}B", "GPUs": str(npus), "device": device,
            "precision": "fp8" if fp8 else "bf16", "compiled": "yes" if compiled else "no",
        },
        assumed=tuple(facts.assumed),
    )  # fmt: skip


def _model(facts: _Facts) -> tuple[str, str, Decoder]:
    whole = r"llama[ -]*(\d)(?:\.\d)?[ -]*(\d+)b"
    column = facts.column(r"models?([ _]?(size|name))?") or ""
    for text in (column, *facts.places()):
        if found := re.search(whole, text, re.IGNORECASE):
            generation, size = found.groups()
            break
    else:
        generation, size = "", ""
    # A column of sizes, with the generation in the text.
    if alone := re.fullmatch(r"(\d+)\s*b", column, re.IGNORECASE):
        size, generation = alone[1], facts.search(r"llama[ -]*(\d)", page=True) or ""
    if (generation, size) not in MODELS:
        said = column or (f"Llama {generation} {size}B" if generation else facts.table.caption[:60])
        raise _UnknownError(f"no model '{said}', expected Llama {', '.join(f'{a} {b}B' for a, b in MODELS)}")
    model = load_model(MODELS[generation, size])
    assert isinstance(model, Decoder)
    return generation, size, model


def _machine(facts: _Facts) -> tuple[str, str]:
    names = "|".join(sorted(MACHINES_OF, key=len, reverse=True))
    text = facts.column(r"(gpu|device|hardware)( type)?") or ""
    found = re.search(rf"({names})", text) or re.search(rf"\b({names})s?\b", facts.table.caption)
    name = found[1] if found else facts.search(rf"\b({names})s?\b", page=True)
    if name is None:
        raise _UnknownError(f"no GPU is named, expected {', '.join(MACHINES_OF)}")
    name = name.upper()
    if name == "H100" and NARROW.search(facts.table.page):
        facts.assumed.append(
            "H100 of Grand Teton: 96 GB of HBM2e at 2.4 TB/s, limited to 500 W, 400 Gb/s of RDMA"
        )
        return "H100", "grand-teton-h100-96"
    if name == "A100":
        facts.assumed.append("A100 nodes with 200 Gb/s for each GPU")
    return name, MACHINES_OF[name]


def _npus(facts: _Facts) -> int:
    devices = "|".join(MACHINES_OF)
    npus = facts.count(
        r"#? ?(gpus?|devices?|world ?size)(/hosts)?",
        rf"(\d[\d,]*)\s*(?:x\s*)?(?:NVIDIA\s+)?(?:(?:{devices})s?\b|GPUs)",
        settings=("ngpu", "world_size"),
    )
    if npus is None:
        raise _UnknownError("the number of GPUs is not said, expected it in a column or above the table")
    if npus > MOST:
        raise _UnknownError(f"{npus} GPUs, expected at most {MOST:,}")
    return npus


def _axes(facts: _Facts, npus: int) -> dict[str, int]:
    """Return the sizes of fsdp (as dp), tp, pp and cp, whose product is the number of GPUs."""
    degree = r"(?:\s+(?:ranks?|degree|size|of))*\s*[:=]?\s*(\d+)\b"
    settings = {
        "tp": "tensor_parallel_degree", "pp": "pipeline_parallel_degree", "cp": "context_parallel_degree",
    }  # fmt: skip
    found = {
        name: facts.count(name, rf"\b{name}{degree}", settings=(settings[name],))
        for name in ("tp", "pp", "cp")
    }
    if facts.search(r"\b(HSDP)\b") or re.search(r"\bDDP\b", facts.near):
        raise _UnknownError("HSDP and DDP: the table does not say how many ranks share a copy")
    # FSDP2 is a name, not two ranks.
    dp = facts.count(r"fsdp|dp", rf"\b(?:FSDP|DP)(?!2\b){degree}", settings=("data_parallel_shard_degree",))
    pp, cp = found["pp"] or 1, found["cp"] or 1
    tp = found["tp"]
    if tp is None:
        tp = npus // (dp * pp * cp) if dp and npus % (dp * pp * cp) == 0 else 1
    dp = dp or npus // (tp * pp * cp)
    if dp * tp * pp * cp != npus:
        raise _UnknownError(
            f"fsdp {dp} x tp {tp} x pp {pp} x cp {cp} = {dp * tp * pp * cp}, expected {npus} GPUs"
        )
    return {"dp": dp, "tp": tp, "pp": pp, "cp": cp}


def _batch(facts: _Facts, dp: int) -> tuple[int, int]:
    """Return the local and the global batch."""
    local = facts.count(
        r"(local )?(batch|bs)( size)?( ?/ ?gpu)?", r"local batch size\s*(?:of|=|:)?\s*(\d+)", r"\bbs\s*=?\s*(\d+)",
        settings=("local_batch_size", "batch_size"),
    )  # fmt: skip
    said = re.search(r"global batch size\s*(?:of|=|:)?\s*([\d,]+)", facts.near, re.IGNORECASE)
    total = int(said[1].replace(",", "")) if said else None
    if local is None and total is None:
        raise _UnknownError(
            "the batch is not said, expected a column 'Batch size' or 'local batch size' above the table"
        )
    local = local or max(1, (total or 0) // dp)
    if total is not None and total != local * dp:
        raise _UnknownError(
            f"local batch {local} x {dp} ranks = {local * dp}, expected the global batch {total}"
        )
    return local, local * dp


def _recompute(facts: _Facts) -> dict[str, Any]:
    text = facts.column(r"(activation )?(checkpointing|recompute|ac)( mode)?")
    text = text or facts.search(r"((?:no|full|selective(?: op| layer)?) (?:activation checkpointing|AC)\b)")
    text = (text or facts.setting("activation_checkpoint.mode") or "").lower()
    if not text:
        facts.assumed.append("selective activation checkpointing by operations, the default of Llama 3 8B")
        text = "selective"
    if text.startswith(("no", "off", "false", "-")):
        return {"recompute": "none"}
    if text.startswith("full"):
        return {"recompute": "full"}
    if "selective" not in text and text not in ("op", "layer"):
        raise _UnknownError(
            f"activation checkpointing '{text}', expected none, full, selective op or selective layer"
        )
    if "layer" in text:
        facts.assumed.append("selective layer: every second layer is recomputed whole")
        return {"recompute": "full", "recompute_every": 2}
    # It keeps attention, and of the projections q, k, v, out, gate, up every other (torchtitan, parallelize_llama.py).
    return {"recompute": "full", "keep": ["q", "v", "attention", "gate"]}


def _pipeline(facts: _Facts, near: str, model: Decoder, pp: int) -> dict[str, Any]:
    said = facts.column(r"(pp )?schedule") or near
    if re.search(r"zero[- ]?bubble|ZBV|DualPipe", said, re.IGNORECASE):
        return {"schedule": "zero-bubble"}
    if re.search(r"gpipe", said, re.IGNORECASE):
        return {"schedule": "gpipe"}
    if not re.search(r"interleaved", said, re.IGNORECASE):
        return {"schedule": "1f1b"}
    facts.assumed.append("two virtual stages of each rank where stages are interleaved")
    return {"schedule": "interleaved", "virtual": 2}
