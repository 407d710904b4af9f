"""The result of a run: its columns, its file, and what it costs for very many ranks."""

from __future__ import annotations

import dataclasses
import gc
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary.base.errors import InputError
from armillary.engine.astra_sim.collective import schedule_for
from armillary.engine.common.timeline import KINDS, OPERATIONS, GraphTable, Timeline
from armillary.platform.model import Platform
from armillary.report.time_breakdown import breakdown
from armillary.trace import CollectiveType, GraphBuilder, Trace

Make = Callable[..., Platform]


def step(rank: int) -> GraphBuilder:
    """A training step in small: compute, collectives, messages, memory, a CPU node."""
    b = GraphBuilder(rank=rank)
    first = b.compute("forward", duration_micros=3 + rank % 2, flops=77)
    gather = b.all_gather("gather", 5000, after=[first])
    reduce = b.all_reduce("reduce", 1 << 20, group=1 if rank < 4 else None, after=[gather])
    b.compute("cpu", duration_micros=1, cpu=True, after=[first])
    b.send(rank ^ 1, 100, after=[reduce])
    b.recv(rank ^ 1, 100, after=[first])
    b.memory_load("load", 64, after=[reduce])
    b.collective("broadcast", CollectiveType.BROADCAST, 8, duration_micros=2)
    return b


@pytest.fixture(scope="module")
def platform(machine: Make) -> Platform:
    memory = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 10, "remote-mem-bw": 1}
    return machine(
        (2, 2), memory=memory, groups={"1": [0, 1, 2, 3]}, collective_optimization="localBWAware",
        active_chunks_per_dimension=2, cli=["--num-queues-per-dim=2"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Trace.from_ranks([step(rank).graph() for rank in range(4)])


@pytest.fixture(scope="module", params=[True, False], ids=["folded", "unfolded"])
def timeline(request: pytest.FixtureRequest, trace: Trace, platform: Platform) -> Timeline:
    return armillary.simulate(trace, platform, profile="astra-sim", fold=request.param)


def per_class(
    timeline: Timeline,
) -> Iterator[tuple[int, GraphTable, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    for cls in range(len(timeline.finish)):
        yield cls, timeline.table(cls), *timeline.spans(cls)


def test_shapes_and_types(timeline: Timeline) -> None:
    assert timeline.finish_ticks.shape == (4,)
    assert timeline.finish_ticks.dtype == np.int64
    assert timeline.total_ticks == timeline.finish_ticks.max()
    assert timeline.n_ranks == 4
    assert timeline.rank_class[timeline.representative].tolist() == list(range(len(timeline.finish)))
    assert len(timeline.finish) == (2 if timeline.info["folded"] else 4)


def test_nodes_wait_for_their_parents_and_end_before_the_finish(timeline: Timeline) -> None:
    for cls, table, start, end in per_class(timeline):
        assert (start >= 0).all()
        assert (end >= start).all()
        assert end.max() == timeline.finish[cls]
        for node in range(len(start)):
            parents = table.parent[table.parent_ptr[node] : table.parent_ptr[node + 1]]
            assert start[node] >= end[parents].max(initial=0)


def test_graph_tables_say_what_each_node_is(timeline: Timeline) -> None:
    table = timeline.table(int(timeline.rank_class[0]))
    assert [KINDS[kind] for kind in table.kind] == [
        "compute", "collective", "collective", "cpu", "send", "recv", "memory", "collective",
    ]  # fmt: skip
    assert table.name.tolist()[:3] == ["forward", "gather", "reduce"]
    assert table.label.tolist()[:4] == ["", "all-gather", "all-reduce@1", ""]
    assert table.size.tolist()[:3] == [0, 5000, 1 << 20]
    assert table.flops[0] == 77


def test_phases_add_up(timeline: Timeline) -> None:
    assert (timeline.phase_start >= 0).all()
    assert (timeline.phase_end >= timeline.phase_start).all()
    for cls, _, start, end in per_class(timeline):
        rows = timeline.phases(cls)
        for node, phases in ((1, 2), (2, 3)):
            own = rows[timeline.phase_node[rows] == node]
            assert len(own) == 4 * phases
            assert timeline.phase_start[own].min() == start[node]
            assert timeline.phase_end[own].max() == end[node]
            for chunk in range(4):
                of_chunk = own[timeline.phase_chunk[own] == chunk]
                assert timeline.phase_index[of_chunk].tolist() == list(range(phases))
                assert (timeline.phase_start[of_chunk[1:]] >= timeline.phase_end[of_chunk[:-1]]).all()


def test_phases_of_a_local_aware_all_reduce(timeline: Timeline) -> None:
    rows = timeline.phases(0)
    own = rows[(timeline.phase_node[rows] == 2) & (timeline.phase_chunk[rows] == 0)]
    names = [OPERATIONS[operation] for operation in timeline.phase_operation[own]]
    assert names == ["reduce-scatter", "all-reduce", "all-gather"]
    assert timeline.phase_dim[own].tolist() == [0, 1, 0]
    sent = [
        schedule_for("ring", name, 2).bytes_sent(0, size)
        for name, size in zip(names, (1 << 18, 1 << 17, 1 << 17), strict=True)
    ]
    assert timeline.phase_bytes[own].tolist() == sent


def test_file_holds_everything(timeline: Timeline, tmp_path: Path) -> None:
    path = tmp_path / "run.timeline"
    timeline.save(path)
    read = Timeline.load(path)
    for f in fields(Timeline):
        if f.name not in ("graphs", "info", "network"):
            ours, theirs = getattr(timeline, f.name), getattr(read, f.name)
            assert ours.dtype == theirs.dtype, f.name
            assert np.array_equal(ours, theirs), f.name
    assert read.info == timeline.info
    assert len(read.graphs) == len(timeline.graphs)
    for ours, theirs in zip(timeline.graphs, read.graphs, strict=True):
        for f in fields(GraphTable):
            assert np.array_equal(getattr(ours, f.name), getattr(theirs, f.name)), f.name
    assert [p.name for p in tmp_path.iterdir()] == ["run.timeline"]


def test_other_files_are_refused(tmp_path: Path) -> None:
    for name, content in (("absent", None), ("text", b"no zip"), ("empty", b"")):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=name):
            Timeline.load(tmp_path / name)


def test_graph_tables_are_made_when_they_are_looked_at(
    trace: Trace, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    from armillary.engine.common import result

    made = []
    original = result.graph_table
    monkeypatch.setattr(result, "graph_table", lambda *about: made.append(about) or original(*about))
    timeline = armillary.simulate(trace, platform, profile="astra-sim")
    assert made == []
    assert timeline.graphs[0] is timeline.graphs[0]
    assert len(made) == 1


def test_empty_graphs_finish_at_once(platform: Platform, tmp_path: Path) -> None:
    timeline = armillary.simulate(Trace.replicate([], 4), platform, profile="astra-sim")
    assert timeline.finish_ticks.tolist() == [0] * 4
    timeline.save(tmp_path / "empty")
    assert Timeline.load(tmp_path / "empty").total_ticks == 0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory from /proc")
def test_a_prompt_shows_three_lines(timeline: Timeline) -> None:
    shown = repr(timeline).splitlines()
    assert len(shown) == 3 and f"{timeline.total_ticks:,} ticks" in shown[0]


def test_a_million_ranks_in_little_memory() -> None:
    program = """
import armillary
from armillary.trace import GraphBuilder, Trace
b = GraphBuilder()
b.all_reduce("c", "1 GiB", after=[b.compute("k", duration_micros=1)])
keys = {"scheduling-policy": "FIFO", "collective-optimization": "localBWAware", "preferred-dataset-splits": 64,
        "local-mem-bw": 1600, "all-reduce-implementation": ["ring"] * 3}
network = {"topology": ["Ring"] * 3, "npus_count": [64, 128, 128], "bandwidth": [250, 200, 100], "latency": [500] * 3}
timeline = armillary.astra_sim.simulate(Trace.replicate(b.graph(), 64 * 128 * 128), keys, network)
assert timeline.finish_ticks.shape == (1 << 20,) and len(timeline.finish) == 1 and timeline.total_ticks > 0
with open("/proc/self/status") as status:
    print(next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM")))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 500


def test_import_is_light() -> None:
    program = (
        "import sys, armillary\n"
        "heavy = {'numpy', 'numba', 'yaml', 'pydantic', 'rich', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "names = 'PlacedJob Timeline Trace allow astra_sim collect compare load_platform load_trace'.split()\n"
        "names += 'plan plan_machine plan_serving run sample search serve simulate simulate_jobs sweep train'.split()\n"
        "assert sorted(armillary.__all__) == sorted(names)\n"
        "assert set(armillary.__all__) <= set(dir(armillary))\n"
        "assert all(getattr(armillary, name) for name in armillary.__all__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'simulator'"):
        armillary.simulator  # noqa: B018


@pytest.mark.parametrize("profile", ["physical", "astra-sim"])
def test_phase_columns_are_made_once_and_are_part_of_copies(platform: Platform, profile: str) -> None:
    """Pickled and replaced, a timeline has the phases that nobody had asked for before."""
    builder = GraphBuilder()
    builder.all_reduce("gradients", size=1 << 20)
    trace = Trace.replicate(builder.graph(), ranks=platform.npus)
    made = armillary.simulate(trace, platform, profile=profile)
    assert "phase_start" not in vars(made)
    copied = pickle.loads(pickle.dumps(dataclasses.replace(made, graphs=tuple(made.graphs))))
    other = dataclasses.replace(made, info={})
    for column in fields(GraphTable):
        mine, yours = (getattr(each.graphs[0], column.name) for each in (made, copied))
        np.testing.assert_array_equal(mine, yours, column.name)
    assert made.phase_start is made.phase_start
    assert len(made.node_least) == len(made.node_start)
    for copy in (copied, other):
        for field in fields(Timeline):
            if field.name.startswith(("phase_", "node_")):
                np.testing.assert_array_equal(getattr(copy, field.name), getattr(made, field.name))
    with pytest.raises(AttributeError, match="phase_colour"):
        made.phase_colour  # noqa: B018


def test_a_run_goes_when_nobody_holds_it(platform: Platform) -> None:
    """A search makes thousands of runs, and their arrays should not wait until Python looks for cycles."""
    builder = GraphBuilder()
    builder.all_reduce("gradients", size=1 << 20)
    trace = Trace.replicate(builder.graph(), ranks=platform.npus)
    made = armillary.simulate(trace, platform)
    breakdown(made, 0)
    table = made.table(0)
    assert table.label is not None
    held = [weakref.ref(each) for each in (made, table, trace.graphs[0])]
    gc.disable()
    try:
        del made, table, trace, builder
        assert [each() for each in held] == [None, None, None]
    finally:
        gc.enable()
