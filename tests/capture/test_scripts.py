"""Scripts that are captured here, with PyTorch."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.base.errors import ArmillaryError, InputError
from armillary.capture import Log, capture_script, trace_of
from armillary.capture.log import COMMUNICATION, JOIN, OPERATOR
from armillary.capture.summary import assumptions, flops
from armillary.cli import main
from armillary.explore.training.captured import captured_step

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "capture.md"
ENDLESS = """
import runpy, sys
from armillary.capture import capturing, recorder
recorder.MOST_ROWS = 100
with capturing(sys.argv[1] + ".cap"):
    runpy.run_path(sys.argv[1])
"""
TRAIN = """
import sys, torch
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    loss = model(torch.randn(4, 8, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""


def capture(tmp_path: Path, text: str, **options: object) -> Log:
    file = tmp_path / "script.py"
    file.write_text(TRAIN + text)
    return capture_script(str(file), folder=tmp_path / "cap", **options)[0]  # type: ignore[arg-type]


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
    ("text", "message"),
    [
        ("while not torch.randn((), device='cuda').gt(5).item(): pass", "asked 10,000 times for values"),
        ("import flash_attn", "flash_attn.*scaled_dot_product_attention"),
        (
            "@torch.library.custom_op('mine::op', mutates_args=(), device_types='cuda')\n"
            "def op(x: torch.Tensor) -> torch.Tensor: return x\nop(step())",
            "mine::op.*register_fake",
        ),
        ("import no_such_package", "script.py:11: ModuleNotFoundError.*install it here"),
        ("torch.eye(4, device='cuda').to_sparse()", "script.py:11: .*expected dense ones"),
        (
            "raise RuntimeError('mine\\nand more')",
            r"script.py:11: RuntimeError: mine \(rank 0; what it printed",
        ),
        ("sys.exit(3)", "SystemExit"),
        ("sys.stdin.read()", "script.py:11: EOFError.*no standard input"),
        ("input('width? ')", "script.py:11: EOFError.*no standard input"),
        ("torch.multiprocessing.spawn(lambda at: step(), nprocs=3)", "script.py:11: .*--ranks 3"),
        (
            "from multiprocessing import get_context\ndef train():\n    for _ in range(3): step()\n"
            "other = get_context('fork').Process(target=train)\nother.start()\nother.join()",
            "a process that it starts trains",
        ),
        ("torch.zeros(3, device='cuda:1')", "script.py:11: cuda:1 is asked for on a host of 1 GPUs"),
        ("__import__('subprocess').run(['nvidia-smi'])", "nvidia-smi.*torch.cuda answers"),
        (
            "import torch.distributed.rpc as rpc\nrpc.init_rpc('a', rank=0, world_size=2)",
            "script.py:12: .*rpc.*alone",
        ),
        (
            "import torch.distributed as dist\nstore = dist.TCPStore('localhost', 1, 2, False)\n"
            "store.set('a', 'b')\nassert store.get('a') == b'b'\nstore.get('c')",
            "script.py:15: it waits for the key 'c'",
        ),
        ("import os\nos.environ['SLURM_PROCID']", "SLURM_PROCID.*variables of torchrun"),
        ("__import__('os').kill(__import__('os').getpid(), 9)", "ended by SIGKILL .*no memory left"),
        ("__import__('os')._exit(0)", "ended with exit code 0 before its step"),
    ],
    ids=[
        "endless",
        "flash",
        "operator",
        "package",
        "shape",
        "own",
        "exit",
        "stdin",
        "input",
        "spawn",
        "forked",
        "absent",
        "smi",
        "rpc",
        "store",
        "launcher",
        "killed",
        "left",
    ],
)
def test_a_failure_is_one_line_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ArmillaryError, match=message) as failure:
        capture(tmp_path, text)
    assert "\n" not in str(failure.value)
    assert not list((tmp_path / "cap").glob("rank_*.gz"))


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
for _ in range(3):
    model(torch.randn(run[0]["rows"], 8, device="cuda")).sum().backward()
    optimizer.step()
""", ranks=4)  # fmt: skip
    assert next(kind.gemm for _, kind in log.operators() if kind.gemm)
    assert any(64 in shape for _, kind in log.operators() for shape, _ in kind.inputs)


def test_an_object_that_nobody_sends_is_not_waited_for(tmp_path: Path) -> None:
    text = (
        "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
        "if dist.get_rank(): dist.broadcast_object_list([None], src=0)\nfor _ in range(3): step()"
    )
    with pytest.raises(ArmillaryError, match="rank 1 waits for an object of rank 0, which sends none"):
        capture(tmp_path, text, ranks=2)


def test_processes_that_a_program_starts_are_not_captured(tmp_path: Path) -> None:
    text = "import multiprocessing\nother = multiprocessing.get_context('spawn').Process(target=print)\n"
    text += "if __name__ == '__main__':\n    other.start()\n    other.join()"
    (tmp_path / "script.py").write_text(text)
    with pytest.raises(ArmillaryError, match="processes that it starts are not captured"):
        capture_script(str(tmp_path / "script.py"), folder=tmp_path / "cap")


def test_a_program_that_makes_no_step_is_not_recorded_for_ever(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(
        "import torch\nx = torch.ones(8, device='cuda')\nwhile True: x = x + 1\n"
    )
    command = [sys.executable, "-c", ENDLESS, str(tmp_path / "endless.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "endless.py:3: 100 operators without a step of an optimizer" in done.stderr


def test_one_process_on_several_gpus_is_refused(tmp_path: Path) -> None:
    text = "for at in range(2): model.to(f'cuda:{at}')(torch.ones(2, 8, device=f'cuda:{at}'))"
    with pytest.raises(ArmillaryError, match="one process computes on cuda:0 and cuda:1"):
        capture(tmp_path, text, ranks=2, run=(0,))
    with pytest.raises(ArmillaryError, match="DataParallel computes on 2 GPUs"):
        capture(tmp_path, "torch.nn.DataParallel(model)(torch.ones(2, 8))", ranks=2, run=(0,))


def test_a_script_that_never_uses_the_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArmillaryError, match="ran nothing on the device"):
        (tmp_path / "cpu.py").write_text("import torch\ntorch.randn(3).sum()")
        capture_script(str(tmp_path / "cpu.py"), folder=tmp_path / "cap")


def test_without_a_compiler_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(InputError, match=r"needs a C\+\+ compiler.*apt-get install g\+\+"):
        capture(tmp_path, "step()")


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


def test_an_interrupted_capture_goes_on(tmp_path: Path) -> None:
    capture(tmp_path, "for _ in range(3): step()", ranks=2, run=(0,))
    said = json.loads((tmp_path / "cap" / "capture.json").read_text())
    assert said.pop("done") == [0]
    (tmp_path / "cap" / "capture.json").write_text(json.dumps(said))
    before = (tmp_path / "cap" / "rank_0.json.gz").stat().st_mtime_ns
    capture(tmp_path, "for _ in range(3): step()", ranks=2, run=(0, 1))
    assert (tmp_path / "cap" / "rank_0.json.gz").stat().st_mtime_ns == before
    # One that ended is run again: what the script imports may have changed.
    capture(tmp_path, "for _ in range(3): step()", ranks=2, run=(0,))
    assert (tmp_path / "cap" / "rank_0.json.gz").stat().st_mtime_ns > before
    assert not (tmp_path / "cap" / "rank_1.json.gz").exists()


def test_what_a_script_uses_decides_whether_its_capture_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import json, os, part\njson.load(open(os.path.join(os.path.dirname(__file__), 'keys.json')))\n"
    text += "os.environ.get('MINE')\nfor _ in range(3): step()"
    (tmp_path / "part.py").write_text("")
    (tmp_path / "keys.json").write_text("{}")

    def again() -> bool:
        file = tmp_path / "cap" / "capture.json"
        if file.exists():
            said = json.loads(file.read_text())
            said.pop("done")
            file.write_text(json.dumps(said))
        rank = tmp_path / "cap" / "rank_0.json.gz"
        before = rank.stat().st_mtime_ns if rank.exists() else 0
        capture(tmp_path, text)
        return rank.stat().st_mtime_ns > before

    assert again() and not again()
    (tmp_path / "part.py").write_text("other = 1")
    assert again() and not again()
    (tmp_path / "keys.json").write_text("[]")
    assert again() and not again()
    monkeypatch.setenv("MINE", "1")
    monkeypatch.setenv("SHLVL", "77")
    assert again() and not again()
