"""Pipeline parallelism by hand: activations go to the next rank, their gradients come back."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

MICROBATCHES = 2


def main() -> None:
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    torch.manual_seed(0)
    stage = nn.Sequential(nn.Linear(64, 64), nn.GELU())
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.01)
    for _ in range(4):
        for _ in range(MICROBATCHES):
            given = torch.randn(8, 64)
            if rank > 0:
                dist.recv(given, rank - 1)
                given.requires_grad_(True)
            result = stage(given)
            if rank < last:
                dist.send(result.detach(), rank + 1)
                gradient = torch.empty_like(result)
                dist.recv(gradient, rank + 1)
                result.backward(gradient)
            else:
                result.square().mean().backward()
            if rank > 0:
                dist.send(given.grad, rank - 1)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
