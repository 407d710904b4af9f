"""Traces replayed over gloo on this machine."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from armillary.base.errors import ArmillaryError, StuckError
from armillary.cli import main
from armillary.evidence.replay import compare, replay
from armillary.evidence.replay.issue import Network, buffer_bytes
from armillary.evidence.replay.plan import plan_of
from armillary.evidence.replay.work import Work
from armillary.trace import CollectiveType, GraphBuilder, Trace, write_trace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "replay.md"


@pytest.mark.parametrize("compute", ["durations", "shapes", "none"])
def test_every_operation_runs_and_is_timed(trace: Trace, compute: str) -> None:
    found = replay(trace, backend="gloo", compute=compute, iterations=3)
    assert found.totals.shape == (3,)
    # A message may be there before its receive.
    messages = np.array([instance.operation.key[0] == "message" for instance in found.instances])
    assert (found.transfer_ns >= np.where(messages, 0, 1)).all()
    for rank in range(4):
        graph = trace.graph(rank)
        start, end = found.start[rank], found.end[rank]
        assert (start >= found.begin[:, rank, None]).all()
        assert (end <= found.finish[:, rank, None]).all()
        ptr, parent = graph.parents()
        child = np.repeat(np.arange(graph.n_nodes), np.diff(ptr))
        assert (start[:, child] >= end[:, parent]).all()
        computing = [graph.names().index(name) for name in ("forward", "backward")]
        taken = (end - start)[:, computing]
        if compute == "durations":
            assert taken.tolist() == [[2_000_000, 3_000_000]] * 3
        else:
            assert (taken > 0).all() == (compute == "shapes")
    rows = {(row.kind, row.size): row for row in compare(found).rows}
    kinds = {kind.name.lower().replace("_", "-"): kind for kind in CollectiveType}
    for name, kind in kinds.items():
        row = rows[name, 0 if name == "barrier" else 2**16]
        assert (row.members, row.calls) == ((2, 2) if kind % 2 else (4, 1))
    assert rows["all-reduce", 2**18].bus_bandwidth == pytest.approx(
        2**18 / rows["all-reduce", 2**18].measured_ns * 2 * 3 / 4
    )
    assert rows["message", 2**17].calls == rows["message", 1001].calls == 2


def test_communication_overlaps_with_computing() -> None:
    builder = GraphBuilder()
    builder.all_reduce("gradients", "8 MiB")
    builder.compute("backward", duration_micros=5_000_000)
    builder.all_reduce("more", "8 MiB")
    found = replay(Trace.replicate(builder.graph(), 2), backend="gloo", iterations=1)
    for rank in range(2):
        start, end = found.start[rank][0], found.end[rank][0]
        assert (start[[0, 2]] < end[1]).all()
        assert end[1] - start[1] == 5_000_000_000


def test_a_ring_in_which_all_send_before_they_receive_does_not_hang() -> None:
    graphs = []
    for rank in range(3):
        builder = GraphBuilder(rank=rank)
        last: list[int] = []
        for _ in range(70):
            sent = builder.send((rank + 1) % 3, "300 KiB", after=last)
            last = [builder.recv((rank + 2) % 3, "300 KiB", after=[sent])]
        graphs.append(builder.graph())
    found = replay(Trace.from_ranks(graphs), backend="gloo", iterations=1)
    assert compare(found).rows[0].calls == 3 * 70


def test_ranks_that_wait_for_each_other_end_with_a_table() -> None:
    groups = """['[{"pg_name": "1", "ranks": [0, 1]}, {"pg_name": "2", "ranks": [1, 0]}]']"""
    graphs = []
    for rank in range(2):
        builder = GraphBuilder(rank=rank)
        builder.metadata("## process_group:init ##", groups)
        first = builder.all_reduce("first", "1 MiB", group=1 + rank)
        builder.all_reduce("second", "1 MiB", group=2 - rank, after=[first])
        graphs.append(builder.graph())
    with pytest.raises(StuckError) as stuck:
        replay(Trace.from_ranks(graphs), backend="gloo", timeout=20)
    assert stuck.value.exit_code == 3
    lines = [line.split() for line in str(stuck.value).splitlines()[3:]]
    assert lines == [
        [str(rank), "1", "first", "all-reduce", "in", "group", str(1 + rank), "rank", str(1 - rank)]
        for rank in range(2)
    ]


def test_what_a_rank_cannot_do_is_said() -> None:
    builder = GraphBuilder()
    builder.all_reduce("huge", 2**61)
    with pytest.raises(ArmillaryError, match=r"replay: rank [01]: RuntimeError"):
        replay(Trace.replicate(builder.graph(), 2), backend="gloo")


class Calls:
    """``torch.distributed`` that notes the bytes of the tensors it is given."""

    def __init__(self) -> None:
        self.group = SimpleNamespace(WORLD=None)
        self.found: list[tuple[str, list[Any]]] = []

    def new_group(self, ranks: list[int]) -> list[int]:
        return ranks

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **_: Any) -> None:
            self.found.append((name, [size_of(value) for value in given]))

        return call


def size_of(value: Any) -> Any:
    if isinstance(value, list):
        return [size_of(item) for item in value]
    return value.nbytes if hasattr(value, "nbytes") else value


def test_tensors_have_the_bytes_that_the_conventions_say() -> None:
    import torch

    def build(rank: int) -> Any:
        builder = GraphBuilder(rank=rank)
        for kind in CollectiveType:
            builder.collective(kind.name, kind, 0 if kind == CollectiveType.BARRIER else 3 * 4 * 100)
        builder.collective("odd", CollectiveType.REDUCE_SCATTER, 100)
        builder.all_to_all("routed", 60)
        builder.nodes[-1].attrs.append(("comm_splits", "int64_list", [10 * rank, 20, 30]))
        if rank == 1:
            builder.send(0, 77, tag=2**31 - 1)
        if rank == 0:
            builder.recv(1, 77, tag=2**31 - 1)
        return builder.graph()

    plan = plan_of(Trace.from_ranks([build(rank) for rank in range(3)]))
    calls = Calls()
    mine = plan.ranks[0].operations.values()
    pretended = SimpleNamespace(
        distributed=calls, **{n: getattr(torch, n) for n in ("uint8", "float32", "zeros")}
    )
    network = Network(pretended, 0, plan.shared, max(map(buffer_bytes, mine)), "cpu", ordered=False)
    for operation in mine:
        network.issue(operation)
    assert calls.found == [
        ("all_reduce", [1200]),
        ("reduce", [1200, 0]),
        ("all_gather_into_tensor", [3600, 1200]),
        ("gather", [400, [400, 400, 400], 0]),
        ("scatter", [400, [400, 400, 400], 0]),
        ("broadcast", [1200, 0]),
        ("all_to_all_single", [1200, 1200]),
        ("reduce_scatter_tensor", [400, 1200]),
        ("reduce_scatter_tensor", [400, 1200]),
        ("barrier", []),
        # 100 bytes are no whole number for each of 3 ranks: the next that is.
        ("reduce_scatter_tensor", [34, 102]),
        ("all_to_all_single", [30, 50, [0, 10, 20], [0, 20, 30]]),
        ("irecv", [77, 1]),
    ]


def test_work_does_as_many_operations_and_moves_as_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    work = Work(torch, "cpu", lambda: None)
    done = {"flops": 0, "bytes": 0}

    def mm(a: Any, b: Any, out: Any) -> None:
        done["flops"] += 2 * a.shape[0] * a.shape[1] * b.shape[1]

    monkeypatch.setattr(torch, "mm", mm)
    for flops in (2 * 300**3, 5 * 10**9):
        done["flops"] = 0
        work.do(flops, 0)
        assert done["flops"] == pytest.approx(flops, rel=0.01)
    for size in (2, 10**6, 3 * 2**26):
        source, target = work._copies
        source.fill_(1), target.fill_(0)
        work.do(0, size)
        assert target.sum() == min(size // 2, len(target))


def test_the_command_compares_with_a_simulation(
    tmp_path: Path, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_trace("step", trace)
    Path("machine.yaml").write_text(
        "workload: {trace: step}\nplatform:\n  network:\n"
        "    - {name: node, topology: Switch, size: 4, bandwidth: 1 GB/s, latency: 10 us}\n"
    )
    result = CliRunner().invoke(
        main,
        ["trace", "replay", "step", "--machine", "machine.yaml", "--json", "out.json", "--iterations", "2"],
    )
    assert result.exit_code == 0, result.output
    assert "simulated, error" in result.output
    report = json.loads(Path("out.json").read_text())
    assert report["source"] == "simulated"
    assert len(report["iterations_ns"]) == 2
    assert all(row["expected_ns"] > 0 for row in report["operations"])
    assert report["error"] == report["expected_ns"] / report["measured_ns"] - 1


def test_one_file_is_run_by_as_many_ranks_as_asked_for(tmp_path: Path) -> None:
    builder = GraphBuilder()
    builder.all_reduce("sum", "1 KiB")
    write_trace(tmp_path / "one", Trace.replicate(builder.graph(), 1))
    words = ["trace", "replay", str(tmp_path / "one.0.et"), "--ranks", "3", "--iterations", "1"]
    result = CliRunner().invoke(main, words)
    assert re.search(r"all-reduce +1 KiB +3 +1 ", result.output), result.output


def test_the_example_of_the_manual_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = HOW_TO.read_text()
    for name, content in re.findall(r"<!-- file: (\S+) -->\n```\w*\n(.*?)^```$", text, re.S | re.M):
        Path(name).write_text(content)
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.S | re.M):
        exec(block, {})
    commands = re.findall(r"^\$ armillary (trace replay .*)$", text, re.M)
    assert commands
    for command in commands:
        result = CliRunner().invoke(main, command.split())
        assert result.exit_code == 0, result.output
