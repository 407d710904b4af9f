"""Kernels that PyTorch runs, one by one, against those of a generated layer of the same sizes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from armillary.capture import capture_script
from armillary.workload.layers.embedding import _eager_loss
from armillary.workload.layers.linear import mlp_blocks, norm, residual
from armillary.workload.layers.shard import training_shard
from armillary.workload.plan.schema import Plan

TOKENS, WIDTH, INNER, WORDS = 512, 4096, 8192, 32768
PROGRAM = f"""
import torch
import torch.nn.functional as F
from torch import nn

class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones({WIDTH}))
    def forward(self, x):
        wide = x.float()
        root = wide.pow(2).mean(-1, keepdim=True).add_(1e-6).rsqrt()
        return (wide * root).type_as(x) * self.weight

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear({WIDTH}, {WIDTH}, bias=False)
        self.norm = Norm()
        self.gate, self.up = (nn.Linear({WIDTH}, {INNER}, bias=False) for _ in range(2))
        self.down, self.head = nn.Linear({INNER}, {WIDTH}, bias=False), nn.Linear({WIDTH}, {WORDS}, bias=False)
    def forward(self, x):
        x = self.first(x)
        h = self.norm(x)
        return self.head(x + self.down(F.silu(self.gate(h)) * self.up(h)))

model = Model().cuda().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    words = torch.zeros({TOKENS}, dtype=torch.long, device="cuda")
    x = torch.empty({TOKENS}, {WIDTH}, device="cuda", dtype=torch.bfloat16)
    F.cross_entropy(model(x).float(), words).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_a_layer_and_a_loss_that_are_not_compiled_have_the_kernels_of_pytorch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    [log] = capture_script(str(tmp_path / "train.py"), folder=tmp_path / "cap")
    least = TOKENS * WIDTH
    # Numbers of a token or of a column are left out, and so is the optimizer.
    captured = [
        (kind.size, kind.name)
        for _, kind in log.operators()
        if kind.size > least and not kind.products and "foreach" not in kind.name and "zero" not in kind.name
    ]
    keys = {"compiled": False, "projections": "separate", "loss": "eager", "data": {"sharding": "fsdp"}}
    plan = Plan.model_validate({"ranks": 1, "batch": 1, "sequence": TOKENS, **keys})
    shard = training_shard(plan, TOKENS, 0)
    logits = TOKENS * WORDS * 2
    blocks = [
        norm(shard, "norm", WIDTH, WIDTH),
        *mlp_blocks(shard, WIDTH, INNER, gated=True, bias=False),
        residual(shard, "residual", WIDTH),
        _eager_loss(shard, logits, 2 * logits, 4 * TOKENS),
    ]
    generated = [
        (step.bytes, f"{block.name}.{step.name}")
        for block in blocks
        for step in (*block.forward, *block.backward)
        if not step.gemms
    ]
    assert len(captured) == len(generated)
    for (mine, name), (other, said) in zip(sorted(generated), sorted(captured), strict=True):
        assert mine == pytest.approx(other, rel=0.01), (name, said)


def test_the_gradient_of_a_norm_that_is_not_compiled_moves_49_tensors() -> None:
    plan = {"ranks": 1, "batch": 1, "sequence": 128, "compiled": False}
    block = norm(training_shard(Plan.model_validate(plan), 128, 0), "norm", 256, 256)
    passes = [
        sum(step.bytes for step in steps) / (128 * 256 * 2) for steps in (block.forward, block.backward)
    ]
    assert passes == [18, 49]
