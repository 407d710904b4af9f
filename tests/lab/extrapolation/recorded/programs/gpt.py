"""A small GPT under one kind of parallelism: ``gpt.py KIND [NAME=NUMBER]...``, with names as in `SIZES`.

KIND ``alone`` has no replicas.

Tokens of a step are as many as the hidden size, so that equal numbers tell nothing.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
from torch.nn import functional

SIZES = {
    "batch": 2, "sequence": 32, "hidden": 64, "heads": 8, "layers": 2, "vocabulary": 256, "positions": 64,
    "microbatches": 4, "fused": 0, "tp": 2, "pp": 2,
}  # fmt: skip


class Attention(nn.Module):
    """Queries, keys and values of one product, heads outermost, or of three."""

    def __init__(self, hidden: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.fused, self.size = fused, hidden // heads
        if fused:
            self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        else:
            self.q, self.k, self.v = (nn.Linear(hidden, hidden, bias=False) for _ in range(3))
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, _ = x.shape
        if self.fused:
            q, k, v = self.qkv(x).view(b, s, -1, 3, self.size).unbind(3)
        else:
            q, k, v = (each(x).view(b, s, -1, self.size) for each in (self.q, self.k, self.v))
        heads = (each.transpose(1, 2) for each in (q, k, v))
        y = functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, s, -1))


class Mlp(nn.Module):
    """One product up, or a gate besides."""

    def __init__(self, hidden: int, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.up = nn.Linear(hidden, 4 * hidden, bias=False)
        if not fused:
            self.gate = nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fused:
            return self.down(functional.gelu(self.up(x)))
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention, self.mlp = Attention(hidden, heads, fused), Mlp(hidden, fused)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))


class Gpt(nn.Module):
    def __init__(self, s: dict[str, int]) -> None:
        super().__init__()
        self.tokens: Any = nn.Embedding(s["vocabulary"], s["hidden"])
        self.places: Any = nn.Embedding(s["positions"], s["hidden"])
        self.blocks: Any = nn.ModuleList(
            Block(s["hidden"], s["heads"], bool(s["fused"])) for _ in range(s["layers"])
        )
        self.norm: Any = nn.LayerNorm(s["hidden"])
        self.head: Any = nn.Linear(s["hidden"], s["vocabulary"], bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.tokens is not None:
            x = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))


def divide(model: Any, mesh: Any) -> None:
    for block in model.blocks:
        columns = [("attention", name) for name in ("q", "k", "v", "qkv")]
        columns += [("mlp", name) for name in ("gate", "up")]
        plan = {
            f"{part}.{name}": ColwiseParallel()
            for part, name in columns
            if hasattr(getattr(block, part), name)
        }
        rows = {"attention.out": RowwiseParallel(), "mlp.down": RowwiseParallel()}
        parallelize_module(block, mesh, {**plan, **rows})


def shard(model: Any, mesh: Any) -> None:
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def loss_of(result: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(result.flatten(0, 1), target.flatten())


def pipeline(model: Any, s: dict[str, int], group: Any, place: int, stages: int, replicas: Any) -> Any:
    share = s["layers"] // stages
    model.blocks = model.blocks[place * share : (place + 1) * share]
    if place > 0:
        model.tokens = model.places = None
    if place < stages - 1:
        model.norm = model.head = None
    if replicas is not None:
        model = nn.parallel.DistributedDataParallel(model, process_group=replicas)
    stage = PipelineStage(model, place, stages, torch.device("cpu"), group=group)
    return Schedule1F1B(stage, s["microbatches"], loss_fn=loss_of)


def main() -> None:
    kind = sys.argv[1]
    s = SIZES | {name: int(value) for name, value in (each.split("=") for each in sys.argv[2:])}
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    world, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    model: Any = Gpt(s)
    schedule, place, stages = None, 0, world
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    elif kind == "fsdp2":
        shard(model, init_device_mesh("cpu", (world,)))
    elif kind == "tp":
        divide(model, init_device_mesh("cpu", (world,)))
    elif kind == "tp_ddp":
        mesh = init_device_mesh("cpu", (world // s["tp"], s["tp"]), mesh_dim_names=("dp", "tp"))
        divide(model, mesh["tp"])
        _pre_dp_module_transform(model)
        model = nn.parallel.DistributedDataParallel(model, process_group=mesh["dp"].get_group())
    elif kind == "mesh":
        mesh = init_device_mesh("cpu", (world // s["tp"], s["tp"]), mesh_dim_names=("dp", "tp"))
        divide(model, mesh["tp"])
        shard(model, mesh["dp"])
    elif kind == "1f1b":
        place = rank
        schedule = pipeline(model, s, None, place, stages, None)
    elif kind == "1f1b_ddp":
        stages = s["pp"]
        mesh = init_device_mesh("cpu", (stages, world // stages), mesh_dim_names=("pp", "dp"))
        place = mesh["pp"].get_local_rank()
        schedule = pipeline(model, s, mesh["pp"].get_group(), place, stages, mesh["dp"].get_group())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = s["batch"] * (s["microbatches"] if schedule else 1)
    for _ in range(4):
        x = torch.randint(0, s["vocabulary"], (rows, s["sequence"]))
        if schedule is None:
            loss_of(model(x), x).backward()
        else:
            given = [x] if place == 0 else []
            schedule.step(*given, **({"target": x} if place == stages - 1 else {}))
        optimizer.step()
        optimizer.zero_grad()
    # Replicas end before their group: as its last owner they would wait for its thread, which waits for Python's lock.
    del model, optimizer, schedule
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
