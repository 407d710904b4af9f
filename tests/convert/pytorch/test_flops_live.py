"""FLOPs of recorded runs against PyTorch's own counter, and over the reference traces."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.convert import front_end
from armillary.convert.pytorch.flops import Arguments, exclusive, family, work

EXACT = {"matmul", "convolution", "attention"}


def calls(trace: dict[str, Any]) -> tuple[list[tuple[str, str, Arguments, Arguments]], list[int]]:
    """Return name, schema, inputs and outputs of every node, and the index of its parent."""
    found, parents, index = [], [], {node["id"]: at for at, node in enumerate(trace["nodes"])}
    for node in trace["nodes"]:
        if "input_shapes" in node:
            sides = [
                Arguments(node[f"{side}s"], node[f"{side}_shapes"], node[f"{side}_types"])
                for side in ("input", "output")
            ]
            schema, parent = node["op_schema"], node["parent"]
        else:
            sides = [
                Arguments(node[side]["values"], node[side]["shapes"], node[side]["types"])
                for side in ("inputs", "outputs")
            ]
            schema = next((a["value"] for a in node["attrs"] if a["name"] == "op_schema"), "")
            parent = node["ctrl_deps"]
        found.append((node["name"], schema, sides[0], sides[1]))
        parents.append(-1 if parent == node["id"] else index.get(parent, -1))
    return found, parents


def counted(trace: dict[str, Any]) -> tuple[int, int]:
    """Return the FLOPs of the exact families, and of all operators."""
    found, parents = calls(trace)
    shares = exclusive([work(*call) for call in found], parents, [call[0] for call in found])
    exact = sum(share.flops for share, call in zip(shares, found, strict=True) if family(call[0]) in EXACT)
    return exact, sum(share.flops for share in shares)


def both(step: Callable[[], Any], folder: Path, **mapping: Any) -> tuple[int, tuple[int, int]]:
    """Run `step` under PyTorch's counter, then under its recorder."""
    from torch.profiler import ExecutionTraceObserver
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False, **mapping) as counter:
        step()
    observer = ExecutionTraceObserver()
    observer.register_callback(str(folder / "host.json"))
    observer.start()
    step()
    observer.stop()
    observer.unregister_callback()
    return counter.get_total_flops(), counted(json.loads((folder / "host.json").read_text()))


@pytest.fixture(params=["mlp", "cnn", "upsampling", "encoder", "attention"])
def model(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(0)
    if request.param == "mlp":
        return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10)), torch.randn(32, 3, 64)
    if request.param == "cnn":
        layers = [
            nn.Conv2d(3, 16, 3, 2, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, (3, 1)),
            nn.Flatten(),
        ]
        return nn.Sequential(*layers, nn.LazyLinear(10)), torch.randn(4, 3, 32, 32)
    if request.param == "upsampling":
        layers = [nn.ConvTranspose2d(8, 4, 4, 2, 1), nn.Conv2d(4, 4, 3), nn.ConvTranspose2d(4, 2, 3, 3)]
        return nn.Sequential(*layers), torch.randn(2, 8, 9, 9)
    if request.param == "encoder":
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(3, 24, 64)

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(32, 96)

        def forward(self, x: Any) -> Any:
            query, key, value = self.project(x).view(2, 20, 4, 24).transpose(1, 2).chunk(3, -1)
            with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
                return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    return Attention(), torch.randn(2, 20, 32)


@pytest.mark.slow
def test_agrees_with_the_counter_of_pytorch(model: tuple[Any, Any], tmp_path: Path) -> None:
    import torch
    from torch.utils import flop_counter

    network, data = model
    network(data)

    def step() -> None:
        network(data).square().mean().backward()

    aten = torch.ops.aten
    mapping = {
        aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, out_shape=None, **__: (
            flop_counter.sdpa_flop_count(q, k, v)
        ),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda g, q, k, v, *_, out_shape=None, **__: (
            flop_counter.sdpa_backward_flop_count(g, q, k, v)
        ),
    }  # the counter of 2.13 does not know the kernels of the CPU
    expected, (exact, everything) = both(step, tmp_path, custom_mapping=mapping)
    assert exact == expected > 0
    assert exact <= everything < 1.3 * exact  # small layers: element-wise work shows


@pytest.mark.slow
def test_a_wide_step_is_within_one_percent_with_all_operators(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    network = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 1024))
    optimizer = torch.optim.AdamW(network.parameters(), foreach=True)
    data = torch.randn(4096, 1024)

    def step() -> None:
        network(data).square().mean().backward()
        optimizer.step()

    step()
    expected, (exact, everything) = both(step, tmp_path)
    assert exact == expected
    assert everything == pytest.approx(expected, rel=0.01)


def host_traces(shared: Path) -> dict[str, dict[str, Any]]:
    traces = {}
    for file in sorted((shared / "traces").glob("torch_cpu/*/host_0.json.gz")):
        traces[file.parent.name] = json.loads(gzip.decompress(file.read_bytes()))
    param = shared / "traces" / "param"
    for name in (
        "linear_et.json.gz",
        "1.0.3-chakra.0.0.4/resnet_1gpu_et.json.gz",
        "1.1.0-chakra.0.0.4/resnet_2gpu_et.json.gz",
    ):
        traces[name] = json.loads(gzip.decompress((param / name).read_bytes()))
    for name in ("dlrm_pytorch_et.tar.gz", "hf_GPT2_et.json.tar.gz"):
        with tarfile.open(param / name) as archive:
            member = next(
                m for m in archive if m.name.endswith(".json") and not Path(m.name).name.startswith("._")
            )
            data = archive.extractfile(member)
            assert data
            traces[name] = json.loads(data.read())
    return traces


@pytest.mark.shared
def test_all_operators_of_the_reference_traces_are_known(shared: Path) -> None:
    communication = ("c10d::", "_c10d_functional::")
    for name, trace in host_traces(shared).items():
        found, _ = calls(trace)
        unknown = {
            call[0]
            for call in found
            if call[1] and not call[0].startswith(communication) and work(*call) is None
        }
        # Its parts, log_softmax and nll_loss, are known.
        assert unknown <= {"aten::cross_entropy_loss"}, name


@pytest.mark.shared
def test_resnet_does_what_its_layers_do(shared: Path) -> None:
    """ResNet-50 with batch 32: 4.089 G multiply-adds an image forward, three passes but for the first layer."""
    exact, _ = counted(host_traces(shared)["1.0.3-chakra.0.0.4/resnet_1gpu_et.json.gz"])
    first = 64 * 112 * 112 * 147
    assert exact == pytest.approx(3 * 2 * 32 * (3 * 4.089e9 - first), rel=0.001)


@pytest.mark.shared
@pytest.mark.parametrize("run", ["single1", "ddp4", "fsdp4", "tp2", "pp2"])
def test_every_rank_of_the_cpu_runs_does_its_part(shared: Path, run: str) -> None:
    """The model of collect_traces.py: 4 blocks, of which tp2 divides fc1 and fc2 alone and pp2 gives two to each rank.

    SGD's update is two operations a weight. DDP divides each gradient by the ranks, FSDP each with the rows that
    make its leading dimension a multiple of them.
    """
    layers, width, tokens, length, words = 4, 128, 256, 64, 1024
    weights = layers * (12 * width + 13) * width + (2 * words + length + 2) * width
    averaged = {"ddp4": weights, "fsdp4": weights + 3 * length * width}.get(run, 0)
    feed_forward = 8 * width * width // (2 if run == "tp2" else 1)
    # Attention's backward pass computes the scores again: 5 products for 2.
    block = 3 * ((4 * width + 2 * length) * width + feed_forward) + length * width
    trace = front_end("pytorch").convert([shared / "traces/torch_cpu" / run]).trace
    for rank in range(trace.n_ranks):
        operations, names = trace.graph(rank).ints("num_ops"), np.array(trace.graph(rank).names())
        exact = operations[[family(name) in EXACT for name in names]].sum()
        blocks, heads = (layers // 2, rank) if run == "pp2" else (layers, 1)
        assert exact == 2 * tokens * (blocks * block + 3 * heads * words * width)
        assert exact < operations.sum() < 1.1 * exact
        assert operations[np.isin(names, ["aten::mul", "aten::div_"])].sum() == averaged
