"""Pipeline stages (1F1B) of sharded (FSDP2), tensor-parallel, checkpointed blocks, four ranks a stage."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda given: self.down(nn.functional.gelu(self.up(given))), x, use_reentrant=False)


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    stages = dist.get_world_size() // 4
    mesh = init_device_mesh("cpu", (stages, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    blocks = [Block() for _ in range(2)]
    for block in blocks:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    model = nn.Sequential(*blocks)
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    place = mesh["pp"].get_local_rank()
    stage = PipelineStage(model, place, stages, torch.device("cpu"), group=mesh["pp"].get_group())
    schedule = Schedule1F1B(stage, 2 * stages, loss_fn=nn.functional.mse_loss)
    for _ in range(4):
        if place == 0:
            schedule.step(torch.randn(16, 32))
        elif place == stages - 1:
            schedule.step(target=torch.randn(16, 32), losses=[])
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
