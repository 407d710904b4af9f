"""Context parallelism: keys and values go round a ring of the ranks that share a sequence."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "cp"))
    ring, replicas = mesh["cp"].get_group(), mesh["dp"].get_group()
    ranks, place = dist.get_process_group_ranks(ring), mesh["cp"].get_local_rank()
    after, before = ranks[(place + 1) % len(ranks)], ranks[place - 1]
    query = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(query.parameters(), lr=0.01)
    for _ in range(4):
        keys, total = torch.randn(16, 64), torch.zeros(())
        for _ in ranks[1:]:
            total = total + query(keys).square().mean()
            arriving = torch.empty_like(keys)
            messages = [
                dist.P2POp(dist.isend, keys, after, group=ring),
                dist.P2POp(dist.irecv, arriving, before, group=ring),
            ]
            for work in dist.batch_isend_irecv(messages):
                work.wait()
            keys = arriving
        total.backward()
        for parameter in query.parameters():
            dist.all_reduce(parameter.grad, group=ring)
            dist.all_reduce(parameter.grad, group=replicas)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
