"""Sharded data parallelism with replicas (HSDP): gradients of two microbatches are summed before they are reduced."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard"))
    blocks = [nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(3)]
    for block in blocks:
        fully_shard(block, mesh=mesh)
    model = nn.ModuleList(blocks)
    head = nn.Linear(32, 4)
    fully_shard(head, mesh=mesh)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.01, momentum=0.9)
    for _ in range(4):
        for last in (False, True):
            x = torch.randn(8, 32)
            for block in (*blocks, head):
                block.set_requires_gradient_sync(last)
                x = checkpoint(block, x, use_reentrant=False)
            x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
