"""Operators of CUDA without memory: the same sizes as on the CPU, and the same values where these came from there."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from armillary.capture import capture_script
from armillary.capture.torch_cuda import WHOLE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
SAME = """
import torch, torch.nn as nn, torch.nn.functional as F
NUMBERS, FLAGS = torch.tensor([3, 1, 3, 0, 7, 7, 1, 2]), torch.tensor([1, 0, 0, 1, 1, 0, 1, 0]) > 0
def trained(module, *inputs):
    made = module(*inputs)
    made = made[0] if isinstance(made, tuple) else made
    made.sum().backward()
    return [made, *(each.grad for each in module.parameters()), *(each.grad for each in inputs if each.requires_grad)]
def noise(d, *shape): return torch.randn(*shape, device=d, requires_grad=True)
def ctc(d, lengths):
    x = noise(d, 20, 4, 10)
    loss = F.ctc_loss(x.log_softmax(-1), torch.randint(1, 10, (4, 5), device=d), torch.full((4,), 20, device=lengths),
                      torch.full((4,), 5, device=lengths), reduction="none")
    loss.sum().backward()
    return loss, x.grad
def stepped(d, name):
    model = nn.Linear(8, 8).to(d)
    model(torch.randn(2, 8, device=d)).sum().backward()
    getattr(torch.optim, name)(model.parameters(), lr=0.1, fused=True).step()
    return list(model.parameters())
CASES = {
    "nonzero": lambda d: FLAGS.to(d).nonzero(), "where": lambda d: torch.where(FLAGS.to(d)),
    "mask": lambda d: NUMBERS.to(d)[FLAGS.to(d)], "rows": lambda d: NUMBERS.to(d).view(4, 2)[FLAGS[:4].to(d)],
    "square": lambda d: NUMBERS.to(d).view(4, 2)[FLAGS.to(d).view(4, 2)],
    "masked_select": lambda d: torch.masked_select(noise(d, 3, 8), FLAGS.to(d)),
    "unique": lambda d: torch.unique(NUMBERS.to(d), return_inverse=True, return_counts=True),
    "rows apart": lambda d: torch.unique(NUMBERS.to(d).view(4, 2), dim=0),
    "consecutive": lambda d: torch.unique_consecutive(NUMBERS.to(d)),
    "bincount": lambda d: torch.bincount(NUMBERS.to(d)),
    "weighted": lambda d: torch.bincount(NUMBERS.to(d), torch.ones(8, device=d)),
    "repeat": lambda d: torch.repeat_interleave(noise(d, 8), NUMBERS.to(d)),
    "equal": lambda d: [torch.tensor([torch.equal(NUMBERS.to(d), NUMBERS.to(d) + at) for at in (0, 1)])],
    "copied": lambda d: torch.empty(8, device=d, dtype=torch.int64).copy_(NUMBERS) * 2,
    "zeroed": lambda d: torch.empty(4, device=d).zero_() + 1, "filled": lambda d: torch.empty(4, device=d).fill_(3),
    "rate": lambda d: torch.tensor(0.1, device=d) * 2,
    "gru cell": lambda d: trained(nn.GRUCell(6, 5).to(d), noise(d, 4, 6)),
    "gru": lambda d: trained(nn.GRU(6, 5, 2).to(d), noise(d, 7, 4, 6)),
    "margin": lambda d: trained(nn.Sequential(nn.Linear(6, 5), nn.LogSoftmax(1)).to(d), noise(d, 4, 6)),
    "multi margin": lambda d: F.multi_margin_loss(noise(d, 4, 6), torch.tensor([1, 2, 3, 0], device=d)),
    "ctc": lambda d: ctc(d, d), "ctc, lengths on the CPU": lambda d: ctc(d, "cpu"),
    **{f"fused {name}": lambda d, name=name: stepped(d, name) for name in ("SGD", "Adam", "AdamW", "Adagrad")},
}
UNKNOWN = ("masked", "repeat", "weighted", "gru", "margin", "multi", "ctc", "fused")
for name, case in CASES.items():
    found, wanted = case("cuda"), case("cpu")
    found, wanted = ([each] if isinstance(each, torch.Tensor) else list(each) for each in (found, wanted))
    assert [(each.shape, each.dtype) for each in found] == [(each.shape, each.dtype) for each in wanted], name
    if not name.startswith(UNKNOWN):
        assert [each.tolist() for each in found] == [each.tolist() for each in wanted], name
x = torch.randn(10, device="cuda")
assert len(x[x > 0]) == 10 and len(torch.unique(x)) == 10 and torch.equal(x, x + 1)
"""
SHARED = """
import torch, torch.distributed as dist, torch.nn as nn
dist.init_process_group("nccl")
rank = dist.get_rank()
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(288, 4)).cuda()
model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
pages = torch.empty(5, pin_memory=True)
for _ in range(4):
    model(torch.randn(2, 3, 8, 8, device="cuda")).sum().backward()
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as work:
        for _ in range(3): dist.all_reduce(torch.ones(4, device="cuda"))
    work.wait()
    optimizer.step()
"""
RING = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
x = torch.ones(8, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)
for _ in range(3):
    loss = x.sum()
    for _ in range(dist.get_rank()): loss = loss * 2
    loss.backward()
    dist.all_reduce(x.grad)
    optimizer.step()
"""


PARTS = """
import torch, torch.nn as nn
x = torch.randn(4, 8, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
norm = nn.RMSNorm(64).cuda().bfloat16()
nn.functional.mish(nn.functional.silu(norm(x))).sum().backward()
assert x.grad.shape == x.shape and x.grad.dtype == x.dtype and norm.weight.grad.shape == (64,)
"""


def captured(tmp_path: Path, text: str, **options: object) -> list[object]:
    script = tmp_path / "script.py"
    script.write_text(text)
    return list(capture_script(str(script), folder=tmp_path / "cap", **options))  # type: ignore[arg-type]


def test_sizes_are_those_of_the_cpu_and_of_what_is_known_values_too(tmp_path: Path) -> None:
    (log,) = captured(tmp_path, SAME, step=0)
    # The last line reads what nobody knows: a mask, numbers, and whether two tensors are equal.
    assert sum(log.assumed.values()) == 3  # type: ignore[attr-defined]


def test_statistics_of_a_batch_are_gathered_and_collectives_may_come_together(tmp_path: Path) -> None:
    (log,) = captured(tmp_path, SHARED, ranks=4, run=(0,))
    calls = [each.type for _, each in log.issued()]  # type: ignore[attr-defined]
    assert calls.count("all-gather") == 1, "mean, deviation and count of the batch norm"
    bytes_sent = [each.bytes for _, each in log.issued() if each.type == "all-reduce"]  # type: ignore[attr-defined]
    assert 3 * 4 * 4 in bytes_sent, "three tensors of four numbers at once"


def test_ranks_that_all_differ_are_all_run(tmp_path: Path) -> None:
    assert len(captured(tmp_path, RING, ranks=5)) == 5


def test_what_is_one_kernel_on_cuda_is_not_taken_apart(tmp_path: Path) -> None:
    (log,) = captured(tmp_path, PARTS, step=0)
    names = [kind.name.removeprefix("aten::") for _, kind in log.operators()]  # type: ignore[attr-defined]
    assert names[names.index("_fused_rms_norm") :] == [
        "_fused_rms_norm", "silu", "mish", "sum", "ones_like",
        "mish_backward", "silu_backward", "_fused_rms_norm_backward",
    ]  # fmt: skip
    assert not log.assumed and not any(kind.family == "" for kind in log.kinds)  # type: ignore[attr-defined]


def test_tensors_that_hold_others_are_recorded_by_what_these_do(tmp_path: Path) -> None:
    text = "import torch\nfrom torch.testing._internal.two_tensor import TwoTensor\n"
    text += "x = torch.ones(4, 8, device='cuda')\nTwoTensor(x, x) @ TwoTensor(x.T, x.T)\n"
    (log,) = captured(tmp_path, text, step=0)
    names = [kind.name for _, kind in log.operators()]  # type: ignore[attr-defined]
    assert names.count("aten::mm") == 2


def test_all_operators_that_cuda_does_not_take_apart_are_known() -> None:
    """As the wheel's own list of operators has them: parts for any device, and a kernel for CUDA beside."""
    import torchgen
    from yaml import safe_load

    path = Path(torchgen.__file__).with_name("packaged") / "ATen/native/native_functions.yaml"
    listed = {each["func"].split("(")[0]: each for each in safe_load(path.read_text())}

    def keys(name: str) -> set[str]:
        dispatch = listed[name].get("dispatch") or {}
        own = {key.strip() for keys in dispatch for key in keys.split(",")}
        return own | (keys(sibling) if (sibling := listed[name].get("structured_delegate")) else set())

    assert {name for name in listed if {"CUDA", "CompositeImplicitAutograd"} <= keys(name)} == set(WHOLE)
