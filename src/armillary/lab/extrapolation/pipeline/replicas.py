"""Reads from the collectives of replicas how weights are sharded, and how many parameters each layer has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from armillary.lab.extrapolation.expert_axis import experts_of, is_gradient
from armillary.lab.extrapolation.pipeline.lift import Work
from armillary.lab.extrapolation.pipeline.segments import Stage
from armillary.trace import CollectiveType
from armillary.workload.emit.replicas import PARTIAL

GATHER, SCATTER, REDUCE = CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_REDUCE

USUAL = 25 * 2**20
"""Bytes of a bucket of gradients in PyTorch's DistributedDataParallel."""
SECOND = {"dp": "edp"}
"""Axis set -> the one of experts, which may have the same ranks but whose gradients are reduced separately."""


@dataclass(frozen=True)
class Replicas:
    """How replicas share weights.

    Attributes:
        sharding: As `Plan.data` says it.
        every: Whether gradients are reduced in every microbatch.
        gradient: Bytes per element of a gradient.
        weight: Bytes per element of a gathered weight.
        bucket: Least bytes of gradients that are reduced together.
        overlap: Whether gradients are reduced during the backward pass.
        parameters: Number of parameters of each kind of layer, by axis set.
        partial: Number of those whose gradients are summed over tp, of each kind of layer.
        tied: Number of parameters that both ends of the pipeline share.
        updates: Whether there is an optimizer.
    """

    sharding: str
    every: bool
    gradient: int
    weight: int
    bucket: int
    overlap: bool
    parameters: Mapping[Work, Mapping[str, int]]
    partial: Mapping[Work, int]
    tied: int
    updates: bool


@dataclass(frozen=True)
class _Sum:
    """Gradients of some layers that one collective reduces."""

    axis_set: str
    size: int
    layers: tuple[int, ...]
    late: bool


def replicas_of(stages: Sequence[Stage], works: Mapping[int, Work]) -> Replicas:
    """Return how the replicas of all stages share weights."""
    kinds: set[int] = set()
    forward_gathers = False
    tied = 0
    sums: list[_Sum] = []
    reducing = set()
    for stage in stages:
        nodes = stage.nodes
        own = nodes.reductions
        kinds |= set(nodes.collective[own].tolist())
        batch = nodes.graph.ints("micro_batch", -1)
        forward_gathers |= bool((own & (nodes.collective == GATHER) & (batch >= 0)).any())
        reducing |= set(batch[own & np.isin(nodes.collective, (SCATTER, REDUCE)) & (batch >= 0)].tolist())
        ends = nodes.graph.ints("comm_size")[nodes.ends()]
        tied = max(tied, int(ends.max(initial=0)))
        sums += _sums(stage)
    # Gathers inside of microbatches bring weights just in time (fsdp); scatters alone mean gathers after the
    # update (zero-1); neither is plain ddp.
    sharding = "fsdp" if forward_gathers else "zero-1" if SCATTER in kinds else "ddp"
    # Scatter within a shard group, then all-reduce between groups.
    if sharding == "fsdp" and REDUCE in kinds:
        sharding = "hsdp"
    every = len(reducing) > 1
    # zero-2 keeps only a share of gradients, so each microbatch must reduce its own.
    if sharding == "zero-1" and every:
        sharding = "zero-2"
    gradient, weight = _elements(stages, sharding)
    partial = [each for each in sums if each.axis_set == PARTIAL]
    sums = [each for each in sums if each.axis_set != PARTIAL]
    early = [each for each in sums if not each.late]
    parameters = _parameters(sums, works, gradient)
    # Experts with one replica are reduced by no one: their parameters are counted from their GEMMs.
    if not any(each.axis_set == "edp" for each in sums):
        for layer, count in _experts_alone(stages).items():
            parameters[works[layer]]["edp"] = count
    return Replicas(
        sharding,
        every,
        gradient,
        weight,
        _bucket(early, sums, works, parameters, gradient),
        bool(early) or not sums,
        parameters,
        _partial(partial, works, gradient),
        tied // gradient,
        any(stage.nodes.update.any() for stage in stages),
    )


def _bucket(
    early: Sequence[_Sum],
    sums: Sequence[_Sum],
    works: Mapping[int, Work],
    parameters: Mapping[Work, Mapping[str, int]],
    gradient: int,
) -> int:
    """Return the bucket size in bytes: more than each sum had before its last layer, at most the smallest sum.

    PyTorch's default is taken where it lies between the two bounds; else the smallest sum.
    """
    if not early:
        return max((each.size for each in sums), default=1) + 1
    # A bucket is reduced once it holds `bucket` bytes: that is above what each had before its last layer, and
    # at most the smallest.
    most = min(each.size for each in early)
    least = max(
        each.size - parameters[works[each.layers[-1]]].get(each.axis_set, 0) * gradient
        for each in early
        if each.layers
    )
    return USUAL if least < USUAL <= most else most


def _sums(stage: Stage) -> list[_Sum]:
    """Return the reductions of the last microbatch, each with the layers whose gradients it covers."""
    nodes = stage.nodes
    batch = nodes.graph.ints("micro_batch", -1)
    last = stage.microbatches - 1
    axis_sets, names = nodes.graph.strings("pg_name")
    size = nodes.graph.ints("comm_size")
    # In the last microbatch all is reduced once, whether gradients are reduced in every microbatch or not.
    latest = np.isin(batch, (last, -1))
    own = nodes.reductions & np.isin(nodes.collective, (SCATTER, REDUCE)) & latest
    # With hsdp the all-reduce after a scatter has the same gradients again.
    if (nodes.collective[own] == SCATTER).any():
        own &= nodes.collective == SCATTER
    partial = nodes.partial & latest
    backward = {
        segment.nodes[-1]: segment.layer
        for segment in stage.segments
        if segment.microbatch == last and segment.kind in ("B", "FB", "W")
    }
    # Where gradients of weights are passes of their own (zero-bubble), they end a layer's gradients.
    if any(segment.kind == "W" for segment in stage.segments):
        backward = {
            segment.nodes[-1]: segment.layer
            for segment in stage.segments
            if segment.microbatch == last and segment.kind == "W"
        }
    used = [names[code] for code in dict.fromkeys(axis_sets[own].tolist())]
    waiting: dict[str, list[int]] = {
        name: [] for axis_set in (*used, PARTIAL) for name in (axis_set, SECOND.get(axis_set, axis_set))
    }
    found = []
    for node in range(nodes.graph.n_nodes):
        if node in backward:
            for layers in waiting.values():
                layers.append(backward[node])
        if own[node] or partial[node]:
            axis_set = PARTIAL if partial[node] else names[axis_sets[node]]
            # The layers that waited are reduced already, so this sum is the experts'.
            if not waiting[axis_set]:
                axis_set = SECOND.get(axis_set, axis_set)
            found.append(_Sum(axis_set, int(size[node]), tuple(waiting[axis_set]), bool(batch[node] < 0)))
            waiting[axis_set] = []
    return found


def _elements(stages: Sequence[Stage], sharding: str) -> tuple[int, int]:
    """Return the bytes per element of gradients and of weights, by the ratio of scattered to gathered bytes."""
    if sharding == "ddp":
        return 4, 2
    scattered = gathered = 0.0
    for stage in stages:
        nodes = stage.nodes
        own = nodes.reductions
        size, batch = nodes.graph.ints("comm_size"), nodes.graph.ints("micro_batch", -1)
        codes, names = nodes.graph.strings("pg_name")
        members = np.array([*(nodes.grid.members(name).shape[1] for name in names), 1])[codes]
        late = np.isin(batch, (stage.microbatches - 1, -1))
        scattered = max(scattered, float(size[own & late & (nodes.collective == SCATTER)].max(initial=0)))
        gathered = max(gathered, float((size * members)[own & (nodes.collective == GATHER)].max(initial=0)))
    # Both cover the same parameters: a scatter is the whole input, a gather one share times its members.
    ratio = scattered / gathered if gathered else 2.0
    return min(((4, 2), (2, 2), (2, 4)), key=lambda pair: abs(pair[0] / pair[1] - ratio))


def _experts_alone(stages: Sequence[Stage]) -> dict[int, int]:
    """Return how many parameters the experts of each layer have that no replica reduces, by their GEMMs."""
    found: dict[int, int] = {}
    for stage in stages:
        nodes = stage.nodes
        if not nodes.over("ep").any():
            continue
        experts = experts_of(nodes)
        for segment in stage.segments:
            for node in segment.nodes if segment.microbatch == 0 else ():
                if experts.inside[node]:
                    sums = [each for each in nodes.gemms[node] if is_gradient(nodes, node, each, experts)]
                    found[segment.layer] = found.get(segment.layer, 0) + sum(
                        each.m * each.n * each.batch * each.calls for each in sums
                    )
    return found


def _partial(sums: Sequence[_Sum], works: Mapping[int, Work], gradient: int) -> dict[Work, int]:
    """Return the parameters of each kind of layer whose gradients are summed over tp.

    Where sums of several layers leave it open, the embedding has none, and the head, which has one norm, half as many
    as a layer, which has two.
    """
    kinds, layers = list(dict.fromkeys(works.values())), list(works.values())
    if not sums:
        return dict.fromkeys(kinds, 0)
    # A transformer layer has two norms, before attention and before the feed-forward part.
    norms = np.full(len(kinds), 2.0)
    for end, count in ((layers[0], 0.0), (layers[-1], 1.0)):
        if layers.count(end) == 1 and len(layers) > 2:
            norms[kinds.index(end)] = count
    # One row per sum, one column per kind of layer: how many layers of the kind the sum has.
    table = np.array(
        [[[works[at] for at in each.layers].count(kind) for kind in kinds] for each in sums], float
    )
    known = np.array([each.size / gradient for each in sums])
    usual = norms * known.sum() / max(float((table @ norms).sum()), 1.0)
    has = norms > 0
    counts = usual.copy()
    # The least-squares correction of smallest norm keeps the usual ratios where sums do not determine them.
    counts[has] += np.linalg.lstsq(table[:, has], known - table @ usual, rcond=None)[0]
    return dict(zip(kinds, np.maximum(np.rint(counts), 0).astype(int).tolist(), strict=True))


def _parameters(sums: Sequence[_Sum], works: Mapping[int, Work], gradient: int) -> dict[Work, dict[str, int]]:
    """Return the parameters of each kind of layer, by axis set: a least-squares fit to the sums over several layers."""
    kinds = list(dict.fromkeys(works.values()))
    found: dict[Work, dict[str, int]] = {kind: {} for kind in kinds}
    for axis_set in dict.fromkeys(each.axis_set for each in sums):
        rows = [each for each in sums if each.axis_set == axis_set]
        table = np.zeros((len(rows), len(kinds)))
        for at, each in enumerate(rows):
            for layer in each.layers:
                table[at, kinds.index(works[layer])] += 1
        counts = np.linalg.lstsq(table, np.array([each.size / gradient for each in rows]), rcond=None)[0]
        for kind, count in zip(kinds, np.rint(counts).astype(int).tolist(), strict=True):
            if count > 0:
                found[kind][axis_set] = count
    return found
