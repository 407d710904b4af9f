"""Changes the number of microbatches or of stages of a recorded pipeline: copies its tasks in the new order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.kernels import Mask, Nodes
from armillary.lab.extrapolation.recorded.microbatches import scale_outside
from armillary.lab.extrapolation.recorded.replicas import lacks_replicas
from armillary.lab.extrapolation.recorded.restage import NewStage, restaged
from armillary.lab.extrapolation.recorded.stages import (
    EXPECTED,
    Kind,
    RecordedStage,
    order_of,
    recorded_stage,
)
from armillary.lab.extrapolation.recorded.tensors import program_of
from armillary.lab.extrapolation.recorded.written import Source, Written, is_restaged
from armillary.trace import Graph, NodeType, Trace
from armillary.trace.axis_sets import grid_of
from armillary.trace.grid import RankGrid

Note = Callable[[str, int], None]
Unknown = list[tuple[Graph, Mask]]


def check_whole(trace: Trace, axes: Iterable[str]) -> None:
    """Check that tensors can be followed where axes are to be scaled.

    Raises:
        InputError: layers were left out before, and something else than replicas is asked for.
    """
    for axis in axes if any(is_restaged(graph) for graph in trace.graphs) else ():
        if axis != "dp" or not lacks_replicas(trace):
            how = (
                "the recording to be scaled"
                if axis == "pp"
                else f"pp and {axis} to be scaled at once, in the recording"
            )
            raise InputError(
                f"scale {axis}: the trace is a recorded pipeline that was divided into more stages, whose tensors are "
                f"not followed any more; expected {how}"
            )


def remake_recorded(
    trace: Trace, stages: int | None, times: Fraction, note: Note, unknown: Callable[[Unknown], None]
) -> Trace:
    """Return the recorded pipeline with another number of stages, and `times` as many microbatches.

    Args:
        trace: One with an axis ``pp``.
        stages: How many; None: as many as there are.
        times: Factor of the number of microbatches.
        note: Takes what is assumed.
        unknown: Takes the graphs with the nodes whose work no rule knows.

    Raises:
        InputError: the stages are not those of a known schedule, or cannot be divided so; says why.
    """
    axis = "microbatches" if stages is None else "pp"
    grid = grid_of(trace)
    mesh_dims = grid.axes.get("pp", ())
    if len(mesh_dims) != 1:
        raise InputError(f"scale {axis}: the trace has no single axis of stages (pp); {EXPECTED}")
    mesh_dim = mesh_dims[0]
    # One column per place on the other axes: the graphs of its stages, first to last.
    table = np.moveaxis(trace.rank_graph.reshape(grid.sizes[::-1]), len(grid.sizes) - 1 - mesh_dim, 0)
    columns = table.reshape(grid.sizes[mesh_dim], -1)
    made: dict[tuple[int, ...], list[int]] = {}
    graphs: list[Graph] = []
    unseen: Unknown = []
    for column in columns.T.tolist():
        # Replicas run the same graphs: each distinct pipeline is remade once.
        if tuple(column) in made:
            continue
        try:
            own = [
                recorded_stage(Nodes(trace.graphs[each], grid), at, len(column))
                for at, each in enumerate(column)
            ]
            new = _remade(own, stages, times, note, unseen)
        except InputError as error:
            raise InputError(f"scale {axis}: {error}") from None
        made[tuple(column)] = [len(graphs) + at for at in range(len(new))]
        graphs += new
    unknown(unseen)
    table = np.array([made[tuple(column)] for column in columns.T.tolist()], np.int32).T
    sizes = [len(table) if at == mesh_dim else size for at, size in enumerate(grid.sizes)]
    table = table.reshape(len(table), *np.delete(sizes, mesh_dim)[::-1])
    # Back to the order of ranks, with the new number of stages.
    ranks = np.moveaxis(table, 0, len(sizes) - 1 - mesh_dim).ravel()
    subsets = {
        name: (along, (0, len(table) - 1)) if along == "pp" else (along, places)
        for name, (along, places) in grid.subsets.items()
    }
    return replace(
        trace, graphs=tuple(graphs), rank_graph=ranks, grid=RankGrid(tuple(sizes), grid.axes, subsets)
    )


def _remade(
    stages: list[RecordedStage], number: int | None, times: Fraction, note: Note, unseen: Unknown
) -> list[Graph]:
    """Return the graphs of the stages of one column of the grid.

    Raises:
        InputError: they do not fit together, or the new numbers do not fit the schedule.
    """
    old, schedule = stages[0].microbatches, stages[0].schedule
    if any((each.microbatches, each.schedule) != (old, schedule) for each in stages):
        counts = [each.microbatches for each in stages]
        raise InputError(f"stages have {counts} microbatches; expected as many on each, in one schedule")
    count = old * times
    if count.denominator > 1 or count < 1:
        raise InputError(f"{float(times):g} times {old} microbatches are no whole number; expected one")
    new = int(count)
    places = number or len(stages)
    if schedule == "1f1b" and new < places:
        raise InputError(
            f"{new} microbatches for {places} stages, which Schedule1F1B refuses; expected at least {places}, such as "
            f"by scaling microbatches by {-(-places // old)}"
        )
    if new != old:
        stages = [_outside(each, new, note, unseen) for each in stages]
    sources = [Source(each) for each in stages]
    made = [NewStage(source) for source in sources]
    if number is not None:
        made, unknown = restaged(sources, number, note)
        for stage, nodes in zip(stages, unknown, strict=True):
            mask = np.zeros(stage.nodes.graph.n_nodes, np.bool_)
            mask[nodes] = True
            unseen.append((stage.nodes.graph, mask))
    graphs = [_written(each, at, places, new) for at, each in enumerate(made)]
    if new != old:
        note("microbatches: first and last do what they did, those between in turn what those between did",
             2 * new * places)  # fmt: skip
    note(f"pipeline: in the order of schedule {schedule}, which is the recorded one", 0)
    return graphs


def _written(made: NewStage, at: int, places: int, count: int) -> Graph:
    """Return the graph of a stage."""
    stage = made.source.stage
    written = Written(made.source.thread)
    for part in made.parts("", 0):
        written.add(*part[:2], "", 0, 0, part[2])
    for kind, microbatch in order_of(stage.schedule, places, at, count):
        like = _source(stage, kind, microbatch, count)
        for source, piece, left_out in made.parts(kind, like):
            written.add(source, piece, kind, microbatch, microbatch - like, left_out)
    for part in made.parts("", 1):
        written.add(*part[:2], "", 0, count - stage.microbatches, part[2])
    graph = stage.nodes.graph
    name = f"stage {at} made from {graph.source}" if made.layers else graph.source
    return written.graph(graph, name, restaged=made.layers is not None)


def _source(stage: RecordedStage, kind: Kind, microbatch: int, count: int) -> int:
    """Return the recorded microbatch that does what one of `count` is to do.

    Gradients are made by the first, and added to by others; the last may reduce them.

    Raises:
        InputError: none does.
    """
    old = stage.microbatches
    if microbatch == 0:
        return 0
    if microbatch == count - 1:
        return old - 1
    # The ones between take turns, so that differences between recorded microbatches survive.
    if old > 2:
        return 1 + (microbatch - 1) % (old - 2)
    if kind == "B" and _collectives(stage, 1) != _collectives(stage, 0):
        raise InputError(
            f"{stage.nodes.graph.source} has 2 microbatches, of which the first makes gradients and the last reduces "
            "them, so what others do is not seen; expected a recording of 3 or more"
        )
    return old - 1


def _collectives(stage: RecordedStage, microbatch: int) -> int:
    kinds = stage.nodes.graph.types
    piece = stage.of("B", microbatch)
    return sum(int(kinds[node] == NodeType.COMM_COLL_NODE) for unit in piece.units for node in unit.nodes)


def _outside(stage: RecordedStage, count: int, note: Note, unseen: Unknown) -> RecordedStage:
    """Return a stage whose work outside of microbatches is that for `count` of them."""
    nodes = stage.nodes
    outside = np.zeros(nodes.graph.n_nodes, np.bool_)
    for piece in (stage.pieces[0], stage.pieces[-1]):
        outside[[node for unit in piece.units for node in unit.nodes]] = True
    scaling = scale_outside(nodes, program_of(nodes.graph), outside, stage.microbatches, count)
    unseen.append((nodes.graph, scaling.unclassified))
    for rule, mask in scaling.rules.items():
        note(rule, int(mask.sum()))
    return replace(stage, nodes=Nodes(scaling.graph(), nodes.grid))
