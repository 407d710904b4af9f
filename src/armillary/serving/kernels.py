"""Kernels of inference engines where they differ from those of training, with constants fitted to measured kernels.

``kernels.yaml`` has the constants of each device and engine. An all-reduce of a node is one kernel that reads what all
members have (one-shot), or first sums a share (two-shot); attention of one new token reads the cache in parts that fill
the device; routed experts are one fused kernel whose time is that of the weights it touches; linear attention is two,
which convolve and pass states. GEMMs are those of `armillary.compute.gpu.gemm`, with the kernels that the engine
chooses (`armillary.serving.chosen`), and what quantises their operands.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base import portable
from armillary.base.document import read_document
from armillary.base.errors import InputError, nearest, one_of
from armillary.compute.gpu.device import Gpu, load_gpu
from armillary.compute.gpu.gemm import gemm_seconds
from armillary.compute.model import Floats
from armillary.serving.chosen import Chosen, chosen
from armillary.serving.routed import Routed
from armillary.trace.attention import Attention
from armillary.workload.layers.layer import Step
from armillary.workload.layers.sparse import PROBE

FILE = Path(__file__).with_name("kernels.yaml")
ENGINES = ("vllm", "sglang", "trtllm")
EXPERTS = {"bf16": 16, "fp8": 8, "fp8 block": 8, "fp4": 4.5, "mxfp4": 4.25, "int4": 4.25}
"""Kind of stored experts -> bits of a weight with its share of scales, in groups of 16 (fp4), 32, or 64 (int4)."""
PEAKS = {"bf16": "bf16", "fp8": "fp8", "fp8 block": "fp8", "fp4": "fp4", "mxfp4": "bf16", "int4": "bf16"}
"""Kind of stored experts -> precision of their GEMMs."""
RECIPES = {"fp8": "delayed", "fp8 block": "block", "fp4": "nvfp4", "bf16": ""}
STEP_NS = 126_000, 4_420
"""ns of a step besides its kernels, and more for each sequence that gets a token: what BLIS found of vLLM on H100
(inference-sim, defaults.yaml), taken for all engines."""
INGEST_NS, TOKEN_PS = {"vllm": 12_000_000, "sglang": 6_000_000, "trtllm": 6_000_000}, 4_200_000
"""ns from the arrival of a request until it is queued, and ps more for each token of its prompt, which the front end
splits and sends: what kernels left of the time to first token of gpt-oss on vLLM with 4 clients, at prompts of 922 and
7,373 tokens (silicon_sample.csv). Of vLLM that is 13 ms now, and 5 ms of dense models on H100 under open loads
(sim_to_real). BLIS found 15.6 ms, but has no step that is scheduled while another runs, for which requests wait."""
TILE = 64
"""Heads that kernels of attention over chosen keys compute at least: from 8 to 64 they take the same (dsa tables)."""
ROWS, NARROW = 128, 128
"""Queries of a tile of attention of prompts, and elements of the heads that its kernels are tuned for."""
MANY = 16
"""Experts of a layer from which on kernels are those of many. Tables have 8, then 128 and more, and a few rows of 16:
with constants of 8 and of many bf16 is 7 and 8 % off on these, fp8 of blocks 12 and 5 %."""
FEW = 64
"""Tokens up to which kernels of experts have low tiles (Triton's of vLLM: 16 rows, then 64)."""
US = 1e3
Constants = Mapping[str, float]


@dataclass(frozen=True)
class Kernels:
    """Kernels of an engine on a device.

    Attributes:
        gpu: The device.
        engine: Of `ENGINES`.
        parts: Part -> kind -> constants.
        link: Bytes/s to the other devices of its node; 0: the replica leaves the node, and collectives are simulated.
        blocks: Whether operands in fp8 have scales of 1 x 128 and 128 x 128.
        routed: Its experts; None: it has none.
        like: The device whose constants these are.
        least: us of the smallest kernels in a graph.
        chosen: Kind of GEMM -> which of their kernels its engine chooses.
        cache: Precision of keys and values, ``bf16`` or ``fp8``.
        drafts: Tokens behind the last one of a sequence that decodes.
    """

    gpu: Gpu
    engine: str
    parts: Mapping[str, Mapping[str, Constants]]
    link: float
    blocks: bool
    routed: Routed | None
    like: str
    least: float
    chosen: Mapping[str, Chosen | None]
    cache: str = "bf16"
    drafts: int = 0

    @property
    def measured(self) -> bool:
        """Whether they were measured on this device, not on one like it."""
        return self.like == self.gpu.name

    def reduce_ns(self, size: float, members: int) -> float:
        """Return ns of an all-reduce of `size` bytes: the sooner of one shot and two."""
        own = self.parts["reduce"]["all"]
        once = own["launch"] + (members - 1) * size / (self.link * own["once"]) * 1e6
        moved = 2 * (members - 1) / members * size / (self.link * own["twice"]) * 1e6
        return float(US * min(once, own["launch"] + own["second"] + moved))

    def gather_ns(self, size: float, members: int) -> float:
        """Return ns in which each member gets what all have, `size` bytes in total, or a sum of its share of them.

        No table of engines has these: a two-shot all-reduce is one of each, and this is its half.
        """
        own = self.parts["reduce"]["all"]
        moved = (members - 1) / members * size / (self.link * own["twice"]) * 1e6
        return float(US * (own["launch"] + moved))

    def decode_ns(self, rows: float, size: float, keys: int, kind: str = "bf16") -> float:
        """Return ns of attention of one new token of each sequence, and of drafts behind it.

        Args:
            rows: Sequences times heads and tokens of queries.
            size: Bytes of the cache that are read.
            keys: Tokens before each.
            kind: Precision of the cache, ``bf16`` or ``fp8``.
        """
        kinds = self.parts["decode"]
        own = kinds.get(kind) or next(iter(kinds.values()))
        return US * (
            own["launch"]
            + own["split"] * keys / (keys + own["knee"])
            + own["head"] * rows / self.gpu.sms
            + size / (self.gpu.bandwidth * own["memory"]) * 1e6
        )

    def latent_ns(self, flops: float, size: float, heads: int) -> float:
        """Return ns of attention of one new token of each sequence in the latent space (MLA), of so many heads."""
        kinds = self.parts["latent"]
        own = kinds.get(self.cache) or next(iter(kinds.values()))
        moved = size / (self.gpu.bandwidth * own["memory"]) * 1e6
        computed = flops * max(1.0, own["tile"] / heads) / (self.gpu.peaks["bf16"] * own["rate"]) * 1e6
        return US * (own["launch"] + portable.hypot(moved, computed))

    def sparse_ns(self, attend: Step, score: Step, top: Step, heads: int) -> float:
        """Return ns of choosing keys by a small attention, and of attention in the latent space over those (DSA).

        Args:
            attend: Attention over the keys that were chosen.
            score: The small attention over all keys.
            top: What chooses.
            heads: Of `attend` on this device; kernels have tiles of `TILE`.
        """
        own = self.parts["sparse" if score.name.endswith(PROBE) else "sparse prompt"][self.cache]
        moved = attend.bytes / (self.gpu.bandwidth * own["memory"])
        computed = attend.flops * max(heads, TILE) / heads / (self.gpu.peaks["bf16"] * own["rate"])
        scored = score.bytes / (self.gpu.bandwidth * own["read"])
        scored += score.flops / (self.gpu.peaks["fp8"] * own["score"])
        chosen = top.bytes / (self.gpu.bandwidth * own["top"])
        return US * (own["launch"] + 1e6 * (portable.hypot(moved, computed) + scored + chosen))

    def prompt_ns(self, shape: Attention, flops: float) -> float:
        """Return ns of attention of new tokens of prompts, with what a kernel of the engine does besides.

        Args:
            shape: The attention; keys wider than values are those of latent attention, expanded.
            flops: Of the scores that the mask keeps.
        """
        kinds = self.parts["prompt latent" if shape.key > shape.value else "prompt"]
        own = kinds.get(self.cache) or next(iter(kinds.values()))
        queries, keys, width = shape.queries, shape.keys, shape.key + shape.value
        pairs, heads = shape.pairs(int(flops)), shape.batch * shape.heads
        # Tiles on the edges of a mask are computed whole; a window has two.
        causal = queries * (keys - (queries - 1) / 2)
        edge = ROWS if pairs < causal else ROWS / 2 if pairs < queries * keys else 0
        computed = min(pairs + queries * edge, queries * keys)
        longest = min(queries, ROWS) * min(keys, 2 * computed / queries)
        each = 2 * width / (self.gpu.peaks["bf16"] * own["rate"]) * 1e6
        tiles = portable.hypot(heads * computed, own["tail"] * longest * self.gpu.sms) * each
        moved = 2 * width * (heads * queries + shape.batch * shape.kv_heads * keys)
        return US * (
            own["launch"]
            + moved / (self.gpu.bandwidth * own["memory"]) * 1e6
            + own["row"] * queries * heads / self.gpu.sms / US
            + tiles * (own.get("narrow", 1.0) if shape.key < NARROW else 1.0)
        )

    def linear_ns(self, kind: str, size: float) -> float:
        """Return ns of Gated DeltaNet that moves `size` bytes: ``chunk`` of prompts, ``step`` of single tokens."""
        own = self.parts["linear"][kind]
        return US * (own["launch"] + size / (self.gpu.bandwidth * own["memory"]) * 1e6)

    def experts_ns(self, tokens: int) -> float:
        """Return ns of the routed experts of a layer, on average, on the device that gets most tokens."""
        assert self.routed is not None
        layers = self.routed.busiest(tokens)
        return sum(self.fused_ns(tokens, *each) for each in layers) / len(layers)

    def fused_ns(self, tokens: int, touched: float, rows: float) -> float:
        """Return ns of routed experts (see `kernels.yaml`).

        Args:
            tokens: Of all devices that share the experts.
            touched: Experts of this device that are chosen.
            rows: How often they are.
        """
        of = self.routed
        assert of is not None
        own = self.parts["experts"][of.stored]
        each = 3 * of.hidden * of.width
        weights = touched * each * EXPERTS[of.stored] / 8 / (self.gpu.bandwidth * own["memory"])
        # Tokens in and out, and what lies between the two GEMMs, in 16 bits.
        passed = rows * (4 * of.hidden + 6 * of.width) / (self.gpu.bandwidth * own["move"])
        away = (
            max(0.0, tokens * of.top_k - rows) * 4 * (of.hidden + of.width) / self.gpu.bandwidth * own["away"]
        )
        peak = self.gpu.peaks[PEAKS[of.stored]] * own["rate"]

        def took(tile: float, again: float) -> float:
            computed = (rows + touched * tile) * 2 * each / peak
            return 1e6 * portable.power((weights * again + passed + away) ** 3 + computed**3, 1 / 3)

        begin = own["launch"] + own["route"] * of.count + own["tall"] * of.hidden + own["deep"] * of.width
        ns = took(own["few" if tokens <= FEW else "many"], 1.0)
        if tokens > FEW and "low" in own:
            # A tuned kernel keeps its low tiles as long as that is sooner; each tile more reads the weights again.
            ns = min(ns, took(own["few"], 1 + max(0.0, rows / touched / own["low"] - 0.5)))
        return float(US * (begin + own["each"] * touched + ns))

    def gemms_ns(self, kind: str, sizes: Floats) -> Floats:
        """Return (GEMMs) ns of GEMMs of (GEMMs, 3) m, n and k, with what quantises the left operand."""
        own, factors = self.parts["gemm"][kind], self.chosen.get(kind)
        precision = kind.partition(" ")[0]
        fit = self.gpu.gemm_fit(precision, RECIPES[kind])
        fit = replace(fit, memory=min(1.0, fit.memory * own["memory"]))
        shapes = np.column_stack((sizes, np.ones(len(sizes))))
        lasting, _ = gemm_seconds(self.gpu, precision, shapes, 2.0, fit, power=self.gpu.power)
        alone = lasting
        if factors and self.gpu.power:
            # Tables time kernels for an instant; the limit of the power is that of a load that lasts.
            alone, _ = gemm_seconds(self.gpu, precision, shapes, 2.0, fit)
        operand = sizes[:, 0] * sizes[:, 2] * 3 / self.gpu.bandwidth
        found: Floats = alone * 1e9 * own["factor"] + US * own["launch"] + operand * 1e9 * own["cast"]
        found = found + sizes[:, 0] * own.get("row", 0.0)
        return factors.ns(sizes, found) * (lasting / alone) if factors else found


@functools.cache
def _constants() -> Mapping[str, Any]:
    found: Mapping[str, Any] = read_document(FILE, "kernels of engines", "yaml").data
    return found


def like(device: str) -> str:
    """Return the device whose kernels of engines a device has, or "": none that it is like was measured."""
    devices = _constants()["devices"]
    while device and device not in devices:
        device = load_gpu(device).like
    return device


def engines_of(device: str) -> tuple[str, ...]:
    """Return the engines that can be compared on a device: those whose GEMMs were measured on it, or on one like it."""
    known = _constants()["devices"].get(like(device), {})
    return tuple(each for each in ENGINES if "gemm" in known.get(each, {}))


def kernels_of(
    device: str,
    engine: str,
    link: float,
    blocks: bool,
    routed: Routed | None,
    cache: str = "bf16",
    named: str | None = None,
) -> Kernels | None:
    """Return the kernels of an engine on a device, of the device that it is like, or None: none of both was measured.

    What an engine lacks is that of another: first of vLLM, then of TensorRT-LLM and SGLang. With a name, experts are
    those kernels.

    Raises:
        InputError: kernels of this name were not measured.
    """
    gpu, measured = load_gpu(device), like(device)
    if not measured:
        return None
    parts: dict[str, dict[str, Constants]] = {}
    gemms: dict[str, Chosen | None] = {}
    for name in dict.fromkeys((engine, "vllm", "trtllm", "sglang")):
        for part, kinds in _constants()["devices"][measured].get(name, {}).items():
            # What an engine fuses is its own.
            if part == "fuses" and name != engine:
                continue
            for kind, values in (
                kinds if isinstance(next(iter(kinds.values())), Mapping) else {"all": kinds}
            ).items():
                parts.setdefault(part, {}).setdefault(kind, values)
                if part == "gemm":
                    gemms.setdefault(kind, chosen(measured, name, kind))
    experts = parts.get("experts", {})
    # Both are kernels that widen 4 bits to 16 in registers.
    if "mxfp4" in experts:
        experts["int4"] = experts["mxfp4"]
    if routed is not None and (named is not None or routed.stored in experts):
        begin = f"{routed.stored} "
        known = [each.removeprefix(begin) for each in experts if each.startswith(begin)]
        known = [each for each in known if " " not in each and each != "block"]
        if named is not None and named not in known:
            raise InputError(
                f"expert-kernels {named}: expected {one_of(known) if known else 'none'}{nearest(named, known)}, which "
                f"were measured of experts in {routed.stored} on {gpu.name}"
            )
        kind = routed.stored if named is None else begin + named
        wide = experts.get(f"{kind} of few") if routed.count < MANY else None
        experts[routed.stored] = wide or experts[kind]
    if routed is not None and routed.stored not in experts:
        parts.pop("experts", None)
    least = _constants()["devices"][measured]["least"]
    return Kernels(gpu, engine, parts, link, blocks, routed, measured, least, gemms, cache)
