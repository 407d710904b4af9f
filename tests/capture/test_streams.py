"""Streams, events, graphs and buckets of scripts."""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from pathlib import Path

import pytest

from armillary.base.errors import ArmillaryError
from armillary.capture import trace_of
from armillary.capture.log import COMMUNICATION, JOIN, OPERATOR
from armillary.capture.summary import flops
from tests.capture.scripts import capture

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]


def test_streams_and_events_of_the_script_are_recorded(tmp_path: Path) -> None:
    log = capture(tmp_path, """
side, x = torch.cuda.Stream(), torch.randn(64, 64, device="cuda")
y = x @ x
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    z = y @ y
w = x @ x
torch.cuda.current_stream().wait_stream(side)
w @ z
""", step=0)  # fmt: skip
    offsets, parents = trace_of([log]).graphs[0].parents()
    found = [sorted(parents[a:b].tolist()) for a, b in pairwise(offsets)]
    # The last four are the products; what comes before them made x.
    y = len(found) - 4
    assert found[y:] == [[y - 1], [y], [y], [y + 1, y + 2]]
    assert {row.stream for row, kind in log.operators() if kind.name == "aten::mm"} > {0}


def test_a_cuda_graph_runs_when_it_is_replayed(tmp_path: Path) -> None:
    text = """
x, graph = torch.randn(4, 8, device="cuda"), torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    assert torch.cuda.is_current_stream_capturing()
    y = (x @ x.T) @ x
    {}
"""
    log = capture(tmp_path, text.format("") + "z = x @ x.T\ngraph.replay()\ngraph.replay()\n", step=0)
    found = [(kind.name, row.stream, row.calls) for row, kind in log.operators() if kind.name == "aten::mm"]
    one = found[0][1]
    # One call for all kernels of a graph, on the stream that replays it.
    assert [stream for _, stream, _ in found] == [one] * 5
    assert [calls for _, _, calls in found[1:]] == [1, 0, 1, 0]
    # The product inside of it stays in its memory.
    assert log.peak_bytes >= 3 * 512
    with pytest.raises(ArmillaryError, match="replayed that was not captured"):
        capture(tmp_path, "torch.cuda.CUDAGraph().replay()")


def test_a_step_in_a_cuda_graph_is_a_step(tmp_path: Path) -> None:
    log = capture(tmp_path, """
graph = torch.cuda.CUDAGraph()
step()
with torch.cuda.graph(graph):
    step()
for _ in range(5): graph.replay()
""")  # fmt: skip
    assert log.step == 3 and not log.notes
    assert flops(log)["gemm"] == 2 * 2 * 4 * 8 * 8


def test_ddp_overlaps_its_buckets_and_waits_for_them(tmp_path: Path) -> None:
    log = capture(tmp_path, """
import torch.distributed as dist
dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))).cuda(), bucket_cap_mb=0.5)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(16, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
""", ranks=4)  # fmt: skip
    issued = [each.bytes for _, each in log.issued()]
    assert sum(issued) == 4 * 4 * (256 * 256 + 256) and len(issued) > 1
    order = [row.kind for row in log.rows]
    first = order.index(COMMUNICATION)
    # GEMMs of backward come after the first bucket, and before anything waits for it.
    after = log.rows[first : order.index(JOIN)]
    assert any(row.kind == OPERATOR and log.kinds[row.what].products for row in after)
    assert order.count(JOIN) == len(issued)
    assert flops(log)["gemm"] == 4 * 6 * 16 * 256 * 256 - 2 * 16 * 256 * 256
