"""The constants of each software that are fitted, and the start of their search."""

from __future__ import annotations

from dataclasses import dataclass, field

from armillary.explore.training.constants import Constants


@dataclass(frozen=True)
class Recipe:
    """How the constants of a software are found.

    Attributes:
        title: For people.
        names: Of the constants.
        start: Where the search starts.
        base: Software whose constants of a device hold for the others; "": none.
        pooled: Whether all devices share the constants: there are few rows of each.
    """

    title: str
    names: tuple[str, ...]
    start: Constants = field(default_factory=Constants)
    base: str = ""
    pooled: bool = False


# Starts are near what earlier fits found, as the search is local.
RECIPES = {
    "megatron-lm-2022": Recipe(
        "Megatron-LM of 2021 and 2022: unfused attention, one CPU thread that issues kernels, no overlap",
        ("sustained", "memory", "launch", "communication", "handshake"),
        # With few rows per device only few constants can be told apart; the others stay neutral.
        Constants(sustained=0.93, memory=0.95, launch=70, communication=0.5, handshake=700),
    ),
    "llm-foundry": Recipe(
        "llm-foundry (PyTorch FSDP, Triton flash attention, element-wise kernels that are not fused)",
        ("sustained", "attention", "memory", "overlap_compute"),
        Constants(sustained=0.93, attention=2.0, memory=2.4, overlap_compute=0.3),
    ),
    "megatron-core": Recipe(
        "Megatron-Bridge, dense models in bf16 and fp8 (Transformer Engine)",
        ("sustained",),
        Constants(sustained=0.9),
    ),
    "megatron-core-fp4": Recipe(
        # `pooled`: there are few rows of each device.
        "Megatron-Bridge, dense models in NVFP4",
        ("gemm",),
        Constants(gemm=1.2),
        "megatron-core",
        True,
    ),
    "megatron-core-moe": Recipe(
        "Megatron-Bridge up to 26.04, mixtures of experts: CUDA graphs of parts of a layer, or none",
        ("launch",),
        Constants(launch=40),
        "megatron-core",
    ),
    "megatron-core-moe-bias": Recipe(
        "Megatron-Bridge up to 26.04, experts with biases: no fused kernels for them",
        ("memory",),
        Constants(memory=2),
        "megatron-core-moe",
        True,
    ),
    "megatron-core-mamba": Recipe(
        "Megatron-Bridge, Nemotron 3 Nano taken for attention: memory stands for the scan of Mamba-2, too",
        ("memory",),
        Constants(memory=2),
        "megatron-core",
        True,
    ),
    "megatron-core-graphs": Recipe(
        "Megatron-Bridge from 26.06 on, mixtures of experts: CUDA graphs of whole steps, messages overlapped",
        ("gemm", "attention"),
        Constants(gemm=0.9, attention=0.8),
        "megatron-core",
        True,
    ),
    "torchtitan": Recipe(
        "torchtitan (FSDP2, kernels of PyTorch, attention of scaled_dot_product_attention)",
        ("sustained", "attention"),
        Constants(sustained=0.85, attention=1.5),
    ),
    "nemo": Recipe(
        "NeMo, which runs Megatron-core",
        ("gemm",),
        Constants(gemm=1.1),
        "megatron-core",
        True,
    ),
    "maxtext": Recipe(
        "MaxText on TPUs (XLA)",
        ("sustained",),
        Constants(sustained=0.8),
    ),
}
"""By software."""
