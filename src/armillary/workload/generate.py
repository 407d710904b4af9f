"""A model and a plan in, a trace of training or inference out: one graph per class of ranks, however many ranks."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import accumulate
from typing import Any

import numpy as np

from armillary.base.allowed import SIMULATED, require
from armillary.base.counts import check_count
from armillary.base.errors import InputError
from armillary.base.garbage import uncollected
from armillary.base.units import format_bytes
from armillary.trace import Trace
from armillary.trace.placing import graphs_of
from armillary.trace.templates import PlacedGraph, of_times, with_templates
from armillary.workload.emit.parameter_server import parameter_server_trace, workers_of
from armillary.workload.emit.places import same_placements
from armillary.workload.emit.serving import rounds, serving_graph
from armillary.workload.emit.template import host_times
from armillary.workload.emit.training import Pieces, Stage
from armillary.workload.layers.embedding import share_of
from armillary.workload.layers.layer import Layer
from armillary.workload.layers.lora import adapter_parameters
from armillary.workload.layers.of_model import inference_layers, layers_of, variants
from armillary.workload.memory.advice import advise
from armillary.workload.memory.footprint import Footprint
from armillary.workload.models import Model, default_sequence, flops
from armillary.workload.models.schema import Decoder
from armillary.workload.pipeline.partition import partition
from armillary.workload.pipeline.tasks import chunks_of, tasks, virtual_stage
from armillary.workload.plan.effects import without_effect
from armillary.workload.plan.numbers import stores
from armillary.workload.plan.ranks import microbatches, rank_grid
from armillary.workload.plan.schema import Plan
from armillary.workload.plan.serving import check_serving

MOST_NODES = 50_000_000
"""Most nodes of all distinct graphs together: they fit into tens of GB."""


@uncollected()
def generate(model: Model, plan: Plan, *, memory: bool = True) -> Trace:
    """Return the trace of `plan.iterations` training steps, or, with `plan.serve`, of prompts and answers.

    Ranks of a pipeline stage share a graph and differ in their place in the grid (`Trace.grid`) only; with uneven
    expert loads, ranks of a stage and of a place along ``ep`` do.

    Args:
        model: The model.
        plan: How it is run.
        memory: Whether `Trace.about` says what the fullest rank needs, which the graphs do not depend on.

    Raises:
        InputError: the plan is impossible; names the number and the nearest that works.
    """
    if plan.serve:
        return _serving(model, plan, memory)
    if plan.data.sharding == "parameter-server":
        trace = parameter_server_trace(replica_layers(model, plan), plan)
        return replace(trace, about=_about(model, plan, memory))
    if plan.checkpoint_every and plan.checkpoint_every > plan.iterations:
        raise InputError(
            f"checkpoint_every {plan.checkpoint_every}: no checkpoint in {plan.iterations} iterations, expected at "
            f"least {plan.checkpoint_every} of them"
        )
    first = layers_of(model, plan)
    partition(first, plan)  # what the model cannot do comes before what the ranks cannot
    grid = rank_grid(plan)
    schedule, stages = plan.pipeline.schedule, plan.parallel.pp
    count = microbatches(plan)
    axis, alike = variants(model, plan)
    places = sorted(set(alike))
    _check(plan, first, count, len(places))
    # PipeDream never drains its pipeline between iterations, so their microbatches are one sequence of tasks.
    if schedule == "pipedream":
        count *= plan.iterations
    order = tasks(schedule, stages, plan.pipeline.virtual, count)
    graphs: list[PlacedGraph] = []
    pieces, made = Pieces(plan.host), partition(first, plan)
    # One graph per stage and distinct place; equal layers of all of them share their pieces.
    for place in places:
        virtual = partition(layers_of(model, plan, place), plan) if place else made
        others = same_placements(made, virtual, pieces, plan) if graphs else None
        if others is not None:
            graphs += with_templates(graphs[:stages], others)
            continue
        boundaries = [each[-1].boundary for each in virtual]
        numbered = _numbered(virtual)
        placed = []
        for stage in range(stages):
            chunks = [
                numbered[virtual_stage(schedule, stages, stage, chunk)]
                for chunk in range(chunks_of(schedule, plan.pipeline.virtual))
            ]
            tied = _tied(model, plan)
            mine = Stage(plan, grid, chunks, order[stage], stage, pieces, boundaries, tied)
            placed.append(mine.placed())
        graphs += graphs_of(placed)
    of_rank = grid.coordinate("pp")
    if len(places) > 1:
        # `alike` has the representative place of each coordinate, `places` those that were generated, ascending.
        of_rank = of_rank + stages * np.searchsorted(places, alike)[grid.coordinate(axis)]
    return Trace(tuple(graphs), of_rank.astype(np.int32), grid, _about(model, plan, memory))


def in_other_times(trace: Trace, model: Model, plan: Plan) -> Trace:
    """Return the trace of a plan that differs from that of `trace` in the times of the host only.

    Times are those of `plan.host` and the handshake of a pipeline; those that are 0 are so in both.
    """
    graphs = [graph for graph in trace.graphs if isinstance(graph, PlacedGraph)]
    assert len(graphs) == len(trace.graphs)
    times = host_times(plan.host, plan.pipeline.handshake)
    about = trace.about | _about(model, plan, memory=False)
    return replace(trace, graphs=tuple(of_times(graphs, times)), about=about)


def _about(model: Model, plan: Plan, memory: bool) -> dict[str, Any]:
    """Return facts about the steps that the nodes do not hold: how many, what was assumed, the memory needed."""
    said: dict[str, Any] = {"iterations": plan.iterations} if plan.iterations > 1 else {}
    if assumed := assumed_sequence(model, plan):
        said["sequence_assumed"] = assumed
    if idle := without_effect(plan, model):
        said["without_effect"] = idle
    if plan.serve is None:
        said["model_flops"] = model_flops(model, plan) * plan.iterations
    return said | ({"memory": memory_of(model, plan)} if memory else {})


def model_flops(model: Model, plan: Plan) -> int:
    """Return the operations of a training step that the model needs, without recomputation.

    Frozen weights need no gradient: two passes instead of three, and the three of what is trained beside them.
    """
    found = flops(model, plan.batch, plan.sequence, causal=plan.causal)
    if plan.lora is None or not isinstance(model, Decoder):
        return found.training
    tokens = plan.batch * (plan.sequence or model.context)
    return 2 * found.forward + 6 * tokens * adapter_parameters(model, plan.lora)


def assumed_sequence(model: Model, plan: Plan) -> int:
    """Return the model's own tokens per sample if a training plan leaves them open; else 0."""
    return 0 if plan.serve or plan.sequence else default_sequence(model) or 0


def replica_layers(model: Model, plan: Plan) -> list[Layer]:
    """Return the layers of a rank as they are held in memory.

    With parameter servers only workers train, each on its own. In inference the layers hold the keys and values of
    whole answers, and the working memory of prefill or decode, whichever is larger.

    Raises:
        InputError: the plan is impossible; names the number and the nearest that works.
    """
    if plan.serve:
        check_serving(plan)
        # The first round has the most new tokens, the last one the longest context.
        both = [
            inference_layers(model, plan, tokens=new, context=context, batch=plan.microbatch)
            for new, context in dict.fromkeys((rounds(plan.serve)[0], rounds(plan.serve)[-1]))
        ]
        # Layers of one shape stay one object, as `worst` and the pieces tell them apart by id.
        made: dict[tuple[int, ...], Layer] = {}
        return [
            made.setdefault(
                tuple(map(id, pair)),
                replace(
                    pair[-1],
                    working=max(each.working for each in pair),
                    boundary=max(each.boundary for each in pair),
                ),
            )
            for pair in zip(*both, strict=True)
        ]
    if plan.data.sharding == "parameter-server":
        workers_of(plan)
        # One worker is a plan of one rank with one microbatch: weights are whole everywhere.
        plan = plan.model_copy(update={"ranks": 1, "batch": plan.microbatch})
    return layers_of(model, plan)


def _serving(model: Model, plan: Plan, memory: bool) -> Trace:
    """Return the trace of one batch of prompts and answers."""
    assert plan.serve is not None
    check_serving(plan)
    grid, count = rank_grid(plan), microbatches(plan)

    # Decode steps of one context length have equal layers on all stages; every stage asks for all of them.
    @cache
    def stages_of(new: int, context: int) -> list[list[tuple[int, Layer]]]:
        virtual = partition(
            inference_layers(model, plan, tokens=new, context=context, batch=plan.microbatch), plan
        )
        return _numbered(virtual)

    first, *_ = all_rounds = rounds(plan.serve)
    kernels = sum(len(layer.forward) for layers in stages_of(*first) for _, layer in layers)
    check_count(
        len(all_rounds) * count * kernels,
        MOST_NODES,
        f"batch {plan.batch}: {count} microbatches and outputs {plan.serve.outputs}: nodes",
        "a larger microbatch or fewer outputs",
    )
    graphs = [serving_graph(plan, grid, stage, count, stages_of) for stage in range(plan.parallel.pp)]
    about = {
        "batch": plan.batch,
        "microbatches": count,
        "prompt": plan.serve.prompt,
        "phase": plan.serve.phase,
        "tokens": len(all_rounds),
    }
    held = {"memory": memory_of(model, plan)} if memory else {}
    precision = {"compute": plan.numbers.compute, **vars(stores(plan))}
    said = {"serving": about, **held, "precision": precision}
    return Trace(tuple(graphs), grid.coordinate("pp").astype(np.int32), grid, said)


def footprint_of(model: Model, plan: Plan) -> Footprint:
    """Return what the fullest rank holds over a step."""
    # A capacity that nothing exceeds: the footprint alone, without a search for changes.
    return advise(plan, 2**62, partial(replica_layers, model)).footprint


def memory_of(model: Model, plan: Plan) -> dict[str, Any]:
    """Return the memory needs of the fullest rank; simulations compare them with the memory of an NPU."""
    held = footprint_of(model, plan)
    sizes = {"allocated_bytes": held.peak, "reserved_bytes": held.reserved, "needed_bytes": held.needed}
    return {"model": model.name, **sizes, "pipeline_rank": held.stage, "at": held.where}


def _numbered(virtual: list[list[Layer]]) -> list[list[tuple[int, Layer]]]:
    """Return the layers of each virtual stage with their numbers in the model."""
    first = [0, *accumulate(map(len, virtual))]
    return [list(enumerate(each, start)) for each, start in zip(virtual, first, strict=False)]


def _tied(model: Model, plan: Plan) -> int:
    """Return how many parameters embedding and head of a rank share."""
    # A frozen table has no gradient to sum.
    if not isinstance(model, Decoder) or not model.tied or plan.lora:
        return 0
    return share_of(model.vocabulary, plan.parallel.tp) * model.hidden


def _check(plan: Plan, layers: list[Layer], count: int, places: int) -> None:
    steps = sum(len(layer.forward) + len(layer.backward) + len(layer.weight) for layer in layers)
    # The CPU issues each.
    steps *= 2 if plan.host.issue else 1
    # Each stage has its share of the layers and sees every microbatch, so the stages together run each
    # layer once per microbatch.
    nodes = count * steps * places
    if nodes * plan.iterations > MOST_NODES:
        fits = MOST_NODES // nodes
        best = f"{fits} iterations" if fits else f"{MOST_NODES // (steps * places)} microbatches"
        raise InputError(
            f"batch {plan.batch}: {count} microbatches and iterations {plan.iterations} make about "
            f"{nodes * plan.iterations} nodes, expected at most {MOST_NODES} (nearest: {best})"
        )
    require(
        nodes * plan.iterations * SIMULATED,
        f"batch {plan.batch}: {count} microbatches and iterations {plan.iterations} make about "
        f"{nodes * plan.iterations:,} nodes, whose simulation",
        "a smaller batch or fewer iterations",
    )
    if plan.pipeline.schedule == "pipedream" and plan.data.sharding != "ddp":
        raise InputError(
            f"sharding {plan.data.sharding}: schedule pipedream updates after every microbatch, expected ddp"
        )


def over_capacity(model: Model, plan: Plan, capacity: int) -> str:
    """Return a message about the ranks that need more than `capacity` bytes, how much and when; empty if all fit.

    Args:
        model: The model.
        plan: How it is run.
        capacity: Bytes of an NPU; 0: not known.
    """
    if not capacity:
        return ""
    found = advise(plan, 2**62, partial(replica_layers, model)).footprint
    if found.needed <= capacity:
        return ""
    return (
        f"{model.name} needs {format_bytes(found.needed)} on ranks of pipeline stage {found.stage} at the peak, in the "
        f"{found.where}: {format_bytes(found.needed - capacity)} more than npu.memory.capacity, "
        f"{format_bytes(capacity)} (`armillary generate memory` proposes changes)"
    )
