"""Kernels of inference engines where they differ from those of training, with constants fitted to measured kernels.

``kernels.yaml`` has the constants of each device and engine. An all-reduce of a node is one kernel that reads what all
members have (one-shot), or first sums a share (two-shot); attention of one new token reads the cache in parts that fill
the device; routed experts are one fused kernel whose time is that of the weights it touches; linear attention is two,
which convolve and pass states. GEMMs are those of `armillary.compute.gpu.gemm`, and what quantises their operands.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base import portable
from armillary.base.document import read_document
from armillary.compute.gpu.device import Gpu, load_gpu
from armillary.compute.gpu.gemm import gemm_seconds
from armillary.compute.model import Floats
from armillary.serving.routed import Routed
from armillary.trace import CollectiveType
from armillary.workload.layers.layer import Step
from armillary.workload.layers.sparse import PROBE

FILE = Path(__file__).with_name("kernels.yaml")
ENGINES = ("vllm", "sglang", "trtllm")
EXPERTS = {"bf16": 16, "fp8": 8, "fp8 block": 8, "fp4": 4.5, "mxfp4": 4.25, "int4": 4.25}
"""Kind of stored experts -> bits of a weight with its share of scales, in groups of 16 (fp4), 32, or 64 (int4)."""
PEAKS = {"bf16": "bf16", "fp8": "fp8", "fp8 block": "fp8", "fp4": "fp4", "mxfp4": "bf16", "int4": "bf16"}
"""Kind of stored experts -> precision of their GEMMs."""
RECIPES = {"fp8": "delayed", "fp8 block": "block", "fp4": "nvfp4", "bf16": ""}
CAPTURED = 512
"""Tokens up to which shared experts run beside routed ones, on a stream of their own (vLLM, SGLang, TensorRT-LLM)."""
ISSUE_NS, COMPILED_NS = 73_000, 20_000
"""ns in which the CPU issues a kernel outside of a graph: 0.8 ms for the 11 of a dense layer where PyTorch issues them
(aiconfigurator, sdk/backends), and in vLLM's compiled layers (its tables of all-reduces: 20.5 us, in a graph 4.5)."""


def graphs_of(engine: str, most: int) -> tuple[int, int]:
    """Return tokens up to which steps with and without prompts are CUDA graphs, of which the largest has `most`.

    vLLM has some of parts of a step, others only of tokens; TensorRT-LLM captures what it is told to.
    """
    return (most, most) if engine == "vllm" else (0, most if engine == "sglang" else 2**31)


STEP_NS = 126_000, 4_420
"""ns of a step besides its kernels, and more for each sequence that gets a token: what BLIS found of vLLM on H100
(inference-sim, defaults.yaml), taken for all engines."""
INGEST_NS, TOKEN_PS = {"vllm": 12_000_000, "sglang": 6_000_000, "trtllm": 6_000_000}, 4_200_000
"""ns from the arrival of a request until it is queued, and ps more for each token of its prompt, which the front end
splits and sends: what kernels left of the time to first token of gpt-oss on vLLM with 4 clients, at prompts of 922 and
7,373 tokens (silicon_sample.csv). Of vLLM that is 13 ms now, and 5 ms of dense models on H100 under open loads
(sim_to_real). BLIS found 15.6 ms, but has no step that is scheduled while another runs, for which requests wait."""
LINEAR = ("mixer.conv.", "mixer.keys.", "mixer.scan", "mixer.update")
"""What the names of kernels between the projections of a linear layer begin with, but for its gate."""
TILE = 64
"""Heads that kernels of attention over chosen keys compute at least: from 8 to 64 they take the same (dsa tables)."""
CHOOSING = ("index.score", "index.probe", "index.top")
"""Names of the kernels that choose keys, before attention over these."""
FEW = 64
"""Tokens up to which kernels of experts have low tiles (Triton's of vLLM: 16 rows, then 64)."""
ROUTED = ("dispatch.", "experts.", "combine.")
OTHER, ATTENTION, TOGETHER = range(3)
"""What a kernel's time depends on: tokens of the step, what is before them, tokens of all ranks with requests of their
own."""
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

    def latent_ns(self, flops: float, size: float) -> float:
        """Return ns of attention of one new token of each sequence in the latent space (MLA)."""
        own = self.parts["latent"]["all"]
        moved = size / (self.gpu.bandwidth * own["memory"]) * 1e6
        return US * (
            own["launch"] + portable.hypot(moved, flops / (self.gpu.peaks["bf16"] * own["rate"]) * 1e6)
        )

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
        computed = (rows + touched * own["few" if tokens <= FEW else "many"]) * 2 * each / peak
        took = 1e6 * portable.power((weights + passed + away) ** 3 + computed**3, 1 / 3)
        begin = own["launch"] + own["route"] * of.count + own["tall"] * of.hidden + own["deep"] * of.width
        return float(US * (begin + own["each"] * touched + took))

    def gemms_ns(self, kind: str, sizes: Floats) -> Floats:
        """Return (GEMMs) ns of GEMMs of (GEMMs, 3) m, n and k, with what quantises the left operand."""
        own = self.parts["gemm"][kind]
        precision = kind.partition(" ")[0]
        fit = self.gpu.gemm_fit(precision, RECIPES[kind])
        fit = replace(fit, memory=min(1.0, fit.memory * own["memory"]))
        shapes = np.column_stack((sizes, np.ones(len(sizes))))
        seconds, _ = gemm_seconds(self.gpu, precision, shapes, 2.0, fit, power=self.gpu.power)
        operand = sizes[:, 0] * sizes[:, 2] * 3 / self.gpu.bandwidth
        found: Floats = seconds * 1e9 * own["factor"] + US * own["launch"] + operand * 1e9 * own["cast"]
        return found + sizes[:, 0] * own.get("row", 0.0)


@dataclass
class Taken:
    """Kernels that were taken out of passes, to be timed together.

    Attributes:
        gemms: Kind -> m, n, k, pass and times of each.
        others: Pass, ns, and what it is: `OTHER`, `ATTENTION` or `TOGETHER`.
    """

    gemms: dict[str, list[tuple[int, int, int, int, int]]] = field(default_factory=dict)
    others: list[tuple[int, float, int]] = field(default_factory=list)

    def sums(self, kernels: Kernels, passes: int) -> Floats:
        """Return (kinds, passes) ns of what is `OTHER`, `ATTENTION` and `TOGETHER`."""
        found = np.zeros((3, passes))
        for kind, rows in self.gemms.items():
            table = np.array(rows, float)
            # Equal GEMMs of different passes are one.
            sizes, which = np.unique(table[:, :3], axis=0, return_inverse=True)
            ns = kernels.gemms_ns(kind, sizes)[which.ravel()]
            np.add.at(found[OTHER], table[:, 3].astype(np.int64), ns * table[:, 4])
        for at, ns_of, kind_of in self.others:
            found[kind_of, at] += ns_of
        return found


def take(steps: Sequence[Step], kernels: Kernels, tp: int, taken: Taken, at: int, times: int) -> list[Step]:
    """Return the steps that are left to the simulation, and put the others into `taken`, for pass `at`."""
    left = []
    router = next((step for step in steps if step.name == "router.gemm"), None)
    of = kernels.routed
    routed = router is not None and of is not None and "experts" in kernels.parts
    tokens = router.gemms[0].m if router else 0
    meets = kernels.link > 0 and "reduce" in kernels.parts
    if routed and of is not None:
        ns = kernels.experts_ns(tokens * of.ranks)
        if of.ranks > 1 and meets:
            # Tokens of all ranks are gathered, and sums of what experts make are divided again.
            ns += 2 * kernels.gather_ns(2 * tokens * of.ranks * of.hidden, of.tp)
        taken.others.append((at, times * ns, TOGETHER if of.ranks > 1 else OTHER))
    taken.others.append((at, times * _small(steps, kernels) * kernels.gpu.launch * 1e9, OTHER))
    fused = kernels.parts.get("fuses", {}).get("all", {})
    chosen = _sparse(steps, kernels)
    if chosen:
        taken.others.append((at, times * kernels.sparse_ns(*chosen), ATTENTION))
    linear = _linear(steps, kernels)
    if linear:
        taken.others.append((at, times * kernels.linear_ns(*linear), ATTENTION))
    for step in steps:
        name, _, last = step.name.rpartition(".")
        if linear and step.name.startswith(LINEAR):
            continue
        if chosen and (step.name in CHOOSING or step.name == "absorbed.attend"):
            continue
        if routed and (is_routed(step.name) or _beside(step.name, tokens)):
            if step.collective and not meets:
                left.append(replace(step, synchronises=False))
            continue
        if last == "norm" and name in ("attention.norm", "mlp.norm") and fused.get("norm") and tp > 1:
            continue
        shape, kind = step.attention, _kind(step, kernels.blocks)
        if step.collective is CollectiveType.ALL_REDUCE and meets:
            taken.others.append((at, times * kernels.reduce_ns(step.size, tp), OTHER))
        elif (
            shape
            and "decode" in kernels.parts
            and (shape.queries == 1 or shape.queries <= min(kernels.drafts + 1, shape.keys - 1))
        ):
            width = shape.key + shape.value
            rows = shape.batch * shape.heads * shape.queries
            cache = max(0, step.bytes - rows * width * 2)
            narrow = cache < 1.5 * shape.batch * shape.kv_heads * shape.keys * width
            ns = kernels.decode_ns(rows, cache, shape.keys, "fp8" if narrow else "bf16")
            taken.others.append((at, times * ns, ATTENTION))
        elif step.name == "absorbed.attend" and "latent" in kernels.parts:
            taken.others.append((at, times * kernels.latent_ns(step.flops, step.bytes), ATTENTION))
        elif kind in kernels.parts.get("gemm", {}) and len(step.gemms) == 1 and step.gemms[0].batch == 1:
            gemm = step.gemms[0]
            row = (gemm.m, gemm.n, gemm.k, at, times * gemm.calls)
            taken.gemms.setdefault(kind, []).append(row)
        else:
            left.append(step)
    return left


def _small(steps: Sequence[Step], kernels: Kernels) -> int:
    """Return how many small kernels of a layer are in no table, and not among its steps.

    vLLM and SGLang write keys and values into the cache, choose experts or quantise what these get, add what shared
    experts make, and take the projections of linear layers apart, by kernels of their own; TensorRT-LLM's attention and
    experts do all that, and did when they were measured.
    """
    if kernels.engine == "trtllm":
        return 0
    names = {step.name for step in steps}
    attends = "absorbed.attend" in names or any(name.startswith("core.") for name in names)
    return attends + ("router.gemm" in names) + ("shared.down.gemm" in names) + 2 * ("mixer.in.gemm" in names)


def _sparse(steps: Sequence[Step], kernels: Kernels) -> tuple[Step, Step, Step, int] | None:
    """Return the kernels of sparse attention, and heads of this device; None: none, or they were not measured."""
    named = {step.name: step for step in steps}
    score = named.get(CHOOSING[0]) or named.get(CHOOSING[1])
    if score is None or kernels.cache not in kernels.parts.get("sparse", {}):
        return None
    # `armillary.serving.priced.as_engines_run` names GEMMs of several heads so.
    keys = named.get("absorbed.grouped") or named["absorbed.keys"]
    return named["absorbed.attend"], score, named["index.top"], keys.gemms[0].batch


def _linear(steps: Sequence[Step], kernels: Kernels) -> tuple[str, int] | None:
    """Return kind and bytes of the kernels of Gated DeltaNet, which norm keys, too; None: none was measured."""
    moved = {step.name: step.bytes for step in steps if step.name.startswith(LINEAR)}
    kind = "step" if "mixer.update" in moved else "chunk"
    if "mixer.keys.norm" not in moved or kind not in kernels.parts.get("linear", {}):
        return None
    return kind, sum(each for name, each in moved.items() if not name.startswith("mixer.keys."))


def issue_ns(steps: Sequence[Step], kernels: Kernels) -> int:
    """Return ns in which the CPU issues the kernels of a layer outside of graphs.

    vLLM compiles all but experts, and TensorRT-LLM has large operations. In SGLang a GEMM of quantised operands has a
    kernel more, and so have experts of TensorRT-LLM's kernels. Triton's are seven: choice, order, two GEMMs, what is
    before each, a sum.
    """
    own = [step for step in steps if not is_routed(step.name)]
    experts = len(own) < len(steps)
    if kernels.engine == "vllm":
        return len(own) * COMPILED_NS + 7 * experts * ISSUE_NS
    if kernels.engine == "trtllm":
        return (len(own) + experts) * ISSUE_NS
    narrow = kernels.routed is not None and kernels.routed.stored != "bf16"
    fused = narrow and "fp4" in kernels.gpu.peaks
    quantising = sum(bool(step.gemms) and step.precision in ("fp8", "fp4") for step in own)
    return ISSUE_NS * (len(own) + quantising + experts * (2 if fused else 7) + _small(steps, kernels))


def is_routed(name: str) -> bool:
    """Return whether a kernel or collective is of routed experts, or of the way of tokens to them and back."""
    # What ranks of tp sum is of all experts.
    return name.startswith(ROUTED) and name != "combine.reduce"


def _beside(name: str, tokens: int) -> bool:
    return name.startswith("shared.") and tokens <= CAPTURED


def _kind(step: Step, blocks: bool) -> str:
    return "fp8 block" if step.precision == "fp8" and blocks else step.precision


@functools.cache
def _constants() -> Mapping[str, Any]:
    found: Mapping[str, Any] = read_document(FILE, "kernels of engines", "yaml").data
    return found


def kernels_of(
    device: str, engine: str, link: float, blocks: bool, routed: Routed | None, cache: str = "bf16"
) -> Kernels | None:
    """Return the kernels of an engine on a device, of the device that it is like, or None: none of both was measured.

    What an engine lacks is that of another: first of vLLM, then of TensorRT-LLM and SGLang.
    """
    gpu, known = load_gpu(device), _constants()["devices"]
    like = device
    while like and like not in known:
        like = load_gpu(like).like
    if not like:
        return None
    parts: dict[str, dict[str, Constants]] = {}
    for name in dict.fromkeys((engine, "vllm", "trtllm", "sglang")):
        for part, kinds in known[like].get(name, {}).items():
            # What an engine fuses is its own.
            if part == "fuses" and name != engine:
                continue
            for kind, values in (
                kinds if isinstance(next(iter(kinds.values())), Mapping) else {"all": kinds}
            ).items():
                parts.setdefault(part, {}).setdefault(kind, values)
    experts = parts.get("experts", {})
    # Both are kernels that widen 4 bits to 16 in registers.
    if "mxfp4" in experts:
        experts["int4"] = experts["mxfp4"]
    if routed is not None and routed.stored not in experts:
        parts.pop("experts", None)
    return Kernels(gpu, engine, parts, link, blocks, routed, like, cache)
