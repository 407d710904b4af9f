"""Llama 3 in plain PyTorch: FSDP2, tensor parallelism with sequence parallelism, and checkpointing of layers."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils.checkpoint import checkpoint

# Width, layers, heads, heads of keys, inner width of the feed-forward block, words.
SIZES = {
    "tiny": (256, 2, 4, 2, 512, 1024),
    "8b": (4096, 32, 32, 8, 14336, 128256),
    "70b": (8192, 80, 64, 8, 28672, 128256),
    "405b": (16384, 126, 128, 8, 53248, 128256),
}


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, kv: int) -> None:
        super().__init__()
        self.head = width // heads
        self.wq = nn.Linear(width, width, bias=False)
        self.wk = nn.Linear(width, kv * self.head, bias=False)
        self.wv = nn.Linear(width, kv * self.head, bias=False)
        self.wo = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (w(x).unflatten(-1, (-1, self.head)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(width, inner, bias=False)
        self.w2 = nn.Linear(inner, width, bias=False)
        self.w3 = nn.Linear(width, inner, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, kv: int, inner: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention, self.mlp = Attention(width, heads, kv), FeedForward(width, inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, size: str, again: bool) -> None:
        super().__init__()
        width, layers, heads, kv, inner, words = SIZES[size]
        self.again = again
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Block(width, heads, kv, inner) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return self.head(self.norm(x))


def parallelize(model: Llama, mesh: object) -> None:
    """Cut the GEMMs over the ranks of tensor parallelism, and everything between them along the sequence."""
    rest, whole = Shard(1), Replicate()
    parallelize_module(model, mesh, {
        "embed": RowwiseParallel(input_layouts=whole, output_layouts=rest), "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=rest, output_layouts=whole),
    })  # fmt: skip
    gathered = PrepareModuleInput(input_layouts=(rest,), desired_input_layouts=(whole,))
    for layer in model.layers:
        parallelize_module(layer, mesh, {
            "norm1": SequenceParallel(), "attention": gathered, "attention.wq": ColwiseParallel(),
            "attention.wk": ColwiseParallel(), "attention.wv": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=rest), "norm2": SequenceParallel(), "mlp": gathered,
            "mlp.w1": ColwiseParallel(), "mlp.w3": ColwiseParallel(), "mlp.w2": RowwiseParallel(output_layouts=rest),
        })  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="tiny", choices=SIZES)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--compile", action="store_true")
    chosen = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(
        "cuda", (dist.get_world_size() // chosen.tp, chosen.tp), mesh_dim_names=("dp", "tp")
    )
    with torch.device("cuda"):
        model = Llama(chosen.size, chosen.checkpoint)
    if chosen.tp > 1:
        parallelize(model, mesh["tp"])
    if chosen.compile:
        for layer in model.layers:
            layer.compile()
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in (*model.layers, model):
        fully_shard(part, mesh=mesh["dp"], mp_policy=mixed)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(3):
        words = torch.randint(SIZES[chosen.size][-1], (1, chosen.tokens + 1), device="cuda")
        loss = F.cross_entropy(model(words[:, :-1]).flatten(0, 1).float(), words[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


main()
