"""Modules that selective recomputation makes again, by the names of Megatron-core's ``--recompute-modules``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from armillary.workload.layers.block import NOTHING, Again, Block
from armillary.workload.layers.shard import Shard


@dataclass(frozen=True)
class Module:
    """A part of a layer whose result is not kept.

    Attributes:
        blocks: What runs again, by name.
        readers: Blocks that keep the result as their input, or keep what was made of it -> whether all that they keep
            is dropped; else only the operand of their GEMM.
    """

    blocks: tuple[str, ...]
    readers: Mapping[str, bool]


MODULES = {
    "core_attn": Module(("core",), {"core": False}),
    "layernorm": Module(
        ("attention.norm", "mlp.norm"),
        dict.fromkeys(("qkv", "down", "q", "mixer.in", "mlp.up", "router"), False),
    ),
    "mla_up_proj": Module(("q.up", "kv.up", "positions"), {"core": True}),
    "mlp": Module(("mlp.up", "mlp.activation"), {"mlp.activation": True, "mlp.down": False}),
    "moe_act": Module(("experts.activation",), {"experts.down": False}),
    "moe": Module(
        ("router", "dispatch", "experts.up", "experts.activation", "experts.down", "experts.bias", "combine"),
        dict.fromkeys(("router", "dispatch", "experts.up", "experts.activation", "experts.down"), True),
    ),
}


def made_again(shard: Shard, blocks: Sequence[Block]) -> Again:
    """Return what selective recomputation of the plan's modules makes again in a layer of some blocks."""
    if shard.recompute != "selective":
        return NOTHING
    if not shard.modules:
        # The core of attention, where it keeps scores: fused kernels make them again themselves.
        found = {block.name: block.dropped for block in blocks if block.dropped}
        return Again({block.name: (block,) for block in blocks if block.dropped}, found)
    before: dict[str, list[Block]] = {}
    dropped: dict[str, int] = {}
    done: set[str] = set()
    for name in shard.modules:
        module = MODULES[name]
        readers = [block for block in blocks if block.name in module.readers]
        rerun = [block for block in blocks if block.name in module.blocks and block.name not in done]
        if not readers or not rerun:
            continue
        done |= {block.name for block in rerun}
        for block in readers:
            bytes_ = block.saved if module.readers[block.name] else block.dropped or block.operand
            dropped[block.name] = max(dropped.get(block.name, 0), bytes_)
        # The last of the layer that needs it is the first of the backward pass.
        for block in rerun:
            after = [reader for reader in readers if blocks.index(reader) >= blocks.index(block)]
            before.setdefault((after or readers)[-1].name, []).append(block)
    return Again(before, dropped)
