"""Scripts that cannot be captured: one line says why, and where."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from armillary.base.errors import ArmillaryError, InputError
from armillary.capture import capture_script
from tests.capture.scripts import capture

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
ENDLESS = """
import runpy, sys
from armillary.capture import capturing, recorder
recorder.MOST_ROWS = 100
with capturing(sys.argv[1] + ".cap"):
    runpy.run_path(sys.argv[1])
"""


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
        (
            "torch.empty(2**40, device='cuda', dtype=torch.uint8)",
            r"script.py:11: OutOfMemoryError: .*Tried to allocate 1 TiB .* 79.11 GiB .*another --device",
        ),
        (
            "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
            "dist.broadcast_object_list([lambda: 1])",
            "script.py:13: objects that cannot be pickled",
        ),
        (
            "import tempfile\nfrom torch.utils.file_baton import FileBaton\nfrom armillary.capture import processes\n"
            "processes.PATIENCE_SECONDS = 0.1\nFileBaton(tempfile.mkstemp()[1]).wait()",
            "script.py:15: it waits for another process that builds this extension, .* remove /",
        ),
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
        "large",
        "unsent",
        "building",
    ],
)
def test_a_failure_is_one_line_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ArmillaryError, match=message) as failure:
        capture(tmp_path, text)
    assert "\n" not in str(failure.value)
    assert not list((tmp_path / "cap").glob("rank_*.gz"))


def test_the_state_of_an_optimizer_that_needs_all_ranks_is_refused(tmp_path: Path) -> None:
    text = """
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
dist.init_process_group("nccl")
model = FSDP(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).cuda(), use_orig_params=True)
optimizer = torch.optim.Adam(model.parameters())
step()
FSDP.optim_state_dict(model, optimizer)
"""
    with pytest.raises(
        ArmillaryError, match=r"not in the optimizer state.*after the recorded step \(--step\)"
    ):
        capture(tmp_path, text, ranks=2, run=(0,))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            "local()",
            "LOCAL_STATE_DICT asks all ranks for their shards.*SHARDED_STATE_DICT or FULL_STATE_DICT",
        ),
        ("sharded()", "ShardedTensor asks all ranks for their shards.*expected DTensor"),
    ],
    ids=["fsdp", "own"],
)
def test_shards_of_all_ranks_are_refused_with_what_to_use(make: str, message: str, tmp_path: Path) -> None:
    text = """
import torch.distributed as dist
from torch.distributed._shard.sharded_tensor import Shard, init_from_local_shards
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
dist.init_process_group("nccl")
def local():
    whole = FSDP(torch.nn.Linear(8, 8).cuda())
    with FSDP.state_dict_type(whole, StateDictType.LOCAL_STATE_DICT):
        whole.state_dict()
def sharded():
    part = Shard.from_tensor_and_offsets(torch.ones(4, device="cuda"), [4 * dist.get_rank()], dist.get_rank())
    init_from_local_shards([part], 8)
"""
    with pytest.raises(ArmillaryError, match=message) as failure:
        capture(tmp_path, text + make, ranks=2, run=(0,))
    assert "ShardMetadata" not in str(failure.value) and "\n" not in str(failure.value)


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
