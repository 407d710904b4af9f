"""A trace whose groups and peers follow from rules, against the same with every rank written out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError, StuckError
from armillary.platform.kernels import Compute, Jitter
from armillary.platform.memory import LocalMemory, RemoteMemory
from armillary.platform.model import Collectives, Npu, Platform
from armillary.platform.network import Dimension, Port
from armillary.trace import CollectiveType, GraphBuilder, Trace
from armillary.trace.expand import expand
from armillary.trace.grid import RankGrid
from tests.engine.physical.reference.evaluate import simulate_slowly

from .programs import stages as staged

Outcome = list[tuple[int, dict[int, int], dict[int, int]]] | str


def outcome(trace: Trace, platform: Platform, **options: Any) -> Outcome:
    """Return (finish, start by node id, end by node id) of every rank, or "stuck"."""
    try:
        timeline = armillary.simulate(trace, platform, **options)
    except StuckError:
        return "stuck"
    result = []
    for rank, cls in enumerate(timeline.rank_class.tolist()):
        ids = timeline.table(cls).node_id.tolist()
        start, end = (dict(zip(ids, column.tolist(), strict=True)) for column in timeline.spans(cls))
        result.append((int(timeline.finish_ticks[rank]), start, end))
    return result


def same(symbolic: Outcome, listed: Outcome) -> None:
    """Compare the nodes of the class graphs: the node that defines the groups is in the listed trace only."""
    if isinstance(symbolic, str) or isinstance(listed, str):
        assert symbolic == listed
        return
    for one, other in zip(symbolic, listed, strict=True):
        assert one[0] == other[0]
        assert one[1] == {node: other[1][node] for node in one[1]}
        assert one[2] == {node: other[2][node] for node in one[2]}


@dataclass(frozen=True)
class Case:
    """A trace with a grid, and a machine."""

    trace: Trace
    platform: Platform


def factors(draw: Any, n: int) -> list[int]:
    """Cut n into factors in some order, some of them 1."""
    found = []
    while n > 1 and len(found) < 3:
        found.append(draw(st.sampled_from([f for f in range(2, n + 1) if n % f == 0])))
        n //= found[-1]
    return draw(st.permutations([*found, *([n] if n > 1 else []), *draw(st.sampled_from([[], [], [1]]))]))


@st.composite
def platforms(draw: Any, n: int) -> Platform:
    """A machine of n NPUs whose dimensions need not be those of the grid."""
    sizes = [size for size in factors(draw, n) if size > 1]
    same = draw(st.booleans())
    rates = [10.0] if same else [10.0, 5.0, 33.3]
    dimensions = tuple(
        Dimension(
            f"d{d}", draw(st.sampled_from(["Ring", "FullyConnected", "Switch", "Mesh"])), size,
            (out := draw(st.sampled_from(rates))), draw(st.sampled_from([0.0, 100.0])), Port(out, out),
        )
        for d, size in enumerate(sizes)
    )  # fmt: skip
    ranks = st.integers(0, n - 1)
    late = draw(st.booleans())
    scheduling = draw(st.sampled_from(["fair", "fifo", "lifo", "priority"]))
    collectives = Collectives(chunks=draw(st.sampled_from([1, 1, 3])))
    speed = draw(st.dictionaries(ranks, st.sampled_from([0.5, 1.3]), max_size=2)) if late else {}
    delay = draw(st.dictionaries(ranks, st.sampled_from([2.5, 700.0]), max_size=2)) if late else {}
    slow = st.tuples(*[st.sampled_from([1.0, 0.5]) for _ in dimensions])
    ports = draw(st.dictionaries(ranks, slow, max_size=2)) if late else {}
    jitter = draw(st.sampled_from([None, None, None, None, Jitter(0.2, 3)]))
    memory = draw(
        st.sampled_from([RemoteMemory("per-npu", 100, 5), RemoteMemory("pool", 100, 0), draw(staged())])
    )
    npu = Npu(memory=LocalMemory(draw(st.sampled_from([0.0, 20.0]))), speed=speed)
    return Platform(
        dimensions,
        npu,
        collectives=collectives,
        remote_memory=memory,
        scheduling=scheduling,
        stragglers=delay,
        jitter=jitter,
        port_speed=ports,
    )


@st.composite
def cases(draw: Any) -> Case:
    """Up to eight steps that the classes run, each of them its own way; a class is a place along ``pp``."""
    n = draw(st.sampled_from([2, 4, 6, 8, 12, 12, 16, 24]))
    platform, sizes = draw(platforms(n)), factors(draw, n)
    names = [f"a{mesh_dim}" for mesh_dim in range(len(sizes))]
    axes = {name: (mesh_dim,) for mesh_dim, name in enumerate(names)}
    axes["wide"] = tuple(sorted(draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1))))
    axes["pp"] = (draw(st.integers(0, len(sizes) - 1)),)
    grid = RankGrid(tuple(sizes), axes)
    stages = grid.size("pp")
    some = draw(st.sets(st.integers(0, stages - 1), min_size=1))
    order = draw(st.permutations(sorted(some)))
    grid = replace(grid, subsets={"pp.some": ("pp", tuple(order))})
    alone = n == stages
    builders = [GraphBuilder() for _ in range(stages)]
    made: list[list[list[int]]] = [[] for _ in range(stages)]
    last: list[list[int]] = [[] for _ in range(stages)]
    for number in range(draw(st.integers(1, 8))):
        kind = draw(
            st.sampled_from(["collective"] * 3 + ["compute", "shift", "line", "memory", "any", "lost"])
        )
        deps = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set()
        size = draw(st.sampled_from([1, 1000, 65536, 100_001]))
        stream, priority = draw(st.sampled_from([None, None, 1])), draw(st.sampled_from([None, 2]))
        axis = draw(st.sampled_from([name for name in axes if grid.size(name) > 1] or [None]))
        axis_set = "+".join(draw(st.lists(st.sampled_from(list(axes)), min_size=1, max_size=2)))
        axis_set = draw(st.sampled_from([axis_set, axis_set, "pp.some", ""]))
        inside = axis_set == "pp.some" or (axis_set and axes["pp"][0] not in grid.mesh_dims(axis_set))
        who = draw(st.sets(st.integers(0, stages - 1), min_size=1)) if inside else set(range(stages))
        if axis_set == "pp.some":
            who = some
        splits = draw(st.sampled_from([None, None, [500], [1, 0, 3000]]))
        steps, tag = draw(st.integers(-3, 3)), draw(st.sampled_from([0, 0, number]))
        micros = draw(st.lists(st.sampled_from([1, 2, 30]), min_size=stages, max_size=stages))
        operation = draw(
            st.sampled_from([CollectiveType.ALL_REDUCE, CollectiveType.ALL_TO_ALL, CollectiveType.ALL_GATHER])
        )
        together = platform.remote_memory.kind == "hierarchical" and draw(st.booleans())
        lost_from = draw(st.integers(0, stages - 1))
        for stage, b in enumerate(builders):
            after = [node for dep in sorted(deps) for node in made[stage][dep]]
            before = len(b.nodes)
            if kind == "compute":
                b.compute("k", duration_micros=micros[stage], after=after)
            elif kind == "memory" and together:
                if stage in who:
                    after = [*after, *last[stage]]
                    last[stage] = [
                        b.memory_load("m", size, after=after, in_switch=True, group=axis_set or None)
                    ]
            elif kind == "memory":
                b.memory_load("m", size, after=after)
            elif kind == "collective" and stage in who:
                last[stage] = [
                    b.collective("c", operation, size, group=axis_set or None, after=[*after, *last[stage]])
                ]
                if splits and operation == CollectiveType.ALL_TO_ALL:
                    members = n if not axis_set else grid.members(axis_set).shape[1]
                    bytes_ = [splits[(stage + i) % len(splits)] for i in range(members)]
                    b.nodes[-1].attrs.append(("comm_splits", "int64_list", bytes_))
            elif kind == "shift" and axis and steps % grid.size(axis):
                b.recv(-steps, size, tag, axis=str(axis), after=after)
                b.send(steps, size, tag, axis=str(axis), after=after)
            elif kind == "line" and stages > 1:
                received = [b.recv(-1, size, axis="pp", after=after)] if stage else []
                if stage + 1 < stages:
                    b.send(1, size, axis="pp", after=[*after, *received])
            elif kind == "lost" and stages > 1 and number % 2 and stage == lost_from:
                b.send(1, size, 77, axis="pp", after=after)
            elif kind == "any" and alone and stages > 1:
                first = int(np.argmax(grid.coordinate("pp") == 0))
                if stage:
                    b.send(first, size, 5, after=after)
                else:
                    for rank in np.flatnonzero(grid.coordinate("pp") != 0).tolist():
                        b.recv(rank, size, 5, after=after)
            nodes = b.nodes[before:]
            for node in nodes:
                if stream and kind in ("collective", "compute"):
                    node.attrs.append(("stream", "int32", stream))
                if priority:
                    node.attrs.append(("comm_priority", "int32", priority))
            made[stage].append([node.id for node in nodes] or after)
    graphs = tuple(b.graph(f"stage {stage}") for stage, b in enumerate(builders))
    trace = Trace(graphs, grid.coordinate("pp").astype(np.int32), grid)
    return Case(trace, platform)


@settings(deadline=None, max_examples=80)
@given(cases())
def test_rules_mean_what_they_expand_to(case: Case) -> None:
    listed = outcome(expand(case.trace), case.platform, fold=False)
    for fold in (True, False):
        same(outcome(case.trace, case.platform, fold=fold), listed)
    same(listed, outcome(expand(case.trace), case.platform))


def test_groups_of_one_axis_set_may_lie_differently_in_the_machine() -> None:
    """0, 2, 4, 6 are up to four links apart on a mesh of five, 1, 3, 5, 7 up to three."""
    b = GraphBuilder()
    b.all_reduce("c", 1000, group="b")
    grid = RankGrid((2, 4, 5), {"a": (0,), "b": (1,)})
    trace = Trace((b.graph(),), np.zeros(40, np.int32), grid)
    dimensions = (Dimension("x", "Mesh", 5, 10.0, 700.0), Dimension("y", "Switch", 8, 10.0, 1.0))
    found = outcome(trace, Platform(dimensions))
    same(found, outcome(expand(trace), Platform(dimensions), fold=False))
    assert found[0][0] != found[1][0]


def test_two_routes_to_one_peer_are_one_channel() -> None:
    """From rank 0, one step along either axis leads to rank 1; from rank 1 it does not."""
    b = GraphBuilder()
    for axis, sends in (("a", True), ("ab", True), ("ab", False), ("a", False)):
        move = b.send if sends else b.recv
        move(1 if sends else -1, 1000, axis=axis, after=[len(b.nodes) - 1] if b.nodes else [])
    grid = RankGrid((2, 2), {"a": (0,), "ab": (0, 1)})
    trace = Trace((b.graph(),), np.zeros(4, np.int32), grid)
    same(outcome(trace, machine(4)), outcome(expand(trace), machine(4), fold=False))


@settings(deadline=None, max_examples=30)
@given(cases())
def test_rules_mean_what_the_reference_says(case: Case) -> None:
    try:
        slow: Outcome = list(zip(*simulate_slowly(case.trace, case.platform), strict=True))
    except StuckError:
        slow = "stuck"
    same(outcome(case.trace, case.platform), slow)


def layers(grid: RankGrid, count: int = 3) -> Trace:
    """Stages along pp, with groups along tp and a last all-reduce along dp."""
    graphs = []
    stages = grid.size("pp")
    for stage in range(stages):
        b, last = GraphBuilder(), list[int]()
        if stage:
            last = [b.recv(-1, 1 << 20, axis="pp")]
        for _ in range(count):
            last = [b.compute("gemm", duration_micros=50, after=last)]
            last = [b.all_reduce("activations", 1 << 22, group="tp", after=last)]
        if stage + 1 < stages:
            b.send(1, 1 << 20, axis="pp", after=last)
        b.all_reduce("gradients", 1 << 26, group="dp", after=last)
        graphs.append(b.graph(f"stage {stage}"))
    return Trace(tuple(graphs), grid.coordinate("pp").astype(np.int32), grid)


AXES = {"tp": (0,), "dp": (1,), "pp": (2,)}


def machine(*sizes: int, speed: dict[int, float] | None = None, **keys: Any) -> Platform:
    """A machine of switches."""
    dimensions = tuple(Dimension(f"d{i}", "Switch", n, 50.0, 1000.0) for i, n in enumerate(sizes))
    return Platform(dimensions, Npu(speed=speed or {}), **keys)


@pytest.mark.parametrize(
    ("platform", "classes"),
    [
        (machine(4, 128, 8), 8),
        (machine(32, 16, 8), 8),
        # A slow rank is a class of its own in its group, that group in its stage, and so are those it waits for.
        (machine(4, 128, 8, speed={9: 0.5}), 24 + 8),
    ],
)
def test_cost_grows_with_classes(platform: Platform, classes: int) -> None:
    trace = layers(RankGrid((4, 128, 8), AXES))
    timeline = armillary.simulate(trace, platform)
    assert len(timeline.representative) <= classes
    listed = armillary.simulate(expand(trace), platform)
    np.testing.assert_array_equal(timeline.finish_ticks, listed.finish_ticks)
    assert len(timeline.representative) >= len(listed.representative)


def test_recorded_durations_have_the_same_streams() -> None:
    """Axis sets of one communicator are one stream where nodes take the time that was recorded, too."""
    b = GraphBuilder()
    for axis_set in ("tp", "tp+one", "all", None):
        b.all_reduce("c", 8, group=axis_set, duration_micros=5)
    grid = RankGrid((2, 1, 4), {"tp": (0,), "one": (1,), "all": (0, 1, 2), "dp": (2,)})
    trace = Trace((b.graph(),), np.zeros(8, np.int32), grid)
    platform = replace(machine(2, 4), compute=Compute(replay=True))
    found = outcome(trace, platform)
    same(found, outcome(expand(trace), platform))
    assert found[0][0] == 10_000


def test_profile_astra_sim_expands(machine: Any) -> None:
    """That profile reads the ranks one by one."""
    platform = machine((4, 4))
    trace = layers(RankGrid((4, 2, 2), AXES))
    same(
        outcome(trace, platform, profile="astra-sim"),
        outcome(expand(trace), platform, profile="astra-sim"),
    )


@pytest.mark.parametrize(
    ("axis", "steps", "error"),
    [
        ("tp", 4, "node 0 's' on rank 0 has itself as peer"),
        (None, 7, "node 0 's' on rank 7 has itself as peer"),
        (None, 99, "node 0 's' has peer 99; expected a rank from 0 to 7"),
        ("dq", 1, "did you mean 'dp'"),
    ],
)
def test_impossible_peers(axis: str | None, steps: int, error: str) -> None:
    b = GraphBuilder()
    b.send(steps, 8, name="s", axis=axis or "")
    trace = Trace((b.graph(),), np.zeros(8, np.int32), RankGrid((4, 2, 1), AXES))
    with pytest.raises(InputError, match=error):
        armillary.simulate(trace, machine(8))


def test_a_rank_outside_of_its_groups() -> None:
    b = GraphBuilder()
    b.all_reduce("a", 8, group="ends")
    grid = RankGrid((2, 2, 2), AXES, {"ends": ("pp", (1,))})
    with pytest.raises(InputError, match="node 0 'a': rank 0 is in no group 'ends'"):
        armillary.simulate(Trace((b.graph(),), np.zeros(8, np.int32), grid), machine(8))


def test_the_machine_must_fit() -> None:
    with pytest.raises(InputError, match="the trace has 16 ranks, but the network has 8 NPUs"):
        armillary.simulate(layers(RankGrid((4, 2, 2), AXES)), machine(8))


def test_lost_messages_are_warned_of_and_every_rank_is_simulated() -> None:
    b = GraphBuilder()
    b.send(1, 8, axis="pp")
    trace = Trace((b.graph(),), np.zeros(8, np.int32), RankGrid((2, 2, 2), AXES))
    timeline = armillary.simulate(trace, machine(8))
    listed = armillary.simulate(expand(trace), machine(8))
    assert timeline.info["warnings"] == listed.info["warnings"]
    assert "8 messages are never received" in timeline.info["warnings"][0]
    assert len(timeline.representative) == 8


def test_too_many_ranks_on_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from armillary.engine.physical import lower

    monkeypatch.setattr(lower, "MOST_NODES", 100)
    trace = layers(RankGrid((4, 2, 2), AXES))
    armillary.simulate(trace, machine(16))
    with pytest.raises(InputError, match="16 of 16 ranks must be simulated on their own, with 128 nodes"):
        armillary.simulate(trace, machine(16), fold=False)
