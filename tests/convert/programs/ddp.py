"""Data parallelism: DistributedDataParallel averages the gradients in buckets while backward runs."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 8))
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.1)
    optimizer = torch.optim.AdamW(parallel.parameters())
    for _ in range(4):
        loss = parallel(torch.randn(16, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
