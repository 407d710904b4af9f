"""Changes the number of stages or of microbatches: layers are lifted out of their stages and emitted into new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, one_of
from armillary.base.units import format_bytes
from armillary.lab.extrapolation.edit import with_ints
from armillary.lab.extrapolation.grow import with_replicas
from armillary.lab.extrapolation.kernels import Nodes
from armillary.lab.extrapolation.pipeline.lift import Work, works_of
from armillary.lab.extrapolation.pipeline.motifs import labelled
from armillary.lab.extrapolation.pipeline.replicas import Replicas, replicas_of
from armillary.lab.extrapolation.pipeline.segments import Stage, stage_of
from armillary.trace import Graph, Trace
from armillary.trace.axis_sets import grid_of
from armillary.trace.grid import AXIS, Ints, RankGrid
from armillary.workload.emit.training import Pieces
from armillary.workload.emit.training import Stage as Emitted
from armillary.workload.layers.layer import Layer
from armillary.workload.pipeline.partition import EMBEDDING, HEAD, partition
from armillary.workload.pipeline.tasks import tasks
from armillary.workload.plan.schema import Plan

SCHEDULES = ("1f1b", "gpipe", "zero-bubble")
AXES = ("tp", "cp", "dp", "pp")
AHEAD = (1, 0, 2, 3, 4)
"""Prefetch distances of sharded weights, in layers, in the order in which they are tried; 1 is the usual one."""
COMPARED = ("comm_size", "comm_type")
SIZES = ("num_ops", "tensor_size")
CLOSE = 1e-3
"""Relative difference in the bytes of gradients that is still taken for rounding."""
NEAR = 16
"""Steps back in which an indirect dependency is searched."""


@dataclass(frozen=True)
class _Taken:
    """A pipeline in parts: its stages, the layers of the whole model, and how replicas share them."""

    trace: Trace
    stages: tuple[Stage, ...]
    layers: tuple[Layer, ...]
    counts: tuple[int, ...]
    replicas: Replicas
    schedule: str
    boundary: int
    virtual: int

    @property
    def microbatches(self) -> int:
        return self.stages[0].microbatches


def remake(
    trace: Trace, stages: int | None, times: Fraction, note: Callable[[str, int], None], *, replicas: int = 1
) -> Trace:
    """Return the trace with another number of stages, `times` as many microbatches, or replicas of experts.

    The layers are put together again by the rules of `armillary.workload.emit`. That these are the rules of the trace
    is proved first: with the old numbers they must give its graphs, node by node.

    Raises:
        InputError: they do not, or there are more stages than layers; names the node that differs.
    """
    taken = _taken(trace)
    count = taken.microbatches * times
    if count.denominator > 1 or count < 1:
        raise InputError(
            f"scale microbatches: {float(times):g} times {taken.microbatches} are no whole number; expected one"
        )
    old = len(taken.stages)
    # Proved at the old numbers before anything changes, so that an unknown program is refused rather than
    # remade wrongly.
    plan, corrections = _proved(taken)
    new = old if stages is None else stages
    same = new == old
    # At the same number of stages the old division of layers stays, even where it is uneven.
    made = _plan(taken, plan.data.prefetch, new, list(taken.counts) if same else None)
    grid = _grid(grid_of(trace) if replicas == 1 else with_replicas(grid_of(trace), replicas), new)
    graphs = _emit(taken, made, grid, int(count))
    graphs = [_corrected(graph, corrections) for graph in graphs]
    if replicas > 1:
        note("data: gradients of experts, which had one replica, are reduced as those of other layers", 0)
    if not same:
        note("pipeline: layers are divided evenly over the stages, with the smaller numbers at both ends", 0)
    if not any(graph.has("layer").any() for graph in trace.graphs):
        note("pipeline: layers are what repeats between the messages of a microbatch", 0)
    if taken.virtual > 1:
        note(f"pipeline: each rank has {taken.virtual} virtual stages, as before", 0)
    note(f"pipeline: schedule {taken.schedule}, proved on the trace itself", 0)
    note(f"pipeline: each layer does in its new stage and microbatches what it did ({len(taken.layers)} layers)",
         sum(graph.n_nodes for graph in graphs))  # fmt: skip
    if taken.replicas.overlap and taken.replicas.sharding in ("ddp", "zero-1", "zero-2"):
        note(
            f"pipeline: gradients are reduced from {format_bytes(taken.replicas.bucket)} on, as far as the trace shows",
            0,
        )
    note(
        f"pipeline: weights are shared by replicas as {taken.replicas.sharding}, found from their collectives",
        0,
    )
    return Trace(tuple(graphs), grid.coordinate("pp").astype(np.int32), grid, trace.about)


def _taken(trace: Trace) -> _Taken:
    grid = grid_of(trace)
    mesh_dims = grid.axes.get("pp", ())
    if len(mesh_dims) > 1:
        raise InputError(f"scale pp: the stages are along {len(mesh_dims)} axes, expected one")
    # Without an axis pp the trace is a pipeline of one stage, whose microbatches can still be scaled.
    place = grid.coordinate("pp") if mesh_dims else np.zeros(trace.n_ranks, np.int64)
    count = grid.size("pp") if mesh_dims else 1
    ranks = []
    for stage in range(count):
        graphs = np.unique(trace.rank_graph[place == stage])
        if len(graphs) > 1:
            raise InputError(
                f"scale pp: the ranks of stage {stage} do {len(graphs)} different things; expected all to do the same"
            )
        ranks.append(Nodes(trace.graphs[int(graphs[0])], grid))
    stages = [stage_of(nodes) for nodes in labelled(ranks)]
    works: dict[int, Work] = {}
    for number, each in enumerate(stages):
        for layer, work in works_of(each).items():
            if layer in works:
                raise InputError(
                    f"scale pp: layer {layer} is in stage {number} and in one before; expected one of them"
                )
            works[layer] = work
    # From here on, layers are in the order of the model: turn by turn over the stages where stages are
    # interleaved.
    virtual = _virtual(stages)
    works = {layer: works[layer] for chunk in virtual for layer in chunk}
    replicas = replicas_of(stages, works)
    handed = sorted({size for each in stages for size in each.handed})
    if len(handed) > 1:
        raise InputError(f"scale pp: stages hand on {handed} bytes; expected the same everywhere")
    if not handed and count > 1:
        raise InputError("scale pp: stages hand nothing on; expected messages between them")
    layers = _layers(works, replicas)
    # A plan counts layers without the embedding and the head, which `partition` adds to the first and last
    # stage.
    ends = int(layers[0].name == EMBEDDING), int(layers[-1].name == HEAD)
    counts = [len(each) for each in virtual]
    counts[0] -= ends[0]
    counts[-1] -= ends[1]
    found = _Taken(trace, tuple(stages), layers, tuple(counts), replicas, "", handed[0] if handed else 0,
                   len(virtual) // count)  # fmt: skip
    return replace(found, schedule=_schedule(found))


def _virtual(stages: Sequence[Stage]) -> list[list[int]]:
    """Return the layers of every virtual stage, in the order of the model.

    Raises:
        InputError: stages do not take turns.
    """
    chunks = [each.chunks for each in stages]
    found = [each[turn] for turn in range(max(map(len, chunks))) for each in chunks if turn < len(each)]
    layers = [layer for each in found for layer in each]
    if len({len(each) for each in chunks}) > 1 or layers != list(range(len(layers))):
        of = "; ".join(f"{at} has {each.layers[:8]}" for at, each in enumerate(stages[:2]))
        raise InputError(
            f"scale pp: stage {of} …; expected stages of neighbouring layers, or to take turns with such (schedule "
            "interleaved)"
        )
    return found


def _layers(works: Mapping[int, Work], replicas: Replicas) -> tuple[Layer, ...]:
    """Return the layers; a first or last one unlike all others is the embedding or the head."""
    kinds = list(works.values())
    made: dict[Work, Layer] = {}
    for number, work in enumerate(kinds):
        # A single unlike layer at an end is the embedding or head; in a model of 2 layers either may just be
        # unlike.
        alone = kinds.count(work) == 1 and len(kinds) > 2
        name = EMBEDDING if alone and number == 0 else HEAD if alone and number == len(kinds) - 1 else "layer"
        if work not in made:
            own = dict(replicas.parameters[work])
            # hsdp reduces over two axis sets in turn; the parameters are one set, which the emitter divides
            # again.
            if replicas.sharding == "hsdp":
                own = {"dp+cp": sum(own.values())}
            made[work] = Layer(name, work.forward, work.backward, work.weight, own, replicas.partial[work])
    return tuple(made[work] for work in kinds)


def _schedule(taken: _Taken) -> str:
    found = [stage.tasks() for stage in taken.stages]
    for schedule in SCHEDULES if taken.virtual == 1 else ("interleaved",):
        # The interleaved schedule is defined only where stages divide the microbatches.
        fits = schedule != "interleaved" or taken.microbatches % len(found) == 0
        if fits and tasks(schedule, len(found), taken.virtual, taken.microbatches) == found:
            return schedule
    raise InputError(
        "scale pp: the order of microbatches is that of no known schedule; expected "
        f"{one_of((*SCHEDULES, 'interleaved'))}"
    )


def _proved(taken: _Taken) -> tuple[Plan, dict[str, dict[str, float]]]:
    """Return the plan by which the trace comes out again, and what its update needs besides.

    Raises:
        InputError: there is none.
    """
    problem = ""
    remade = _grid(grid_of(taken.trace), len(taken.stages))
    # Only gathers of weights depend on the prefetch distance; it is found by trying which gives the trace
    # back.
    for ahead in AHEAD if taken.replicas.sharding in ("fsdp", "hsdp") else AHEAD[:1]:
        plan = _plan(taken, ahead, len(taken.stages), list(taken.counts))
        graphs = _emit(taken, plan, remade, taken.microbatches)
        pairs = [(stage.nodes, graph) for stage, graph in zip(taken.stages, graphs, strict=True)]
        here = next((text for nodes, graph in pairs if (text := _difference(nodes, graph, remade))), "")
        if not here:
            return plan, _corrections(pairs)
        # The first attempt has the usual distance, so its message is the one to report.
        problem = problem or here
    raise InputError(f"scale pp: the stages cannot be remade by known rules: {problem}; expected a trace whose layers, "
                     "put together again in the same number of stages, give it")  # fmt: skip


def _plan(taken: _Taken, ahead: int, stages: int, counts: list[int] | None) -> Plan:
    grid, replicas = grid_of(taken.trace), taken.replicas
    sizes = {axis: grid.size(axis) if axis in grid.axes else 1 for axis in ("tp", "cp", "dp", "ep")}
    data = {"sharding": replicas.sharding, "bucket": f"{replicas.bucket} B", "overlap": replicas.overlap,
            "prefetch": ahead,
            "limit": ahead + 1, "reshard": replicas.every or taken.microbatches == 1}  # fmt: skip
    if replicas.sharding == "hsdp":
        data["shard"] = grid.sizes[grid.axes["dp"][0]]
    return Plan.model_validate(
        {
            "ranks": taken.trace.n_ranks,
            "batch": 1,
            "parallel": sizes | {"pp": stages},
            "pipeline": {"schedule": taken.schedule, "virtual": taken.virtual, "layers": counts},
            "data": data,
            "numbers": {
                "gradients": "fp32" if replicas.gradient == 4 else "bf16",
                "compute": "fp32" if replicas.weight == 4 else "bf16",
            },
            "optimizer": "adam" if replicas.updates else "none",
        }
    )


def _emit(taken: _Taken, plan: Plan, grid: RankGrid, microbatches: int) -> list[Graph]:
    stages = plan.parallel.pp
    virtual = partition(list(taken.layers), plan)
    order = tasks(taken.schedule, stages, taken.virtual, microbatches)
    pieces, first = Pieces(), 0
    graphs: list[Graph] = []
    chunks = []
    for layers in virtual:
        chunks.append(list(enumerate(layers, first)))
        first += len(layers)
    boundaries = [taken.boundary] * len(virtual)
    for stage in range(stages):
        own = chunks[stage::stages]
        made = Emitted(plan, grid, own, order[stage], stage, pieces, boundaries, taken.replicas.tied)
        graphs.append(made.graph())
    return graphs


def _grid(grid: RankGrid, stages: int) -> RankGrid:
    """Return the grid with all axes that the rules name, if only as none."""
    axes = dict.fromkeys(AXES, ()) | dict(grid.axes)
    axes["edp"] = tuple(mesh_dim for mesh_dim in axes["dp"] if mesh_dim not in axes.get("ep", ()))
    if len(axes["dp"]) == 2 and "ep" not in grid.axes:
        axes |= {"fsdp": axes["dp"][:1], "replicate": axes["dp"][1:]}
    sizes = tuple(stages if mesh_dim in axes["pp"] else size for mesh_dim, size in enumerate(grid.sizes))
    return RankGrid(sizes, axes, {"pp.ends": ("pp", (0, stages - 1))} if stages > 1 else {})


def _difference(nodes: Nodes, made: Graph, grid: RankGrid) -> str:
    """Return how a graph differs from the one it should be; "" if it does not."""
    graph = nodes.graph
    if graph.n_nodes != made.n_nodes:
        return f"{graph.source} would have {made.n_nodes} nodes instead of {graph.n_nodes}"
    wrong = graph.types != made.types
    for name in (*COMPARED, *SIZES):
        # The update is compared in kind only: its quantities are adjusted afterwards, see `_corrections`.
        away = np.abs(graph.ints(name, -1) - made.ints(name, -1))
        # Sums of gradients that were scaled along tp before are rounded, and so are the parameters found from them.
        close = nodes.gradients & (name == "comm_size") & (away <= CLOSE * graph.ints(name))
        other = (away > 0) & ~close
        wrong |= other & ~(nodes.update & (name in SIZES))
    wrong |= _places(graph, nodes.grid) != _places(made, grid)
    ours, theirs = graph.parents(), made.parents()
    for node in range(graph.n_nodes):
        a = set(ours[1][ours[0][node] : ours[0][node + 1]].tolist())
        b = set(theirs[1][theirs[0][node] : theirs[0][node + 1]].tolist())
        # Either may name dependencies that the other implies.
        implied = a == b or (b - a <= _ancestors(ours, a) and a - b <= _ancestors(theirs, b))
        wrong[node] |= not implied
    return f"{graph.node(int(np.argmax(wrong)))} would differ" if wrong.any() else ""


def _places(graph: Graph, grid: RankGrid) -> NDArray[np.object_]:
    """Return for every node the mesh dimensions of its group, or of its message's axis, and the distance."""
    found = np.full(graph.n_nodes, None, object)
    codes, names = graph.strings("pg_name")
    mesh_dims = [(grid.mesh_dims(name), grid.places(name)) for name in names]
    for node in np.flatnonzero(codes >= 0).tolist():
        found[node] = mesh_dims[codes[node]]
    codes, names = graph.strings(AXIS)
    # A message has one of the two; the other is 0. Around a ring, distances are equal modulo its size.
    far = graph.ints("comm_dst") + graph.ints("comm_src")
    for node in np.flatnonzero(codes >= 0).tolist():
        axis = names[codes[node]]
        found[node] = (grid.mesh_dims_of(axis), int(far[node]) % max(1, grid.size(axis)))
    return found


def _ancestors(parents: tuple[Ints, NDArray[np.int32]], nodes: set[int]) -> set[int]:
    """Return some nodes and their predecessors, `NEAR` steps back: dependencies on these are implied."""
    found, edge = set(nodes), set(nodes)
    for _ in range(NEAR):
        edge = {
            each for node in edge for each in parents[1][parents[0][node] : parents[0][node + 1]].tolist()
        } - found
        found |= edge
    return found


def _corrections(pairs: Sequence[tuple[Nodes, Graph]]) -> dict[str, dict[str, float]]:
    """Return by name of the remade nodes of the update what their quantities are to be multiplied by."""
    found: dict[str, dict[str, float]] = {}
    for nodes, made in pairs:
        for node in np.flatnonzero(nodes.update).tolist():
            for name in SIZES:
                ratio = int(nodes.graph.ints(name)[node]) / max(1, int(made.ints(name)[node]))
                found.setdefault(made.name(node), {})[name] = ratio
    return found


def _corrected(graph: Graph, corrections: Mapping[str, Mapping[str, float]]) -> Graph:
    values = {name: graph.ints(name).copy() for name in SIZES}
    for node, factors in _matching(graph, corrections):
        for name, factor in factors.items():
            values[name][node] = max(1, round(int(values[name][node]) * factor))
    return with_ints(graph, values)


def _matching(
    graph: Graph, corrections: Mapping[str, Mapping[str, float]]
) -> Iterator[tuple[int, Mapping[str, float]]]:
    # Nodes without a microbatch are those before and after all of them; the update is among these.
    late = np.flatnonzero(graph.ints("micro_batch", -1) < 0).tolist()
    for node in late:
        if graph.name(node) in corrections:
            yield node, corrections[graph.name(node)]
