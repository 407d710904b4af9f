"""Real PyTorch programs, collected over gloo on this machine."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import armillary
from armillary.base.errors import ArmillaryError, InputError
from armillary.convert.collected import read_collected
from armillary.convert.launch import collect_script

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
PROGRAMS = Path(__file__).parent / "programs"
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "collect.md"

COMMUNICATION = {
    "ddp": (4, {"c10d::allreduce_": 2}, {"default_pg"}),
    # Three layers and the rest of the model, gathered for forward and again for backward.
    "fsdp": (2, {"c10d::_allgather_base_": 6, "c10d::_reduce_scatter_base_": 3}, {"default_pg"}),
    # One sum forward; the input of the first layer needs no gradient.
    "tensor_parallel": (2, {"_c10d_functional::all_reduce": 1, "_c10d_functional::wait_tensor": 1}, {"default_pg"}),
    "pipeline": (2, {"c10d::send": 2, "c10d::recv_": 2}, {"default_pg"}),
    "mesh": (
        4,
        {"c10d::_allgather_base_": 4, "c10d::_reduce_scatter_base_": 2, "_c10d_functional::all_reduce": 3},
        {"default_pg", "mesh_dp", "mesh_tp"},
    ),
}  # fmt: skip
"""By program: ranks, communication operators in one step of a rank (counted in the program), groups."""

TRAIN = """
import sys, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def load(file: Path) -> dict[str, Any]:
    data = file.read_bytes()
    content: dict[str, Any] = json.loads(gzip.decompress(data) if file.suffix == ".gz" else data)
    return content


def names(file: Path) -> Counter[str]:
    return Counter(node["name"] for node in load(file)["nodes"])


def steps_in(file: Path) -> int:
    return sum(count for name, count in names(file).items() if name.startswith("Optimizer.step"))


def script(folder: Path, text: str) -> Path:
    file = folder / "script.py"
    file.write_text(TRAIN + text)
    return file


@pytest.mark.parametrize("program", COMMUNICATION)
def test_every_kind_of_parallelism_is_collected_whole(program: str, tmp_path: Path) -> None:
    ranks, operators, groups = COMMUNICATION[program]
    found = collect_script(PROGRAMS / f"{program}.py", folder=tmp_path, ranks=ranks)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
        f"{name}_{rank}.json" for name in ("host", "device", "collected") for rank in range(ranks)
    )
    assert found.ranks == read_collected(tmp_path)
    for rank in found.ranks:
        assert (rank.world_size, rank.backend, rank.steps) == (ranks, "gloo", 1)
        assert {group.description for group in rank.groups} == groups
        assert all(rank.rank in group.ranks for group in rank.groups)
        host, device = load(tmp_path / rank.host), load(tmp_path / rank.device)
        ids = {node["id"] for node in host["nodes"]}
        assert all(node["ctrl_deps"] in ids for node in host["nodes"]), "every node has its parent"
        functions = {a["value"] for node in host["nodes"] for a in node["attrs"] if a["name"] == "rf_id"}
        seen = {event.get("args", {}).get("Record function id") for event in device["traceEvents"]}
        both = len((functions & seen) - {0})
        # One each: the note of the groups is no event, and a range of gloo may end when the step has.
        assert both >= 0.999 * len(functions - {0}) - 1
        assert both >= 0.999 * len(seen - {0, None}) - 1
        count = names(tmp_path / rank.host)
        assert {name: count[name] for name in operators} == operators
        assert count["## process_group:init ##"] == 1
        assert steps_in(tmp_path / rank.host) == 1


def test_a_whole_script_is_collected_with_the_groups_that_it_makes_and_destroys(tmp_path: Path) -> None:
    found = collect_script(PROGRAMS / "tensor_parallel.py", folder=tmp_path, ranks=2, whole=True)
    assert [rank.groups[0].ranks for rank in found.ranks] == [(0, 1), (0, 1)]
    count = names(tmp_path / "host_0.json")
    assert count["_c10d_functional::all_reduce"] == 4
    assert count["## process_group:init ##"] == 1


def test_a_body_without_steps_is_one_step(tmp_path: Path) -> None:
    import torch

    with armillary.collect(tmp_path / "new" / "folder", compress=True):
        torch.ones(3).neg()
    assert names(tmp_path / "new" / "folder" / "host_0.json.gz")["aten::neg"] == 1
    assert load(tmp_path / "new" / "folder" / "device_0.json.gz")["traceEvents"]


def test_only_the_steps_of_the_window_are_recorded(tmp_path: Path) -> None:
    import torch

    operators = (torch.sin, torch.cos, torch.tan, torch.exp, torch.log)
    with armillary.collect(tmp_path, warmup=2, steps=2) as collector:
        for operator in operators:
            operator(torch.ones(3))
            collector.step()
            assert (tmp_path / "collected_0.json").exists() == (operator in operators[3:])
    count = names(tmp_path / "host_0.json")
    assert [count[f"aten::{name.__name__}"] for name in operators] == [0, 0, 1, 1, 0]


def test_a_body_that_ends_too_early_leaves_nothing(tmp_path: Path) -> None:
    wanted = pytest.raises(InputError, match="1 steps ended, expected 3")
    with wanted, armillary.collect(tmp_path, warmup=2) as collector:
        collector.step()
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_the_body_leaves_nothing_and_the_next_one_collects(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), armillary.collect(tmp_path):
        1 / 0  # noqa: B018
    assert list(tmp_path.iterdir()) == []
    with armillary.collect(tmp_path):
        pass
    assert (tmp_path / "collected_0.json").exists()


def test_one_that_cannot_start_leaves_nothing_and_the_next_one_collects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def busy(*_: object) -> None:
        raise RuntimeError("another profiler is running")

    with monkeypatch.context() as patched:
        patched.setattr(torch.profiler.profile, "start", busy)
        with pytest.raises(RuntimeError, match="another"), armillary.collect(tmp_path / "first"):
            pass
    assert not list((tmp_path / "first").iterdir())
    with armillary.collect(tmp_path / "second"):
        torch.ones(2).sum()
    assert list((tmp_path / "second").iterdir())


def test_two_at_a_time_are_refused(tmp_path: Path) -> None:
    other = armillary.collect(tmp_path / "other")
    with armillary.collect(tmp_path), pytest.raises(InputError, match="expected one at a time"):
        other.__enter__()
    assert (tmp_path / "collected_0.json").exists()


def test_a_script_may_say_itself_what_to_collect(tmp_path: Path) -> None:
    file = script(tmp_path, f"""
import armillary
with armillary.collect({str(tmp_path / "elsewhere")!r}, warmup=1, steps=3) as collector:
    for _ in range(5):
        step()
        collector.step()
""")  # fmt: skip
    found = collect_script(file, folder=tmp_path / "out")
    assert (found.ranks[0].warmup, found.ranks[0].steps) == (1, 3)
    assert steps_in(tmp_path / "out" / "host_0.json") == 3
    assert not (tmp_path / "elsewhere").exists()


def test_the_first_optimizer_of_two_makes_the_steps(tmp_path: Path) -> None:
    file = script(tmp_path, """
second = torch.optim.AdamW(model.parameters())
assert sys.argv[1:] == ["--steps", "5"] and __name__ == "__main__"
for _ in range(4):
    second.step()
    step()
""")  # fmt: skip
    collect_script(file, ["--steps", "5"], folder=tmp_path / "out", warmup=1, steps=2)
    assert steps_in(tmp_path / "out" / "host_0.json") == 4


def test_a_script_that_dies_leaves_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "out"
    collect_script(script(tmp_path, "[step() for _ in range(3)]"), folder=out)
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    with pytest.raises(
        ArmillaryError, match=r"script\.py: rank 0 ended with exit code 5; nothing was collected"
    ):
        collect_script(script(tmp_path, "step(); sys.exit(5)"), folder=out)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before


def test_a_script_that_dies_after_its_steps_is_collected_with_a_warning(tmp_path: Path) -> None:
    found = collect_script(
        script(tmp_path, "[step() for _ in range(3)]; sys.exit(5)"), folder=tmp_path / "out"
    )
    assert found.warning == "rank 0 ended with exit code 5"
    assert steps_in(tmp_path / "out" / "host_0.json") == 1


def test_the_files_of_an_earlier_run_are_replaced_and_others_kept(tmp_path: Path) -> None:
    for name in ("host_7.json", "device_7.json.gz", "collected_7.json", "host_notes.txt"):
        (tmp_path / name).touch()
    collect_script(script(tmp_path, "[step() for _ in range(3)]"), folder=tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {
        "host_0.json", "device_0.json", "collected_0.json", "host_notes.txt", "script.py"
    }  # fmt: skip


def test_a_script_without_steps_is_told_about_them(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"script\.py: rank 0: nothing was collected: 0 steps ended, expected 3"
    ):
        collect_script(script(tmp_path, ""), folder=tmp_path / "out")


def test_an_interrupt_ends_all_ranks(tmp_path: Path) -> None:
    file = script(tmp_path, """
import os, pathlib, time
pathlib.Path(sys.argv[1], os.environ["RANK"]).write_text(str(os.getpid()))
time.sleep(3600)
""")  # fmt: skip
    words = ["trace", "collect", "--ranks", "2", "--out", str(tmp_path / "out"), str(file), str(tmp_path)]
    # A shell in the background hands down that interrupts are ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen([sys.executable, "-m", "armillary", *words], start_new_session=True)
    pids = [tmp_path / str(rank) for rank in range(2)]
    while not all(pid.exists() and pid.read_text() for pid in pids):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=600) == 130
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)
    assert list((tmp_path / "out").iterdir()) == []


def test_the_example_of_the_manual_is_collected(tmp_path: Path) -> None:
    blocks = re.findall(r"<!-- file: (\S+) -->\n```\w*\n(.*?)^```$", HOW_TO.read_text(), re.S | re.M)
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    for line in re.findall(r"^\$ armillary (trace collect .*)$", HOW_TO.read_text(), re.M):
        subprocess.run([sys.executable, "-m", "armillary", *line.split()], cwd=tmp_path, check=True)
    assert {name for name, _ in blocks} == {"train.py"}
    assert len(read_collected(tmp_path / "traces")) == 2
