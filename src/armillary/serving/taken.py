"""Which kernels of a layer an inference engine has of its own, and what the CPU takes to issue all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from armillary.compute.model import Floats
from armillary.serving.kernels import US, Kernels
from armillary.trace import CollectiveType
from armillary.workload.layers.layer import Step

CAPTURED = 512
"""Tokens up to which shared experts run beside routed ones, on a stream of their own (vLLM, SGLang, TensorRT-LLM)."""
ISSUE_NS, COMPILED_NS = 73_000, 20_000
"""ns in which the CPU issues a kernel outside of a graph: 0.8 ms for the 11 of a dense layer where PyTorch issues them
(aiconfigurator, sdk/backends), and in vLLM's compiled layers (its tables of all-reduces: 20.5 us, in a graph 4.5)."""
LINEAR = ("mixer.conv.", "mixer.keys.", "mixer.scan", "mixer.update")
"""What the names of kernels between the projections of a linear layer begin with, but for its gate."""
CHOOSING = ("index.score", "index.probe", "index.top")
"""Names of the kernels that choose keys, before attention over these."""
ROUTED = ("dispatch.", "experts.", "combine.")
OTHER, ATTENTION, TOGETHER = range(3)
"""What a kernel's time depends on: tokens of the step, what is before them, tokens of all ranks with requests of their
own."""


def graphs_of(engine: str, most: int) -> tuple[int, int]:
    """Return tokens up to which steps with and without prompts are CUDA graphs, of which the largest has `most`.

    vLLM has some of parts of a step, others only of tokens; TensorRT-LLM captures what it is told to.
    """
    return (most, most) if engine == "vllm" else (0, most if engine == "sglang" else 2**31)


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
    taken.others.append((at, times * _small(steps, kernels) * kernels.least * US, OTHER))
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
        elif shape and not shape.backward and "prompt" in kernels.parts:
            taken.others.append((at, times * kernels.prompt_ns(shape, step.flops), ATTENTION))
        elif step.name == "absorbed.attend" and "latent" in kernels.parts:
            taken.others.append(
                (at, times * kernels.latent_ns(step.flops, step.bytes, _heads(steps)), ATTENTION)
            )
        elif kind in kernels.parts.get("gemm", {}) and len(step.gemms) == 1 and step.gemms[0].batch == 1:
            gemm = step.gemms[0]
            row = (gemm.m, gemm.n, gemm.k, at, times * gemm.calls)
            taken.gemms.setdefault(kind, []).append(row)
        else:
            left.append(step)
            if not (step.collective or step.gemms or step.attention or step.shift):
                # In the simulation it takes the launch of a device, as in training.
                more = kernels.least * US - kernels.gpu.launch * 1e9
                taken.others.append((at, times * more, ATTENTION if of_attention(step) else OTHER))
    return left


def of_attention(step: Step) -> bool:
    """Return whether the time of a kernel depends on what is before its tokens, or on whose they are."""
    before = ("absorbed.", "core.", "kv.up.", *CHOOSING, *LINEAR)
    return step.attention is not None or step.name.startswith(before)


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
    return named["absorbed.attend"], score, named["index.top"], _heads(steps)


def _heads(steps: Sequence[Step]) -> int:
    """Return the heads of this device that attend in the latent space."""
    # `armillary.serving.priced.as_engines_run` names GEMMs of several heads so.
    return next(s.gemms[0].batch for s in steps if s.name in ("absorbed.grouped", "absorbed.keys"))


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
