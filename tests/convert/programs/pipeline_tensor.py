"""Two pipeline stages (1F1B) of two tensor-parallel ranks each: messages and sums are of different groups."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("pp", "tp"))
    block = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    parallelize_module(block, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(block.parameters(), lr=0.01)
    place = mesh["pp"].get_local_rank()
    stage = PipelineStage(block, place, 2, torch.device("cpu"), group=mesh["pp"].get_group())
    schedule = Schedule1F1B(stage, 4, loss_fn=nn.functional.mse_loss)
    for _ in range(4):
        if place == 0:
            schedule.step(torch.randn(16, 64))
        else:
            schedule.step(target=torch.randn(16, 64), losses=[])
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
