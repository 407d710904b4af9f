"""Several jobs on one machine: what they share slows them down, what they do not share leaves every tick as it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary import PlacedJob, simulate_jobs
from armillary.base.errors import InputError
from armillary.engine.multi_job import JobsResult
from armillary.platform.kernels import Jitter
from armillary.platform.memory import LocalMemory, RemoteMemory
from armillary.platform.model import Npu, Platform
from armillary.platform.network import Dimension
from armillary.report import breakdown
from armillary.trace import Graph, GraphBuilder, RankGrid, Trace
from armillary.trace.compose import compose
from tests.engine.physical.reference.evaluate import simulate_slowly

LINE = Platform((Dimension("node", "Switch", 8, 100.0, 500.0),))
PLANE = Platform(
    (Dimension("node", "FullyConnected", 4, 50.0, 300.0), Dimension("rail", "Ring", 3, 25.0, 700.0)),
    npu=Npu(memory=LocalMemory(2000.0)),
)


def kernels(*micros: int) -> Graph:
    """Kernels of a chain."""
    builder, last = GraphBuilder(), list[int]()
    for number, duration in enumerate(micros):
        last = [builder.compute(f"kernel {number}", duration_micros=duration, after=last)]
    return builder.graph()


def all_reduce(size: str = "64 MiB", ranks: int = 8) -> Trace:
    builder = GraphBuilder()
    builder.all_reduce("sum", size)
    return Trace.replicate(builder.graph(), ranks)


def ring_job(ranks: int, steps: list[tuple[str, int]], tag: int) -> Trace:
    """Every rank runs the steps: kernels, collectives of all and of halves, messages to the next rank."""
    graphs = []
    halves = [list(range(ranks // 2)), list(range(ranks // 2, ranks))]
    for rank in range(ranks):
        builder, last = GraphBuilder(rank=rank), list[int]()
        half = int(rank >= ranks // 2)
        text = ", ".join(f'{{"pg_name": "{g + 1}", "ranks": {members}}}' for g, members in enumerate(halves))
        builder.metadata("groups", f"['[{text}]']")
        for number, (kind, amount) in enumerate(steps):
            if kind == "kernel":
                last = [builder.compute("k", duration_micros=amount, after=last)]
            elif kind == "all":
                last = [builder.all_reduce("all", amount * 1000, after=last)]
            elif kind == "half":
                last = [builder.all_gather("half", amount * 1000, group=1 + half, after=last)]
            else:
                size = amount * 1000 + number
                send = builder.send((rank + 1) % ranks, size, tag, after=last)
                last = [send, builder.recv((rank - 1) % ranks, size, tag, after=last)]
        graphs.append(builder.graph())
    return Trace.from_ranks(graphs)


STEPS = st.lists(
    st.tuples(st.sampled_from(["kernel", "all", "half", "message"]), st.integers(1, 300)),
    min_size=1,
    max_size=5,
)


def spans(result: JobsResult, name: str) -> list[tuple[list[int], list[int]]]:
    """Start and end of every node of every rank, in ticks since the job arrived."""
    own = result[name].timeline
    return [tuple(ticks.tolist() for ticks in own.spans(int(cls))) for cls in own.rank_class]  # type: ignore[misc]


@settings(max_examples=30, deadline=None)
@given(STEPS, STEPS, st.permutations(range(12)), st.integers(0, 400_000), st.booleans())
def test_jobs_on_different_npus_run_as_if_alone(first, second, npus, arrival: int, fold: bool) -> None:
    jobs = [
        PlacedJob("a", ring_job(4, first, 3), npus[:4]),
        PlacedJob("b", ring_job(6, second, 3), npus[4:10], arrival),
    ]
    both = simulate_jobs(jobs, PLANE, fold=fold)
    swapped = simulate_jobs(jobs[::-1], PLANE)
    for job in jobs:
        # On its own NPUs, with no other and from the start: neither arrival nor company changes a tick.
        lone = simulate_jobs([replace(job, arrival_ns=0)], PLANE)
        assert spans(both, job.name) == spans(lone, job.name) == spans(swapped, job.name)
        assert both[job.name].slowdown == 1 and both[job.name].shares == {}


@settings(max_examples=30, deadline=None)
@given(STEPS, STEPS, st.permutations(range(12)), st.permutations(range(12)), st.integers(0, 400_000))
def test_jobs_that_share_npus_run_as_the_slow_reference_says(
    first, second, npus, others, arrival: int
) -> None:
    jobs = [
        PlacedJob("a", ring_job(6, first, 3), npus[:6]),
        PlacedJob("b", ring_job(4, second, 3), others[:4], arrival),
    ]
    composed = compose(jobs, 12)
    platform = replace(PLANE, groups=composed.groups)
    fast = armillary.simulate(composed.trace, platform)
    _, begun, ended = simulate_slowly(composed.trace, platform)
    for npu in range(12):
        start, end = fast.spans(int(fast.rank_class[npu]))
        ids = composed.trace.graph(int(fast.representative[fast.rank_class[npu]])).ids
        assert begun[npu] == dict(zip(ids.tolist(), start.tolist(), strict=True))
        assert ended[npu] == dict(zip(ids.tolist(), end.tolist(), strict=True))
    folded, whole = (simulate_jobs(jobs, PLANE, fold=fold) for fold in (True, False))
    for name in "ab":
        assert spans(folded, name) == spans(whole, name)
        assert min(min(start) for start, _ in spans(folded, name)) >= 0
        found = folded[name]
        assert found.end == found.arrival + max(max(end) for _, end in spans(folded, name))


def test_a_job_on_the_whole_machine_is_the_trace_itself() -> None:
    trace = ring_job(12, [("kernel", 5), ("all", 4000), ("message", 20), ("all", 7)], 1)
    result = simulate_jobs([PlacedJob("only", trace, range(12))], PLANE)
    plain = armillary.simulate(trace, PLANE)
    assert spans(result, "only") == [tuple(t.tolist() for t in plain.spans(int(c))) for c in plain.rank_class]
    own = result["only"].timeline
    for cls in range(len(own.finish)):
        rank = int(own.representative[cls])
        table, other = own.table(cls), plain.table(int(plain.rank_class[rank]))
        for column in ("node_id", "kind", "label", "size", "parent", "flops"):
            assert getattr(table, column).tolist() == getattr(other, column).tolist(), column
        assert table.name.tolist() == trace.graph(rank).names()
        assert breakdown(own, cls) == breakdown(plain, int(plain.rank_class[rank]))
    assert len(own.phase_start) == len(plain.phase_start) and own.info["groups"] == plain.info["groups"]


def test_all_reduces_on_the_same_ports_take_twice_as_long() -> None:
    jobs = [PlacedJob(name, all_reduce(), range(8)) for name in "ab"]
    result = simulate_jobs(jobs, LINE)
    # All but the latency, 3 rounds each way of 2 hops, of 500 ns: at 100 GB/s 2 x 7/8 of 64 MiB take 1.17 ms.
    alone = result["a"].alone.total_ticks
    assert alone == pytest.approx(2 * 7 / 8 * 2**26 / 100 + 6 * 2 * 500, abs=2)
    assert result["a"].duration == result["b"].duration == pytest.approx(2 * alone - 6 * 2 * 500, abs=4)
    assert len(result.timeline.finish) == 1
    assert result["a"].shares == {"b": 8} and result.timeline.info["groups"] == {"a": 8, "b": 8}


def test_arrival_shifts_a_job_exactly() -> None:
    trace = ring_job(4, [("kernel", 5), ("all", 400), ("message", 20)], 0)
    shifts = [0, 1, 12_345_678]
    runs = [simulate_jobs([PlacedJob("a", trace, range(2, 6), shift)], PLANE)["a"] for shift in shifts]
    assert {run.duration for run in runs} == {runs[0].duration}
    assert [run.start for run in runs] == shifts == [run.arrival for run in runs]
    assert [run.end - run.arrival for run in runs] == [runs[0].end] * 3


def test_kernels_on_a_shared_npu_take_turns() -> None:
    jobs = [
        PlacedJob("long", Trace.replicate(kernels(10, 10, 10), 1), [2]),
        PlacedJob("late", Trace.replicate(kernels(10, 10), 1), [2], 10_000),
    ]
    result = simulate_jobs(jobs, LINE)
    # The late job comes when the first kernel ends; equal starts go by the order of the jobs.
    assert spans(result, "long") == [([0, 10_000, 30_000], [10_000, 20_000, 40_000])]
    assert spans(result, "late") == [([10_000, 30_000], [20_000, 40_000])]
    assert result.timeline.total_ticks == 50_000
    assert result["late"].slowdown == pytest.approx(result["late"].duration / 20_000)
    assert breakdown(result["late"].timeline, 0).idle == result["late"].duration - 20_000


def test_compute_streams_of_jobs_are_shared_by_place_and_threads_are_not() -> None:
    def job(stream: int, cpu: bool) -> Trace:
        graph = GraphBuilder()
        ident = graph.compute("k", duration_micros=10, cpu=cpu)
        graph.nodes[ident].attrs.append(("tid" if cpu else "stream", "int64", stream))
        return Trace.replicate(graph.graph(), 1)

    for cpu, expected in ((False, 20_000), (True, 10_000)):
        jobs = [PlacedJob("a", job(7, cpu), [0]), PlacedJob("b", job(20 if not cpu else 7, cpu), [0])]
        assert simulate_jobs(jobs, LINE).timeline.total_ticks == expected


def test_equal_tags_between_the_same_npus_do_not_meet() -> None:
    def job(late: int) -> Trace:
        source, target = GraphBuilder(rank=0), GraphBuilder(rank=1)
        source.send(1, 1000, tag=5, after=[source.compute("first", duration_micros=late, cpu=True)])
        target.recv(0, 1000, tag=5 + 5 * 10**8)  # the same tag to the engine
        return Trace.from_ranks([source.graph(), target.graph()])

    result = simulate_jobs([PlacedJob("slow", job(900), [0, 1]), PlacedJob("fast", job(1), [0, 1])], LINE)
    assert result["fast"].end < 10_000 and result["slow"].end > 900_000


def test_a_pool_of_memory_is_shared_by_jobs_on_different_npus() -> None:
    builder = GraphBuilder()
    builder.memory_load("weights", 10**6)
    trace = Trace.replicate(builder.graph(), 1)
    platform = replace(LINE, remote_memory=RemoteMemory("pool", 100, 10))
    result = simulate_jobs([PlacedJob("a", trace, [0]), PlacedJob("b", trace, [1])], platform)
    assert [job.slowdown for job in result.jobs] == [1, 2]


def test_stragglers_and_jitter_are_those_of_the_machine() -> None:
    trace = Trace.replicate(kernels(10, 10), 2)
    result = simulate_jobs(
        [PlacedJob("a", trace, [1, 2], 2000)], replace(LINE, stragglers={1: 5000.0}, jitter=Jitter(0.2, 3))
    )
    assert result["a"].slowdown == 1 and result["a"].start == 2000
    assert sorted(start[0] for start, _ in spans(result, "a")) == [0, 5000]


def test_a_trace_with_a_grid_is_written_out() -> None:
    builder = GraphBuilder()
    builder.all_reduce("inner", "1 MiB", group="tp")
    grid = RankGrid((2, 2), {"tp": (0,), "dp": (1,)})
    trace = Trace((builder.graph(),), np.zeros(4, np.int32), grid)
    result = simulate_jobs([PlacedJob("a", trace, [0, 1, 4, 5]), PlacedJob("b", trace, [2, 3, 6, 7])], LINE)
    assert result["a"].duration == result["b"].duration > 10_000
    assert result.timeline.info["groups"] == {"a.1": 2, "a.2": 2, "b.1": 2, "b.2": 2}


def test_two_jobs_that_do_the_same_are_one_class() -> None:
    jobs = [PlacedJob("a", all_reduce(ranks=4), range(4)), PlacedJob("b", all_reduce(ranks=4), range(4, 8))]
    result = simulate_jobs(jobs, LINE)
    assert len(result.timeline.finish) == 1
    assert [result[name].timeline.table(0).label.tolist() for name in "ab"] == [["all-reduce"]] * 2


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([], "no job is given; expected at least one"),
        ([("a", 4, [0, 1, 2], 0)], "job 'a' has 4 ranks and 3 NPUs; expected an NPU for each rank"),
        ([("a", 2, [0, 8], 0)], "job 'a': NPU 8 is not there; expected 0 to 7"),
        ([("a", 2, [3, 3], 0)], "job 'a': NPU 3 is given twice; expected each NPU once"),
        ([("a", 1, [0], 0), ("a", 1, [1], 0)], "job 'a' is there twice; expected another name for each job"),
        ([("a", 1, [0], -5)], "job 'a' arrives at -5 ns; expected 0 or later"),
    ],
)
def test_what_does_not_fit_is_one_message(jobs, message: str) -> None:
    placed = [
        PlacedJob(name, Trace.replicate(kernels(1), ranks), npus, arrival)
        for name, ranks, npus, arrival in jobs
    ]
    with pytest.raises(InputError) as caught:
        simulate_jobs(placed, LINE)
    assert str(caught.value) == message


def test_groups_and_ranks_are_those_of_the_job() -> None:
    for add, message in (
        (lambda b: b.all_reduce("x", 8, group=3), "has pg_name '3'; expected a group that its trace defines"),
        (lambda b: b.send(2, 8), "has comm_dst 2; expected a rank from 0 to 1"),
    ):
        builder = GraphBuilder()
        add(builder)
        with pytest.raises(InputError, match=f"job 'a': .*{message}"):
            simulate_jobs([PlacedJob("a", Trace.replicate(builder.graph(), 2), [0, 1])], LINE)
    with pytest.raises(InputError, match="groups: several jobs cannot share them"):
        simulate_jobs([PlacedJob("a", all_reduce(), range(8))], replace(LINE, groups={1: (0, 1)}))
    with pytest.raises(InputError, match=r"job 'b': there is no such job; expected one of \['a'\]"):
        simulate_jobs([PlacedJob("a", all_reduce(), range(8))], LINE)["b"]


def test_jobs_that_meet_are_named_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [
        PlacedJob(f"j{k}", all_reduce(ranks=2), npus)
        for k, npus in enumerate(([0, 1], [1, 2], [0, 1], [4, 5]))
    ]
    found = simulate_jobs(jobs, LINE)
    assert [run.shares for run in found.jobs] == [
        {"j1": 1, "j2": 2},
        {"j0": 1, "j2": 1},
        {"j0": 2, "j1": 1},
        {},
    ]
    assert [run.timeline.info["groups"] for run in found.jobs] == [{"0": 2}] * 4
    monkeypatch.setattr("armillary.engine.multi_job.MOST_PAIRS", 5)
    with pytest.raises(InputError, match="pairs of them that are on an NPU at once: 6 of them"):
        simulate_jobs(jobs, LINE)
