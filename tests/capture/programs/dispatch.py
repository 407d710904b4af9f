"""Experts that get unequal numbers of tokens: members of a group tell each other how many, then send them."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "ep"))
    group = mesh["ep"].get_group()
    members = dist.get_world_size(group)
    expert = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    optimizer = torch.optim.SGD(expert.parameters(), lr=0.01)
    device = next(expert.parameters()).device
    for _ in range(4):
        # The first expert is the most popular one.
        give = 3 * torch.arange(members, 0, -1, device=device)
        get = torch.empty_like(give)
        dist.all_to_all_single(get, give, group=group)
        sent, got = give.tolist(), get.tolist()
        tokens = torch.randn(sum(sent), 32)
        here = torch.empty(sum(got), 32)
        dist.all_to_all_single(here, tokens, got, sent, group=group)
        done = expert(here)
        back = torch.empty_like(tokens)
        dist.all_to_all_single(back, done.detach(), sent, got, group=group)
        done.square().mean().backward()
        for parameter in expert.parameters():
            dist.all_reduce(parameter.grad, group=mesh["dp"].get_group())
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
