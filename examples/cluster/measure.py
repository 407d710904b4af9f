"""Measure a cluster for `armillary calibrate observe`: GEMMs, all-reduces and steps of a small model.

    torchrun --nproc-per-node 2 measure.py FOLDER

It writes gemms.csv, collectives.csv, steps.yaml and the model's description, model.yaml, to FOLDER. On GPUs it runs
NCCL, on CPUs gloo, in fp32 either way.
"""

import os
import sys
import time
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

SIZES = [(64, 256, 256), (128, 256, 256), (256, 256, 256), (256, 256, 1024), (256, 1024, 256), (512, 512, 512),
         (64, 1024, 1024), (1024, 256, 1024), (512, 1024, 1024), (1024, 1024, 1024)]  # fmt: skip
BYTES = [2**n for n in range(12, 25, 2)]
BATCHES = [4, 8, 16, 24]  # sequences of a step, over all ranks
LAYERS, HIDDEN, HEADS, MLP, WORDS, SEQUENCE = 4, 256, 4, 1024, 4096, 64
REPEATS = 5


def timed(work, count: int) -> list[float]:
    """Return seconds of each of `count` calls, after one that warms up."""
    found = []
    for _ in range(count + 1):
        wait()
        start = time.perf_counter()
        work()
        wait()
        found.append(time.perf_counter() - start)
    return found[1:]


def wait() -> None:
    """Let the device finish, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Layer(nn.Module):
    """A layer of a Llama, with attention written out."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(HIDDEN) for _ in range(2))
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate, self.up = (nn.Linear(HIDDEN, MLP, bias=False) for _ in range(2))
        self.down = nn.Linear(MLP, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (batch, sequence, hidden)."""
        batch, sequence, _ = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, sequence, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = parts[0] @ parts[1].transpose(-1, -2) / (HIDDEN / HEADS) ** 0.5
        mask = torch.ones(sequence, sequence, dtype=torch.bool, device=x.device).tril()
        seen = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ parts[2]
        x = x + self.out(seen.transpose(1, 2).reshape(batch, sequence, HIDDEN))
        y = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


def main() -> None:
    """Measure on all ranks; the first one writes."""
    folder = Path(sys.argv[1])
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    torch.set_num_threads(1)
    name = torch.cuda.get_device_name() if cuda else "cpu"

    gemms = ["m,n,k,time,precision"]
    for m, n, k in SIZES:
        left, right = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
        # All ranks compute at a time, as they do in a step.
        dist.barrier()
        gemms += [
            f"{m},{n},{k},{1e6 * each:.3f},fp32"
            for each in timed(partial(torch.matmul, left, right), REPEATS)
        ]

    calls = ["device,op,dtype,gpus,bytes,us"]
    for size in BYTES:
        data = torch.zeros(size // 4, device=device)
        calls += [f"{name},all_reduce,float,{ranks},{size},{1e6 * each:.3f}"
                  for each in timed(partial(dist.all_reduce, data), REPEATS)]  # fmt: skip

    torch.manual_seed(0)
    layers = [nn.Embedding(WORDS, HIDDEN), *(Layer() for _ in range(LAYERS)), nn.RMSNorm(HIDDEN)]
    model = nn.Sequential(*layers, nn.Linear(HIDDEN, WORDS, bias=False)).to(device)
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    steps = []
    for batch in BATCHES:
        words = torch.randint(0, WORDS, (batch // ranks, SEQUENCE), device=device)

        def step(words: torch.Tensor = words) -> None:
            optimizer.zero_grad()
            functional.cross_entropy(model(words).flatten(0, 1), words.flatten()).backward()
            optimizer.step()

        seconds = timed(step, REPEATS)
        plan = f"{{batch: {batch}, microbatch: {batch // ranks}}}"
        steps.append(f"  - {{plan: {plan}, seconds: [{', '.join(f'{each:.6f}' for each in seconds)}]}}")

    if rank == 0:
        texts = {
            "gemms.csv": gemms,
            "collectives.csv": calls,
            "model.yaml": [
                "kind: decoder", "name: small", f"layers: {LAYERS}", f"hidden: {HIDDEN}", f"vocabulary: {WORDS}",
                f"context: {SEQUENCE}", "tied: false", "norm: rms", "activation: swiglu",
                f"attention: {{heads: {HEADS}}}", f"mlp: {{size: {MLP}}}",
            ],
            "steps.yaml": [
                "model: model.yaml", f"ranks: {ranks}",
                f"plan: {{sequence: {SEQUENCE}, attention: unfused, numbers: {{compute: fp32}}, sharding: ddp}}",
                "steps:", *steps,
            ],
        }  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        for file, lines in texts.items():
            (folder / file).write_text("\n".join([*lines, ""]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
