"""Messages on FIFO links: the kernel against the slow twin, every node of every rank, to the tick."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.engine.diagnose import check_finished
from armillary.engine.messages.lower import lower_messages
from armillary.engine.messages.run import execute
from armillary.engine.messages.stages import stages_of
from armillary.engine.result import timeline_of
from armillary.engine.transport.transport import Congestion
from armillary.engine.transport.use import link_use
from armillary.errors import StuckError
from armillary.jit import Mode
from armillary.platform.logical import logical_dimensions
from armillary.platform.topology import Topology, dragonfly, fat_tree, leaf_spine, rail_optimised
from armillary.platform.topology.description import Network
from armillary.report import bound

from ..physical.programs import Case, cases
from .twin import MessageMachine

GRAPHS: dict[int, list[Topology]] = {}
for graph in (
    leaf_spine(leaves=2, spines=2, npus_per_leaf=2, bandwidth=10.0, latency=100.0),
    leaf_spine(leaves=3, spines=2, npus_per_leaf=2, bandwidth=10.0, latency=0.7, uplink=3.3),
    fat_tree(4, 12.5, 250.0),
    dragonfly(2, 2, 1, 10.0, 100.0),
    rail_optimised(
        hosts=3, npus_per_host=2, bandwidth=5.0, latency=700.0, host_bandwidth=33.3, host_latency=10.0
    ),
):
    GRAPHS.setdefault(graph.npus, []).append(graph)


@st.composite
def programs(draw: st.DrawFn) -> Case:
    """A program on dimensions, or on a graph with as many NPUs."""
    case = draw(cases(most=6))
    physical = replace(
        case.platform.physical, active_chunks=draw(st.sampled_from([1, 2, 16])), scheduling="fair"
    )
    platform = replace(case.platform, physical=physical)
    if draw(st.booleans()) and platform.npus in GRAPHS:
        chosen = draw(st.sampled_from(GRAPHS[platform.npus]))
        network = Network(chosen, draw(st.sampled_from(["ecmp", "shortest"])) if not chosen.host else "rail")
        physical = replace(physical, algorithm={})
        platform = replace(
            platform, physical=physical, dimensions=logical_dimensions(chosen), topology=network
        )
    return replace(case, platform=platform)


def kernel(case: Case, mode: Mode) -> tuple[list[dict[int, tuple[int, int]]] | str, dict[int, int]]:
    """Return (start, end) by node id of every rank, or "stuck", and the bytes on every link that carried any."""
    trace, platform = case.trace(), case.platform
    stages = stages_of(platform)
    program = lower_messages(trace, platform, stages)
    run = execute(program, Congestion(), mode)
    use = link_use(run.net, stages[0].topology)
    carried = {link: size for link, size in enumerate(use.size.tolist()) if size}
    assert (use.series.sum(axis=1) == use.size).all()
    try:
        check_finished(program, run)
    except StuckError:
        return "stuck", carried
    timeline = timeline_of(program, run, platform, {})
    result = []
    for rank in range(trace.n_ranks):
        start, end = timeline.spans(int(timeline.rank_class[rank]))
        ids = trace.graph(rank).ids.tolist()
        result.append(dict(zip(ids, zip(start.tolist(), end.tolist(), strict=True), strict=True)))
    return result, carried


@settings(deadline=None, max_examples=60)
@given(programs())
def test_the_kernel_is_the_twin(case: Case) -> None:
    twin = MessageMachine(case.trace(), case.platform)
    twin.run()
    expected: list[dict[int, tuple[int, int]]] | str = [
        {node.id: (node.start, node.end) for node in twin.ranks[rank]} for rank in range(len(twin.ranks))
    ]
    if any(end < 0 for rank in expected if isinstance(rank, dict) for _, end in rank.values()):
        expected = "stuck"
    carried = {link: size for link, size in twin.carried.items() if size}
    for mode in ("interpreted", "compiled"):
        assert kernel(case, mode) == (expected, carried), mode


@settings(deadline=None, max_examples=40)
@given(programs())
def test_no_program_beats_its_bound(case: Case) -> None:
    timeline = armillary.simulate(case.trace(), case.platform, network_model="congestion")
    assert bound(timeline).ticks <= timeline.total_ticks
