"""Llama 3 in plain PyTorch: FSDP2, tensor parallelism with sequence parallelism, pipeline stages, and checkpoints."""

import argparse
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import context_parallel
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
    def __init__(self, size: str, again: bool, stage: int = 0, stages: int = 1) -> None:
        super().__init__()
        width, layers, heads, kv, inner, words = SIZES[size]
        self.again = again
        self.embed = nn.Embedding(words, width) if stage == 0 else nn.Identity()
        mine = range(layers)[layers * stage // stages : layers * (stage + 1) // stages]
        self.layers = nn.ModuleList(Block(width, heads, kv, inner) for _ in mine)
        last = stage == stages - 1
        self.norm = nn.RMSNorm(width) if last else nn.Identity()
        self.head = nn.Linear(width, words, bias=False) if last else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return self.head(self.norm(x))


def parallelize(model: Llama, mesh: object) -> None:
    """Cut the GEMMs over the ranks of tensor parallelism, and everything between them along the sequence."""
    rest, whole = Shard(1), Replicate()
    ends = {
        "embed": RowwiseParallel(input_layouts=whole, output_layouts=rest), "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=rest, output_layouts=whole),
    }  # fmt: skip
    parallelize_module(
        model,
        mesh,
        {name: of for name, of in ends.items() if not isinstance(getattr(model, name), nn.Identity)},
    )
    gathered = PrepareModuleInput(input_layouts=(rest,), desired_input_layouts=(whole,))
    for layer in model.layers:
        parallelize_module(layer, mesh, {
            "norm1": SequenceParallel(), "attention": gathered, "attention.wq": ColwiseParallel(),
            "attention.wk": ColwiseParallel(), "attention.wv": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=rest), "norm2": SequenceParallel(), "mlp": gathered,
            "mlp.w1": ColwiseParallel(), "mlp.w3": ColwiseParallel(), "mlp.w2": RowwiseParallel(output_layouts=rest),
        })  # fmt: skip


def loss_of(scores: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores.flatten(0, 1).float(), words.flatten())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="tiny", choices=SIZES)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--cp", type=int, default=1)
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--microbatches", type=int, default=1)
    parser.add_argument("--schedule", default="1F1B")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--compile", action="store_true")
    chosen = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    pp, cp, tp, words = chosen.pp, chosen.cp, chosen.tp, SIZES[chosen.size][-1]
    mesh = init_device_mesh(
        "cuda", (pp, dist.get_world_size() // (pp * cp * tp), cp, tp), mesh_dim_names=("pp", "dp", "cp", "tp")
    )
    place = mesh["pp"].get_local_rank()
    with torch.device("cuda"):
        model = Llama(chosen.size, chosen.checkpoint, place, pp)
    if tp > 1:
        parallelize(model, mesh["tp"])
    if chosen.compile:
        for layer in model.layers:
            layer.compile()
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    shards = mesh["dp", "cp"]._flatten("shards") if cp > 1 else mesh["dp"]
    for part in (*model.layers, model):
        # A pipeline gathers the weights of a stage once; else the root is not gathered again, as FSDP2 does by default.
        fully_shard(part, mesh=shards, mp_policy=mixed, reshard_after_forward=None if pp == 1 else False)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    if pp > 1:
        stage = PipelineStage(model, place, pp, torch.device("cuda"), group=mesh["pp"].get_group())
        schedule = get_schedule_class(chosen.schedule)(stage, chosen.microbatches, loss_fn=loss_of)
    for _ in range(3):
        batch = torch.randint(words, (chosen.microbatches, chosen.tokens + 1), device="cuda")
        given, target = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
        with (
            context_parallel(mesh["cp"], buffers=[given, target], buffer_seq_dims=[1, 1])
            if cp > 1
            else nullcontext()
        ):
            if pp == 1:
                loss_of(model(given), target).backward()
            elif place == pp - 1:
                schedule.step(target=target, losses=[])
            else:
                schedule.step(*([given] if place == 0 else []))
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


main()
