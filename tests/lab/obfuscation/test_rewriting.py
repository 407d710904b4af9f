"""Rewriting: against slow references, and what must stay the same."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.lab.obfuscation.coarsen import Spans, coarsen
from armillary.lab.obfuscation.keyed import digest, uniform, word
from armillary.lab.obfuscation.pieces import even_out, join_runs, shuffle, split, unfold
from armillary.lab.obfuscation.relabel import relabel
from armillary.lab.obfuscation.restoring import read_legend, restore, write_legend
from armillary.lab.obfuscation.rows import Rows, read, write
from armillary.lab.obfuscation.sizes import perturb, quantise
from armillary.lab.obfuscation.totals import kinds_of_work, scaled
from armillary.platform import load_platform
from armillary.trace import Graph, GraphBuilder, Trace, nodes_of
from armillary.trace.structure import owners

MACHINE = load_platform(
    {
        "network": [
            {"name": "n", "topology": "Switch", "size": 2, "bandwidth": "50 GB/s", "latency": "500 ns"}
        ],
        "npu": {"peak": "100 TFLOP/s", "memory": {"bandwidth": "1 TB/s"}},
        "compute": {"roofline": True},
    }
)
STEP = st.tuples(
    st.sampled_from(("compute", "measured", "all-reduce", "load")),
    st.integers(1, 10**9),
    st.lists(st.integers(1, 5), max_size=2),
)
PROGRAMS = st.lists(STEP, min_size=1, max_size=12)


def build(steps: list[tuple[str, int, list[int]]], first_id: int = 0) -> Graph:
    """A graph whose node i waits for nodes i - d for each d of its list, and collectives for each other."""
    b = GraphBuilder(first_id=first_id)
    called: list[int] = []
    for i, (kind, size, back) in enumerate(steps):
        after = sorted({first_id + i - d for d in back if i - d >= 0})
        if kind == "compute":
            b.compute(f"secret.{i}", flops=size, bytes=size // 7 + 1, after=after)
        elif kind == "measured":
            b.compute(f"secret.{i}", duration_micros=size % 1000 + 1, after=after)
        elif kind == "load":
            b.memory_load(f"secret.{i}", size, local=True, after=after)
        else:
            called = [b.all_reduce(f"secret.{i}", size, after=sorted({*after, *called}))]
    return b.graph()


def ticks(trace: Trace) -> int:
    return armillary.simulate(trace, MACHINE).total_ticks


def edges(rows: Rows) -> list[tuple[int, int]]:
    return list(zip(owners(rows.ptr).tolist(), rows.parent.tolist(), strict=True))


@settings(max_examples=40, deadline=None)
@given(PROGRAMS, st.integers(0, 5))
def test_names_only_keeps_every_tick(steps: list[tuple[str, int, list[int]]], first: int) -> None:
    trace = Trace.replicate(build(steps, first * 1000), 2)
    draft, _ = relabel(trace, "key")
    made = draft.trace()
    assert ticks(made) == ticks(trace)
    assert not any("secret" in name for name in made.graphs[0].names())
    assert made.graphs[0].ids.tolist() == list(range(len(steps)))


@settings(max_examples=40, deadline=None)
@given(PROGRAMS)
def test_rows_written_and_read_are_the_same(steps: list[tuple[str, int, list[int]]]) -> None:
    rows = read(build(steps))
    again = read(write(rows, "again"))
    assert edges(again) == edges(rows)
    assert again.types.tolist() == rows.types.tolist()
    assert again.micros.tolist() == rows.micros.tolist()
    for name, column in rows.numbers.items():
        assert again.numbers[name].tolist() == column.tolist(), name
    names = [[each.words["name"].values[code] for code in each.words["name"].codes] for each in (rows, again)]
    assert names[0] == names[1]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-1, 10**15), min_size=1, max_size=20),
    st.floats(1e-3, 1.0),
    st.integers(0, 2**64 - 1),
)
def test_sizes_stay_within_the_bound(values: list[int], bound: float, key: int) -> None:
    given_values = np.array(values, np.int64)
    found = quantise(given_values, bound, uniform(key, given_values))
    for old, new in zip(values, found.tolist(), strict=True):
        assert new == old if old < 1 else old / (1 + bound) <= new <= old * (1 + bound)


def test_sizes_move_and_follow_from_the_key() -> None:
    values = np.arange(10**6, 10**6 + 50)
    found = [quantise(values, 0.05, uniform(digest(key), values)).tolist() for key in ("a", "a", "b")]
    assert found[0] == found[1] != found[2]
    assert len(set(found[0])) < 10
    assert word("a", "x") != word("b", "x")


@settings(max_examples=40, deadline=None)
@given(PROGRAMS, st.floats(0.01, 0.3))
def test_every_size_of_a_trace_is_within_the_bound(
    steps: list[tuple[str, int, list[int]]], bound: float
) -> None:
    draft, _ = relabel(Trace.replicate(build(steps), 2), "key")
    old, new = draft.rows[0], perturb(draft, bound, "key").rows[0]
    for name in ("num_ops", "tensor_size", "comm_size"):
        there = old.number(name) > 0
        ratio = new.number(name)[there] / old.number(name)[there]
        assert ((ratio <= 1 + bound) & (ratio >= 1 / (1 + bound))).all()
    timed = old.micros > 0
    ratio = new.number("duration_ns")[timed] / (old.micros[timed] * 1000)
    assert ((ratio <= 1 + bound) & (ratio >= 1 / (1 + bound))).all()


@settings(max_examples=40, deadline=None)
@given(PROGRAMS, st.integers(0, 99))
def test_pieces_share_what_there_was(steps: list[tuple[str, int, list[int]]], seed: int) -> None:
    rows = read(build(steps))
    pieces = np.random.default_rng(seed).integers(1, 4, rows.n)
    made = split(rows, pieces)
    first = (np.cumsum(pieces) - pieces).tolist()
    slow = {(first[i] + k, first[i] + k - 1) for i, n in enumerate(pieces.tolist()) for k in range(1, n)}
    slow |= {(first[child], first[parent] + int(pieces[parent]) - 1) for child, parent in edges(rows)}
    assert set(edges(made)) == slow
    for i, n in enumerate(pieces.tolist()):
        for name in ("num_ops", "comm_size", "tensor_size"):
            total = int(made.number(name)[first[i] : first[i] + n].sum())
            assert total == max(int(rows.number(name)[i]), n * (rows.number(name)[i] > 0))


@settings(max_examples=40, deadline=None)
@given(PROGRAMS, st.integers(0, 99))
def test_runs_are_joined_as_a_slow_reference_does(steps: list[tuple[str, int, list[int]]], seed: int) -> None:
    rows = read(build(steps))
    made = join_runs(rows, np.random.default_rng(seed), 1.0).of(rows)
    parents = {i: [p for c, p in edges(rows) if c == i] for i in range(rows.n)}
    children = {i: [c for c, p in edges(rows) if p == i] for i in range(rows.n)}
    kind = [step[0] for step in steps]
    root = list(range(rows.n))
    for i in range(rows.n):
        if kind[i] in ("compute", "measured") and len(parents[i]) == 1:
            before = parents[i][0]
            if kind[before] == kind[i] and children[before] == [i]:
                root[i] = root[before]
    assert made.n == len(set(root))
    for name in ("num_ops", "comm_size"):
        assert int(made.number(name).sum()) == int(rows.number(name).sum())
    for place, own in enumerate(sorted(set(root))):
        mine = [i for i in range(rows.n) if root[i] == own]
        assert int(made.number("num_ops")[place]) == sum(int(rows.number("num_ops")[i]) for i in mine)


@settings(max_examples=40, deadline=None)
@given(PROGRAMS, st.integers(0, 99))
def test_another_order_is_the_same_graph(steps: list[tuple[str, int, list[int]]], seed: int) -> None:
    rows = read(build(steps))
    made = shuffle(rows, np.random.default_rng(seed))
    assert all(parent < child for child, parent in edges(made))

    def shape(each: Rows) -> list[tuple[str, list[str]]]:
        names = [each.words["name"].values[code] for code in each.words["name"].codes]
        return sorted((names[i], sorted(names[p] for c, p in edges(each) if c == i)) for i in range(each.n))

    assert shape(made) == shape(rows)
    called = [
        made.words["name"].values[code]
        for code, kind in zip(made.words["name"].codes, made.types, strict=True)
        if kind == 7
    ]
    assert called == [f"secret.{i}" for i, step in enumerate(steps) if step[0] == "all-reduce"]


@settings(max_examples=40, deadline=None)
@given(PROGRAMS, st.integers(0, 99), st.integers(0, 8))
def test_windows_keep_all_work_and_the_order_of_kernels(
    steps: list[tuple[str, int, list[int]]], seed: int, windows: int
) -> None:
    steps = [
        ("compute", 10, []),
        *((("compute" if kind == "measured" else kind), *more) for kind, *more in steps),
    ]
    draft, _ = relabel(Trace.replicate(build(steps), 2), "key")
    rows = draft.rows[0]
    line = armillary.simulate(draft.trace(), MACHINE)
    spans = Spans(*(np.asarray(ticks) for ticks in line.spans(0)))
    none, one = np.zeros(rows.n, np.bool_), np.zeros(rows.n, np.int64)
    joined = coarsen(rows, spans, none, one, windows, np.random.default_rng(seed))
    assert joined is not None
    made = joined.of(rows)
    assert (joined.parent < joined.child).all()
    for kind in (2, 4, 7):
        for name in ("num_ops", "tensor_size", "comm_size"):
            old, new = (int(each.number(name)[each.types == kind].sum()) for each in (rows, made))
            assert abs(new - old) <= made.n
    kernels = np.flatnonzero(made.types == 4).tolist()
    assert len(kernels) <= windows + 1
    assert all((later, before) in edges(made) for before, later in pairwise(kernels))


def test_several_streams_are_not_cut_into_windows() -> None:
    b = GraphBuilder()
    for number, stream in enumerate((1, 2)):
        b.add(f"k{number}", 4, [("num_ops", "int64", 10**6), ("stream", "int64", stream)])
    draft, _ = relabel(Trace.replicate(b.graph(), 2), "key")
    spans = Spans(np.array([0, 0]), np.array([10, 10]))
    nothing = np.zeros(2, np.bool_), np.zeros(2, np.int64)
    assert coarsen(draft.rows[0], spans, *nothing, 3, np.random.default_rng(0)) is None


def test_an_all_reduce_unfolds_into_the_same_time() -> None:
    rows = read(build([("compute", 10**6, [1]), ("all-reduce", 1 << 26, [1]), ("compute", 10**6, [1])]))
    made = unfold(rows, np.ones(3, np.bool_), np.full(3, 2))
    assert made.number("comm_type", -1).tolist() == [-1, 7, 2, -1]
    assert made.number("comm_size").tolist() == [0, 1 << 26, 1 << 25, 0]
    assert edges(made) == [(1, 0), (2, 1), (3, 2)]
    times = [ticks(Trace.replicate(write(each, "made"), 2)) for each in (rows, made)]
    assert times[1] == pytest.approx(times[0], rel=0.01)


def test_sizes_are_evened_out_and_their_sum_stays() -> None:
    rows = read(build([("all-reduce", size, [1]) for size in (1000, 1020, 5000, 4400)]))
    made = even_out(rows, np.array([True, True, True, True]))
    assert made.number("comm_size").tolist() == [1010, 1010, 4700, 4700]
    assert even_out(rows, np.zeros(4, np.bool_)).number("comm_size").tolist() == [1000, 1020, 5000, 4400]


def test_totals_are_scaled_by_kind() -> None:
    steps = [("compute", 10**6, [1]), ("all-reduce", 10**6, [1]), ("load", 10**6, [1])]
    draft, _ = relabel(Trace.replicate(build(steps), 2), "key")
    assert kinds_of_work(draft) == ["ALL_REDUCE in 2", "bytes", "memory", "operations"]
    made = scaled(draft, {"ALL_REDUCE in 2": 2.0, "memory": 3.0, "operations": 0.5}).rows[0]
    assert made.number("comm_size").tolist() == [0, 2 * 10**6, 0]
    assert made.number("num_ops").tolist() == [5 * 10**5, 0, 0]
    assert made.number("tensor_size").tolist() == [10**6 // 7 + 1, 0, 3 * 10**6]


def test_a_legend_puts_everything_back(tmp_path: Path) -> None:
    b = GraphBuilder(rank=0, first_id=70)
    first = b.compute("qkv", flops=10)
    b.metadata("## process_group:init ##", '[\'[{"pg_name": "7", "ranks": [0, 1]}]\']')
    b.all_reduce("gradients", 1024, group=7, after=[first])
    b.send(1, 10, tag=12)
    other = GraphBuilder(rank=1)
    other.metadata("## process_group:init ##", '[\'[{"pg_name": "7", "ranks": [0, 1]}]\']')
    other.all_reduce("gradients", 1024, group=7)
    other.recv(0, 10, tag=12)
    trace = Trace.from_ranks([b.graph(), other.graph()])
    draft, legend = relabel(trace, "key")
    path = tmp_path / "map.json"
    write_legend(path, legend, "key")
    assert path.stat().st_mode & 0o077 == 0
    found = restore(draft.trace(), read_legend(path))
    for rank in range(2):
        old = {node.name: node for node in nodes_of(trace.graph(rank)) if node.type != 1}
        new = {node.name: node for node in nodes_of(found.graph(rank)) if node.type != 1}
        assert old.keys() == new.keys()
        for name in old:
            assert (old[name].id, old[name].data_deps) == (new[name].id, new[name].data_deps)
            kept = {each[0]: each[2] for each in new[name].attrs}
            assert all(kept.get(each[0], False) == each[2] for each in old[name].attrs)
    assert ticks(found) == ticks(trace)


def test_a_file_that_is_no_map_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text('{"armillary_obfuscation_map": 2}')
    with pytest.raises(InputError, match="got 2, expected 1"):
        read_legend(path)
    path.write_text('{"armillary_obfuscation_map": 1, "nmes": {}}')
    with pytest.raises(InputError, match=r"nmes.*names"):
        read_legend(path)
    path.write_text('{"armillary_obfuscation_map": 1, "tags": {"a": 2}}')
    with pytest.raises(InputError, match="--map wrote"):
        read_legend(path)


def test_a_key_may_be_any_bytes_of_a_command_line() -> None:
    assert word("\udcff", "gemm") != word("\udcfe", "gemm")
