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
        base: Software whose constants hold for the others; "": none.
    """

    title: str
    names: tuple[str, ...]
    start: Constants = field(default_factory=Constants)
    base: str = ""


# A search starts where nothing is added, or at a usual value; `training.RANGES` says how far it is expected to go.
RECIPES = {
    "megatron-core": Recipe(
        "Megatron-core with Transformer Engine",
        # With `memory` besides, halves were 12.3 % off (10.6 without it), as they did not agree on it: 1.4 and 2.2.
        # A read of token counts waits for the device; with `synchronise` besides, which fell to its bound of 0, halves
        # were no better.
        ("gemm", "communication_inside", "issue", "issue_each", "gap"),
        # PyTorch takes tens of us for a kernel, and a layer's operations here are several; a loop in C++ takes some us.
        Constants(communication_inside=0.8, issue=150, issue_each=5, gap=5),
    ),
    "nemo": Recipe(
        "NeMo, which runs Megatron-core",
        # Submissions to MLPerf fuse more of their small kernels. With `step` besides, which fell to its bound of 0 in a
        # half, halves were no better.
        ("gemm", "memory"),
        Constants(),
        "megatron-core",
    ),
    "torchtitan": Recipe(
        "torchtitan (FSDP2, kernels of PyTorch, attention of scaled_dot_product_attention)",
        # With `communication_inside` besides, which ended at 0, its bound, halves were 9.9 % off.
        ("gemm", "attention", "hopper", "memory", "communication_between"),
        Constants(hopper=1.75),
    ),
    "llm-foundry": Recipe(
        "llm-foundry (PyTorch FSDP, Triton flash attention, element-wise kernels that are not fused)",
        ("gemm", "attention", "hopper", "memory", "communication_between"),
        Constants(attention=1.3, hopper=1.75, memory=2.0),
    ),
    "megatron-lm-2022": Recipe(
        "Megatron-LM of 2021 and 2022: unfused attention, one CPU thread that issues kernels, no overlap",
        ("sustained", "memory", "launch", "handshake", "communication"),
        # Nobody measured the clocks that an SXM A100 keeps; its PCIe sibling keeps 85 % at three quarters of the power.
        Constants(sustained=0.95, memory=0.95, launch=70, handshake=700, communication=0.5),
    ),
    "maxtext": Recipe(
        "MaxText on TPUs (XLA)",
        ("gemm", "attention", "memory"),
        Constants(gemm=1.2),
    ),
}
"""By software; all devices share its constants: what differs between devices is theirs."""
