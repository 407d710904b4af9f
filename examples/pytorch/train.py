"""Two layers trained in data parallel on CPUs: what `armillary trace collect --ranks 2` records here."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    """Train for four steps."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10)), bucket_cap_mb=0.5
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(torch.randn(64, 256)), torch.randint(10, (64,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
