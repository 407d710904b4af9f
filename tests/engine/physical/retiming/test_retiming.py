"""Times that are computed anew from one run, against simulations of each machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError, StuckError
from armillary.engine.physical.retiming.decisions import UnknownTimesError
from armillary.engine.physical.retiming.machines import Machines, Retiming
from armillary.platform.kernels import Terms
from armillary.platform.model import Npu, Platform
from armillary.platform.network import Dimension
from armillary.trace import Graph, GraphBuilder, Trace
from armillary.trace.grid import RankGrid
from tests.engine.physical.test_grid import Case, cases

SIZES = [1, 1000, 40_000, 100_001]


@settings(max_examples=60)
@given(cases())
def test_a_machine_that_does_not_differ_has_the_ticks_of_the_run(case: Case) -> None:
    # Slow ports are of drawn machines only.
    platform = replace(case.platform, port_speed={})
    try:
        retiming = Retiming(case.trace, platform)
        simulated = armillary.simulate(case.trace, platform)
    except (InputError, StuckError, UnknownTimesError):
        assume(False)
        return
    assert retiming.total == simulated.total_ticks
    same = Machines(np.ones((2, case.trace.n_ranks)))
    assert retiming.ends(same).tolist() == [simulated.total_ticks] * 2


@st.composite
def chains(draw: Any) -> Trace:
    """Ranks of a grid that run kernels and, between them, collectives over axes or messages from stage to stage.

    Not both: a message comes while its receiver is still in a collective, and they share a port.
    """
    sizes = tuple(draw(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3)))
    names = [f"a{d}" for d in range(len(sizes))]
    grid = RankGrid(sizes, {name: (d,) for d, name in enumerate(names)})
    stages, moves = grid.size("a0"), draw(st.sampled_from(["meet", "send"]))
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["kernel", moves]), st.sampled_from(["", *names]),
                st.sampled_from(SIZES),
            ),
            min_size=1, max_size=8,
        )
    )  # fmt: skip
    micros = draw(st.lists(st.integers(1, 30), min_size=stages, max_size=stages))
    graphs = tuple(_stage(stage, stages, steps, micros[stage]) for stage in range(stages))
    return Trace(graphs, grid.coordinate("a0").astype(np.int32), grid)


def _stage(stage: int, stages: int, steps: list[tuple[str, str, int]], micros: int) -> Graph:
    b, after = GraphBuilder(), list[int]()
    for number, (kind, axis, size) in enumerate(steps):
        if kind == "kernel":
            after = [b.compute("k", duration_micros=micros + number, after=after)]
        elif kind == "meet":
            after = [b.all_reduce("c", size, group=axis or None, after=after)]
        else:
            for sends in (False, True):
                if (stage + 1 < stages) if sends else stage:
                    move = b.send if sends else b.recv
                    after = [move(1 if sends else -1, size, number, axis="a0", after=after)]
    return b.graph(f"stage {stage}")


@settings(max_examples=40)
@given(chains(), st.integers(0, 1000))
def test_one_thing_after_the_other_is_exact_on_one_switch(trace: Trace, seed: int) -> None:
    """No transfer shares a port with another, so that every drawn machine has the ticks of its own simulation."""
    n, random = trace.n_ranks, np.random.default_rng(seed)
    dimension = Dimension("d", "Switch", n, 10.0, 100.0)
    platform = Platform((dimension,), stragglers=dict.fromkeys(range(n), 7.0))
    retiming = Retiming(trace, platform)
    machines = Machines(
        random.choice([0.5, 0.8, 1.0, 1.7], (3, n)),
        random.choice([0, 0, 40, 20_000], (3, n)).astype(np.int64),
    )
    assert machines.delay is not None
    simulated = [
        armillary.simulate(
            trace,
            replace(
                platform, npu=Npu(speed=dict(enumerate(machines.speed[row].tolist()))),
                stragglers={rank: 7.0 + late for rank, late in enumerate(machines.delay[row].tolist())},
            ),
        ).total_ticks
        for row in range(3)
    ]  # fmt: skip
    assert retiming.ends(machines).tolist() == simulated
    assert retiming.ends(machines.part(slice(1, 2))).tolist() == simulated[1:2]


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_slow_ports_slow_what_crosses_them(share: float) -> None:
    b = GraphBuilder()
    b.all_reduce("c", 1 << 24)
    trace = Trace((b.graph(),), np.zeros(8, np.int32), RankGrid((8,), {"a": (0,)}))
    platform = Platform((Dimension("d", "Switch", 8, 10.0, 0.0),))
    ports = np.ones((1, 8, 1))
    ports[0, 3, 0] = share
    found = int(Retiming(trace, platform).ends(Machines(np.ones((1, 8)), ports=ports))[0])
    slow = replace(platform, port_speed={3: (share,)})
    assert found == pytest.approx(armillary.simulate(trace, slow).total_ticks, rel=1e-6)


def test_what_has_no_grid_or_interferes_is_refused() -> None:
    b = GraphBuilder()
    b.all_reduce("c", 1 << 20)
    listed = Trace.from_ranks([b.graph()] * 4)
    grid = Trace((b.graph(),), np.zeros(4, np.int32), RankGrid((4,), {"a": (0,)}))
    platform = Platform((Dimension("d", "Switch", 4, 10.0, 100.0),))
    overlapping = replace(platform, terms=Terms(overlap_compute=0.2))
    for trace, machine in ((listed, platform), (grid, overlapping)):
        with pytest.raises(UnknownTimesError):
            Retiming(trace, machine)
