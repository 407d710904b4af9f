"""Which device kernels communicate, by name: those of libraries, and those that programs bring themselves.

Names are matched without template arguments and parameters, in which a kernel that only computes may name
communication; mangled names are matched whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

BY_WORDS = ""
"""The words in the name give the kind."""
UNSAID = "SendRecv"
"""NCCL's kernel of messages, of all-to-alls, and of any group of both."""


@dataclass(frozen=True)
class Family:
    """Kernels of one program."""

    pattern: str
    """Matches anywhere in the name."""
    kind: str
    """Name of a `CollectiveType`, or BY_WORDS."""
    source: str
    """Whose kernels these are."""
    default: str = "ALL_REDUCE"
    """The kind if no word in the name gives one."""


# From specific to general: a library's compute kernels stand before its pattern of communication, as
# ``get_dispatch_layout`` does, and bare names of collectives come last.
FAMILIES = (
    Family(r"^(nccl|rccl|mscclkernel)", BY_WORDS, "NCCL and RCCL (src/device), MSCCL in RCCL"),
    Family(r"^(hccl|hcom_|cncl|oneccl)", BY_WORDS, "HCCL, CNCL, oneCCL"),
    Family(r"mscclpp|allreduce_LL_[12]node", BY_WORDS, "MSCCL++ (src/ext/collectives), and SGLang's copy"),
    Family(r"cross_device_reduce_", "ALL_REDUCE", "vLLM, SGLang, AITER (custom_all_reduce.cuh)"),
    Family(r"reduce_scatter_cross_device", "REDUCE_SCATTER", "AITER (custom_all_reduce.cuh)"),
    Family(r"allreduce_prototype|quickreduce.*allreduce", "ALL_REDUCE", "QuickReduce in vLLM, SGLang, AITER"),
    Family(r"allreduce_?fusion|allreduce.*lamport|lamport.*all_?reduce", "ALL_REDUCE",
           "TensorRT-LLM, FlashInfer (trtllm_allreduce_fusion.cuh), AITER"),
    Family(r"(one|two)_?shot_?all_?reduce", "ALL_REDUCE", "TensorRT-LLM, FlashInfer (MNNVL), PyTorch, SGLang"),
    Family(r"moe_?a2a(dispatch|combine)|moe_?all_?to_?all", "ALL_TO_ALL", "TensorRT-LLM (moeAlltoAllKernels.cu)"),
    Family(r"userbuffers_fp16\w*_rs|kuserbuffers.*reduce_scatter", "REDUCE_SCATTER", "Transformer Engine"),
    Family(r"userbuffers_fp16\w*_ag", "ALL_GATHER", "Transformer Engine (userbuffers.cu)"),
    Family(r"userbuffers_(fp16|allreduce)", "ALL_REDUCE", "Transformer Engine, TensorRT-LLM (userbuffers.cu)"),
    Family(r"userbuffers_(push|pull)", UNSAID, "Transformer Engine (userbuffers.cu)"),
    Family(r"multimem_\w*(reduce|gather|scatter)", BY_WORDS, "PyTorch (symm_mem/CUDASymmetricMemoryOps.cu)"),
    Family(r"symmetric_memory.*(barrier|signal)", "BARRIER", "PyTorch (symm_mem)"),
    Family(r"(deep_?ep|uccl|nixl_ep).*(get_dispatch_layout|layout.*get)", "", "computes where tokens go", "none"),
    Family(r"(deep_?ep|uccl|nixl_ep).*(barrier|clean_low_latency)", "BARRIER", "DeepEP, UCCL-EP"),
    Family(r"(deep_?ep|uccl|nixl_ep|pplx|mori).*(dispatch|combine)", "ALL_TO_ALL", "DeepEP, UCCL-EP, pplx, MORI"),
    Family(r"a2a_(dispatch|combine)_(send|recv)", "ALL_TO_ALL", "pplx-garden"),
    Family(r"Ep(Dispatch|Combine)(Intra|Inter|LowLatency)", "ALL_TO_ALL", "MORI (dispatch_combine)"),
    Family(r"kernel_(dispatch|combine)_token", "ALL_TO_ALL", "Triton-distributed"),
    Family(r"cudaipc_?barrier", "BARRIER", "FLUX"),
    Family(r"flux.*(ring_reduce|reduce_?scatter_?kernel)", "REDUCE_SCATTER", "FLUX"),
    Family(r"nvshmem|rocshmem", BY_WORDS, "NVSHMEM, rocSHMEM", "ALL_TO_ALL"),
    Family(r"(?:^|::)(?:(?:local|intranode|internode|fused|custom|moe|symm_mem)_?)?"
           r"(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)v?(?:_\w*|\d\w*|kernel\w*)?$", BY_WORDS,
           "kernels that are named as a collective, such as TurboMind's and dLSLIME's"),
)  # fmt: skip
"""The first match decides."""

# Longer words first: ``reduce_scatter`` and ``all_reduce`` contain ``reduce``.
_WORDS = (
    ("ALL_TO_ALL", r"all_?to_?all|a2a"),
    ("REDUCE_SCATTER", r"reduce_?scatter"),
    ("ALL_REDUCE", r"all_?reduce"),
    ("ALL_GATHER", r"all_?gather|fcollect"),
    ("BROADCAST", r"broadcast"),
    ("BARRIER", r"barrier|sync_all"),
    (UNSAID, r"send_?recv"),
    ("REDUCE", r"reduce"),
)
_PATTERNS = tuple((re.compile(family.pattern, re.IGNORECASE), family) for family in FAMILIES)


@lru_cache(maxsize=4096)
def kernel_kind(name: str) -> str | None:
    """Return the kind of a kernel: `UNSAID` for messages or an all-to-all, None if it does not communicate.

    A library's kernel without a kind in its name, such as RCCL's generic one, has the default of its family.
    """
    bare = _bare(name)
    if bare.startswith("triton_"):  # Inductor names a kernel by all operators that it was fused from
        return None
    for pattern, family in _PATTERNS:
        if pattern.search(bare):
            # Matched so that no later pattern takes it for communication.
            if family.default == "none":
                return None
            return family.kind or words_kind(bare) or family.default
    return None


def words_kind(name: str) -> str | None:
    """Return the kind that the words of a name give, or None."""
    return next((kind for kind, words in _WORDS if re.search(words, name, re.IGNORECASE)), None)


def names_its_kind(name: str) -> bool:
    """Whether the name of a communication kernel determines its kind."""
    found = kernel_kind(name)
    bare = _bare(name)
    matched = next((family for pattern, family in _PATTERNS if pattern.search(bare)), None)
    return found not in (None, UNSAID) and matched is not None and bool(matched.kind or words_kind(bare))


def _bare(name: str) -> str:
    """Return the qualified name of a kernel without its return type, template arguments and parameters."""
    # Removed first, as these brackets hold no template arguments or parameters.
    text = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "").strip()
    kept, depth = [], 0
    for character in text:
        if character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif not depth:
            kept.append(character)
    # ``.kd`` ends kernel descriptors of ROCm; the last word follows the return type.
    words = "".join(kept).removesuffix(".kd").split()
    return words[-1] if words else text
