"""Scripts that are captured here, with PyTorch."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.capture.summary import assumptions
from armillary.cli import main
from armillary.explore.training.captured import captured_step
from tests.capture.scripts import capture

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "capture.md"


def test_the_page_shows_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    text = HOW_TO.read_text()
    for name, content in re.findall(r"<!-- file: (\S+) -->\n```\w*\n(.*?)^```$", text, re.S | re.M):
        Path(name).write_text(content)
    # The one after it needs torchtitan.
    transcript, *_ = re.findall(r"^```shell-session\n(.*?)^```$", text, re.S | re.M)
    for part in re.split(r"^\$ ", transcript, flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        made = CliRunner().invoke(main, shlex.split(command)[1:])
        assert made.exit_code == 0, made.output
        at = 0
        for piece in expected.split("...\n"):
            found = made.output.find(piece, at)
            assert found >= 0, f"{command}: promised\n{piece}\nbut got\n{made.output}"
            at = found + len(piece)
    # Matrix products and attention of 8 layers, width 4096, 4096 tokens, 32,000 words; and the first block's gradients.
    width, tokens, layers, words = 4096, 4096, 8, 32000
    counted = json.loads(Path("cap.json").read_text())["classes"][0]["flops_by_kind"]
    assert counted["gemm"] == 6 * tokens * (12 * layers * width**2 + words * width)
    # A query meets (tokens + 1) / 2 keys; backward computes 2.5 times as much.
    assert counted["attention"] == layers * 14 * width * (tokens * (tokens + 1) // 2)


def test_the_third_step_is_recorded_or_the_last(tmp_path: Path) -> None:
    log = capture(tmp_path, "for _ in range(5): step()\nraise SystemError")
    assert log.step == 3 and not log.notes
    again = capture(tmp_path, "for _ in range(2): step()")
    assert again.step == 2 and "2 steps: the last" in again.notes[0]
    assert [kind.name for _, kind in again.operators()] == [kind.name for _, kind in log.operators()]
    whole = capture(tmp_path, "for _ in range(2): step()", step=0)
    assert whole.step == 0 and len(list(whole.operators())) > 2 * len(list(log.operators()))


def test_values_are_assumed_and_counted(tmp_path: Path) -> None:
    log = capture(
        tmp_path,
        "for at in range(9):\n    loss = step()\n    if loss.item() > 2: break\n    assert loss.item() == 1",
    )
    assert sum(log.assumed.values()) == 4 and all(place.startswith("script.py:") for place in log.assumed)
    log = capture(
        tmp_path,
        "n = torch.arange(5, device='cuda')\nassert n.sum().item() == 10 and n.tolist()[4] == 4\nstep()",
    )
    assert not log.assumed


@pytest.mark.parametrize(
    "text",
    [
        "for _ in range(3):\n    loss = step()\n    if not torch.isfinite(loss): raise ValueError\n"
        "    if (loss > 2).any(): 1 / 0",
        "for _ in range(2): loss = step()\nassert f'{loss:.3f} {loss}' == '1.000 1.0', f'{loss:.3f} {loss}'\n"
        "f'{model.weight}'\nstep()",
        "def train(at, steps):\n    assert at == 0\n    for _ in range(steps): step()\n"
        "torch.multiprocessing.spawn(train, args=(3,), nprocs=torch.cuda.device_count())",
        "event = torch.cuda.Event(enable_timing=True)\nfor _ in range(3):\n    step()\n    event.record()\n"
        "    torch.cuda.synchronize()\n    event.elapsed_time(event)",
        "@torch.compile(fullgraph=True)\ndef double(x): return 2 * x\nmodel = torch.compile(model)\n"
        "for _ in range(3): double(step())",
        "@torch.library.custom_op('mine::op', mutates_args=())\n"
        "def op(x: torch.Tensor) -> torch.Tensor: return x.clone()\n"
        "@op.register_fake\ndef _(x): return torch.empty_like(x)\nfor _ in range(3):\n    op(step())",
        "import torch.distributed as dist\ndist.init_process_group('nccl')\nfor _ in range(3):\n"
        "    tokens = torch.randn(64, 8, device='cuda')\n    chosen = model(tokens).topk(2, -1).indices.flatten()\n"
        "    counts = torch.bincount(chosen, minlength=4)\n    got = torch.empty_like(counts)\n"
        "    dist.all_to_all_single(got, counts)\n    out = torch.empty(sum(got.tolist()), 8, device='cuda')\n"
        "    dist.all_to_all_single(out, tokens.repeat_interleave(2, 0), got.tolist(), counts.tolist())\n"
        "    assert out.shape == (128, 8)\n    step()",
        "import os\nos.environb.get(b'HOME')\nfor _ in range(3): step()",
        "import io\nfile = io.BytesIO()\ntorch.save({'weight': model.weight, 'at': 3}, file)\nfile.seek(0)\n"
        "found = torch.load(file)\nassert found['weight'].shape == (8, 8) and found['at'] == 3\n"
        "for _ in range(3): step()",
        "import torch.distributed as dist\ndist.init_process_group('cpu:gloo,cuda:nccl')\n"
        "assert dist.get_backend() == 'nccl' and dist.get_backend(dist.new_group([0, 1], backend='gloo')) == 'gloo'\n"
        "for _ in range(3): step()",
        "from torch.distributed.device_mesh import init_device_mesh\nmesh = init_device_mesh('cuda', (2, 2))\n"
        "assert mesh.get_group(0).size() == 2\nfor _ in range(3): step()",
        "import os\nassert os.environ['TORCHELASTIC_RUN_ID'] and os.environ['GROUP_WORLD_SIZE'] == '1'\n"
        "with torch.cuda.nvtx.range('step'):\n    for _ in range(3): step()",
        "x = torch.zeros(1 << 18, device='cuda')\nbefore = torch.cuda.memory_allocated()\nassert before >= 1 << 20\n"
        "assert torch.cuda.mem_get_info()[0] == torch.cuda.mem_get_info()[1] - before\ndel x\n"
        "assert torch.cuda.memory_allocated() < 1 << 20 < torch.cuda.max_memory_allocated()\n"
        "torch.cuda.reset_peak_memory_stats()\nassert torch.cuda.memory_stats()['allocated_bytes.all.peak'] < 1 << 20\n"
        "for _ in range(3): step()",
        "import torch.distributed.optim\nassert torch.tensor([[step(), 2.0]]).tolist() == [[1, 2]]\n"
        "@torch.jit.script\ndef one(x: torch.Tensor): return x + torch.tensor(1)\nfor _ in range(3): step()",
        "from torch.nn.utils.rnn import pack_padded_sequence\nfor _ in range(3):\n    step()\n"
        "    x = torch.zeros(2, 5, 8, device='cuda')\n"
        "    packed = pack_padded_sequence(x, torch.tensor([5, 2]), True)\n"
        "    assert packed.data.shape == (7, 8) and packed.batch_sizes.tolist() == [2, 2, 1, 1, 1]",
        "numbers = torch.Generator(device='cuda').manual_seed(3)\nassert numbers.initial_seed() == 3\n"
        "torch.randn(3, generator=numbers, device='cuda')\nfor _ in range(3): step()",
        "import torch.distributed as dist\nfrom torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n"
        "dist.init_process_group('nccl')\nmodel = torch.nn.parallel.DistributedDataParallel(model)\n"
        "model.register_comm_hook(None, default_hooks.bf16_compress_hook)\nfor _ in range(3): step()",
        # What is made again is kept as long as what it is made of, also where nobody lets go of that.
        "held = torch.ones(8, device='cuda')\n@torch.compile\ndef part(x): return torch.sin(x * held) + 1\n"
        "for _ in range(4):\n    part(model(torch.randn(4, 8, device='cuda'))).sum().backward()\n    optimizer.step()",
        # An optimizer has the parameters before they move; and threads move some.
        "import threading\nlater = torch.nn.Linear(8, 8)\nlater.weight.mine = 1\n"
        "optimizer = torch.optim.SGD(later.parameters())\n"
        "mover = threading.Thread(target=later.cuda)\nmover.start()\nmover.join()\nmodel = later\n"
        "assert optimizer.param_groups[0]['params'][0] is later.weight and later.weight.mine == 1\n"
        "for _ in range(3):\n    model(torch.randn(4, 8, device='cuda')).sum().backward()\n"
        "    assert later.weight.grad.device.type == 'cuda'\n    optimizer.step()",
        # What a rank has saved all ranks load; a generator's state comes back from the device.
        "import os, torch.distributed as dist\ndist.init_process_group('nccl')\n"
        "torch.save(model.state_dict(), 'none.pt')\n"
        "assert not os.path.exists('none.pt')\n"
        "model.load_state_dict(torch.load('none.pt', map_location={'cuda:0': 'cuda:1'}))\n"
        "state = torch.get_rng_state().cuda()\ndist.broadcast(state, 0)\ntorch.set_rng_state(state.cpu())\n"
        "assert len({each.data_ptr() for each in model.parameters()}) == 2\nfor _ in range(3): step()",
        "from torch.profiler import profile, ProfilerActivity\n"
        "with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as watched:\n"
        "    for _ in range(3): step()",
        "old = torch.cuda.FloatTensor\nones = old(4, 8).fill_(1)\nassert isinstance(ones, old) and ones.is_cuda\n"
        "assert torch.zeros(2).type(torch.cuda.LongTensor).dtype == torch.int64\nfor _ in range(3): step()",
        "import torch.distributed as dist\nstore = dist.TCPStore('127.0.0.1', 29544, 4, False)\n"
        "dist.init_process_group('nccl', store=store, rank=0, world_size=4)\nfor _ in range(3): step()",
        "x = torch.randn(4, 8, device='cuda')\ngraphed = torch.cuda.make_graphed_callables(model, (x,))\n"
        "for _ in range(3):\n    graphed(x).sum().backward()\n    optimizer.step()",
        "with torch.autograd.profiler.profile(use_cuda=True):\n    for _ in range(3): step()",
        "assert torch.backends.cuda.is_built()\nother = torch.cuda.ExternalStream(0)\n"
        "for _ in range(3): step()\nother.synchronize()",
        "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
        "half = dist.split_group(split_ranks=[[0, 1], [2, 3]])\nassert half.size() == 2\nfor _ in range(3): step()",
    ],
    ids=[
        "finite",
        "format",
        "spawn",
        "synchronize",
        "compile",
        "custom",
        "dispatch",
        "bytes",
        "buffer",
        "backend",
        "mesh",
        "torchrun",
        "memory",
        "list",
        "packed",
        "generator",
        "hook",
        "kept",
        "moved",
        "saved",
        "profiled",
        "types",
        "tcp",
        "graphed",
        "old profiler",
        "external",
        "split",
    ],
)
def test_what_depends_on_the_device_runs(text: str, tmp_path: Path) -> None:
    log = capture(tmp_path, text, ranks=4, run=(0,))
    assert log.step == 3 and any(kind.products for _, kind in log.operators())


def test_objects_of_one_rank_reach_the_others(tmp_path: Path) -> None:
    log = capture(tmp_path, """
import torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
run = [{"name": "a", "rows": 64} if rank == 2 else None]
dist.broadcast_object_list(run, src=2)
mine = [None]
dist.scatter_object_list(mine, [8, 16, 24, 32] if rank == 0 else None)
assert mine == [8 * rank + 8], mine
pair = dist.new_group([1, 3])
told = [rank]
dist.broadcast_object_list(told, src=1, group=pair)
assert told == [1 if rank in (1, 3) else rank]
held = [model.weight if rank == 0 else None]
dist.broadcast_object_list(held)
assert held[0].shape == (8, 8) and held[0].is_cuda
for _ in range(3):
    model(torch.randn(run[0]["rows"], 8, device="cuda")).sum().backward()
    optimizer.step()
""", ranks=4)  # fmt: skip
    assert next(kind.gemm for _, kind in log.operators() if kind.gemm)
    assert any(64 in shape for _, kind in log.operators() for shape, _ in kind.inputs)


def test_experts_get_what_the_others_give(tmp_path: Path) -> None:
    log = capture(tmp_path, """
import torch.distributed as dist, torch.distributed._functional_collectives as functional
dist.init_process_group("nccl")
give = torch.arange(1, 5, device="cuda") * 3
get = torch.empty_like(give)
dist.all_to_all_single(get, give)
assert get.tolist() == [9] * 4, get.tolist()
assert functional.all_to_all_single(give, None, None, dist.group.WORLD).tolist() == [9] * 4
even = torch.tensor([2, 2, 3, 3], device="cuda")
dist.all_to_all_single(get, even)
assert get.tolist() == even.tolist()
for _ in range(3): step()
""", ranks=4, run=(2,))  # fmt: skip
    assert not log.assumed


@pytest.mark.parametrize(
    "counts", ["torch.bincount(scores.argmax(-1), minlength=4)", "torch.histc(scores, 4)"]
)
def test_experts_that_are_taken_to_be_even_are_said_to_be(counts: str, tmp_path: Path) -> None:
    text = (
        "for _ in range(3):\n    scores = model(torch.randn(64, 8, device='cuda'))\n"
        f"    many = [int(each) for each in ({counts}).tolist()]\n    assert max(many) - min(many) <= 1\n    step()"
    )
    log = capture(tmp_path, text)
    assert any("divided evenly" in each for each in assumptions([log]))
    assert any("divided evenly" in each for each in captured_step([log], "1xh100").assumptions)
    plain = capture(tmp_path, "for _ in range(3): step()")
    assert not assumptions([plain])


WAVES = """
class Waves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.nn.Linear(8, 8)
    def forward(self, x): return (torch.sin(self.part(x)) * 2 + 1).cos()
model = Waves().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize(
    ("text", "fused"),
    [
        ("whole = model = torch.compile(model)", True),
        ("model.compile()", True),
        ("model = torch.compile(model, disable=True)", False),
        ("model = torch.compile(model, backend='eager')", False),
        ("model.compile(backend='aot_eager')", False),
        ("model = torch.compile(torch.nn.Sequential(torch.compiler.disable(model)))", False),
        ("model.forward = torch.compiler.disable(model.forward)\nmodel = torch.compile(model)", False),
        ("torch._dynamo.config.disable = True\nmodel = torch.compile(model)", False),
        ("torch.compiler.set_stance('force_eager')\nmodel = torch.compile(model)", False),
    ],
)
def test_only_what_inductor_compiles_is_fused(text: str, fused: bool, tmp_path: Path) -> None:
    log = capture(tmp_path, f"{WAVES}{text}\nfor _ in range(3): step()")
    assert any(kind.name.startswith("compiled::") for _, kind in log.operators()) == fused
    # Modules have the names of the program.
    assert {place.module for place in log.places} <= {"", "part", "0", "0.part"}


def test_gradients_of_what_has_no_operator_belong_to_the_part_that_made_it(tmp_path: Path) -> None:
    text = """
class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.view_as(x)
    @staticmethod
    def backward(ctx, grad): return (torch.sin(grad) * 2 + 1).cos()
class Waves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.nn.Linear(8, 8)
    def forward(self, x): return Halved.apply(self.part(x))
part = Waves().cuda()
part.requires_grad_()
model = torch.nn.Sequential(WHICH, torch.nn.Linear(8, 8)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3): step()
"""
    names = [
        [kind.name for _, kind in capture(tmp_path, text.replace("WHICH", which)).operators()]
        for which in ("torch.compile(part)", "part")
    ]
    assert "compiled::sin_mul_add_and_more" in names[0] and "aten::sin" not in names[0]
    assert "aten::sin" in names[1]


def test_a_compiled_module_is_what_programs_expect_of_it(tmp_path: Path) -> None:
    capture(tmp_path, """
whole = torch.compile(model, mode="reduce-overhead")
assert whole._orig_mod is model and set(whole.state_dict()) == {"_orig_mod.weight", "_orig_mod.bias"}
assert isinstance(whole, torch._dynamo.OptimizedModule) and whole.weight is model.weight
whole.eval()
assert not model.training
for _ in range(3):
    torch.compiler.cudagraph_mark_step_begin()
    with torch._dynamo.utils.maybe_enable_compiled_autograd(True):
        whole(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()
""")  # fmt: skip


def test_what_is_saved_is_on_its_device_again_and_a_dtensor_is_one(tmp_path: Path) -> None:
    capture(tmp_path, """
import io, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
torch.save({"weight": model.weight, "at": 3}, "none.pt")
for place, wanted in ((None, "cuda"), ("cpu", "cpu"), (lambda held, _: held, "cpu"), ({"cuda:0": "cpu"}, "cpu")):
    found = torch.load("none.pt", map_location=place)
    assert found["weight"].device.type == wanted and found["at"] == 3, (place, found)
buffer = io.BytesIO()
torch.save(model.state_dict(), buffer)
buffer.seek(0)
assert torch.load(buffer)["weight"].is_cuda
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
step()
torch.save([model.state_dict(), optimizer.state_dict()], "parts.pt")
weights, state = torch.load("parts.pt", weights_only=True)
assert weights["weight"].to_local().shape == (2, 8) and weights["weight"].shape == (8, 8)
model.load_state_dict(weights)
optimizer.load_state_dict(state)
for _ in range(3): step()
""", ranks=4, run=(0,))  # fmt: skip


def test_parameters_of_fsdp1_may_be_offloaded_one_by_one(tmp_path: Path) -> None:
    log = capture(tmp_path, """
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel
dist.init_process_group("nccl")
model = FullyShardedDataParallel(model, cpu_offload=CPUOffload(True), use_orig_params=True, device_id=0)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3): step()
""", ranks=4, run=(0,))  # fmt: skip
    assert log.host_bytes


def test_gradients_of_views_are_from_where_the_views_are(tmp_path: Path) -> None:
    log = capture(tmp_path, """
class Halves(torch.nn.Module):
    def forward(self, x):
        one, two = x.chunk(2, -1)
        return torch.cat((-two, one), -1) * x
model = torch.compile(torch.nn.Sequential(model, Halves()))
for _ in range(3): step()
""")  # fmt: skip
    back = [(log.places[row.place], kind) for row, kind in log.operators() if log.places[row.place].backward]
    # One kernel of all of them, in place of several.
    [halves] = [kind for place, kind in back if place.module == "1"]
    assert halves.name.startswith("compiled::") and "cat" in halves.name
