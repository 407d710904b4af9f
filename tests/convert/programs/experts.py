"""Expert parallelism: tokens go to experts and back; experts are summed over replicas, the router over all ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "ep"))
    experts, replicas = mesh["ep"].get_group(), mesh["dp"].get_group()
    router, expert = nn.Linear(64, 64), nn.Sequential(nn.Linear(64, 256), nn.GELU())
    optimizer = torch.optim.SGD([*router.parameters(), *expert.parameters()], lr=0.01)
    for _ in range(4):
        tokens = router(torch.randn(8, 64))
        here = torch.empty_like(tokens)
        dist.all_to_all_single(here, tokens.detach(), group=experts)
        done = expert(here)
        back = torch.empty_like(done)
        dist.all_to_all_single(back, done.detach(), group=experts)
        (done.square().mean() + tokens.square().mean()).backward()
        for parameter in expert.parameters():
            dist.all_reduce(parameter.grad, group=replicas)
        for parameter in router.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
