"""Laws of recorded graphs, whose operators name their tensors: dimensions change, and work follows from them."""

from __future__ import annotations

from fractions import Fraction
from math import prod

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.kernels import Mask, Nodes
from armillary.lab.extrapolation.recorded.calls import Call, Tensor, flat
from armillary.lab.extrapolation.recorded.costs import elements, resize
from armillary.lab.extrapolation.recorded.dimensions import Factors
from armillary.lab.extrapolation.recorded.layer_dims import ATTENTION
from armillary.lab.extrapolation.recorded.seeds import (
    calls_of_collectives,
    follow_shards,
    keep_whole,
    shard_tensors,
    summed_dims,
    token_dims,
)
from armillary.lab.extrapolation.recorded.tensors import Program, program_of
from armillary.lab.extrapolation.scaling import Scaling
from armillary.lab.extrapolation.shapes import Sizes, token_sizes
from armillary.trace import CollectiveType
from armillary.workload.layers.shard import divisors, near

GATHER, SCATTER, REDUCE = CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_REDUCE


def scale_recorded_tokens(nodes: Nodes, axis: str, factor: Fraction, sizes: Sizes | None = None) -> Scaling:
    """Return what changes in a rank with `factor` times as many samples (``batch``) or as long ones (``sequence``).

    Raises:
        InputError: where samples and tokens come in cannot be seen.
    """
    made, program, factors = Scaling(nodes), program_of(nodes.graph), Factors()
    sizes = sizes or token_sizes(nodes.graph)
    if sizes is None:
        raise InputError(
            f"scale {axis}: {nodes.graph.source} has no token ids that show the batch and the length; "
            "expected --sizes batch=N,sequence=N"
        )
    dims = token_dims(program, sizes, axis)
    if not dims:
        raise InputError(
            f"scale {axis}: {nodes.graph.source} has no tensor that comes in with a batch of {sizes[0]} and a length "
            f"of {sizes[1]}; expected --sizes batch=N,sequence=N with those of the trace"
        )
    # Without quantities all factors would be 1 and the trace would come out unscaled, without a word.
    if not (
        nodes.graph.ints("num_ops")[nodes.kernel].any() or nodes.graph.ints("tensor_size")[nodes.kernel].any()
    ):
        raise InputError(
            f"scale {axis}: {nodes.graph.source} names neither operations nor bytes (num_ops, tensor_size), so what "
            "more of them cost is not known; expected a trace that `armillary trace convert` has made"
        )
    for dim in dims:
        factors.scale([dim], factor)
    what = "samples" if axis == "batch" else "tokens"
    _resize(
        made,
        program,
        factors,
        f"tokens: operators on tensors that are computed from the {what} grow with them",
    )
    _communicate(
        made, nodes, program, factors, nodes.large | nodes.message, "tokens: communication grows with them"
    )
    return made


def scale_recorded_data(nodes: Nodes, mesh_dim: int, factor: Fraction) -> Scaling:
    """Return what changes in a rank when one mesh dimension of replicas grows by `factor`: shares of weights shrink."""
    made, program, factors = Scaling(nodes), program_of(nodes.graph), Factors()
    group = nodes.over_mesh_dim(mesh_dim) & nodes.large
    gathers, scatters = group & (nodes.collective == GATHER), group & (nodes.collective == SCATTER)
    for tensor in shard_tensors(nodes, program, gathers, scatters):
        factors.scale(tensor.dims, 1 / factor)
    # After the shares have shrunk: buffers that hold all of them keep their total, with more shares.
    keep_whole(program, factors, nodes.grid.sizes[mesh_dim], factor)
    buffers = follow_shards(program, factors)
    made.assume("data: all-reduces keep their size", group & (nodes.collective == REDUCE))
    made.assume("data: reduce-scatters keep their size, which is of the whole input", scatters)
    made.assume("data: all-gathers, whose size is of a rank's share, shrink", gathers, comm=1 / factor)
    rule = "data: operators on a rank's share of sharded weights, gradients and states shrink"
    _resize(made, program, factors, rule, buffers)
    made.note("data: each replica has the samples it had", nodes.kernel & (made.factors["tensor_size"] == 1))
    return made


def scale_recorded_tensor(nodes: Nodes, old: int, new: int) -> Scaling:
    """Return what changes in a rank when tp goes from `old` to `new`.

    What the GEMMs before a reduction sum over is a rank's share. It is the same dimension in the weights that made
    it, whether one or several, in their gradients and in the states of the optimizer.

    Raises:
        InputError: what is divided cannot be seen, or ranks would have copies of heads.
    """
    made, program, factors = Scaling(nodes), program_of(nodes.graph), Factors()
    share = Fraction(old, new)
    own = nodes.over("tp", only=True)
    if (own & np.isin(nodes.collective, (GATHER, SCATTER, CollectiveType.ALL_TO_ALL))).any():
        raise InputError(
            f"scale tp: {nodes.graph.source} is recorded and gathers or scatters along tp (sequence parallelism), "
            "whose parts are not followed; expected a second trace with another tp (--also TRACE --at tp=N)"
        )
    # Partial sums (norms with sequence parallelism) reduce whole tensors: what their GEMMs sum over is not
    # divided.
    reductions = own & (nodes.collective == REDUCE) & nodes.large & ~nodes.partial
    for dim in summed_dims(nodes, program, reductions):
        factors.scale([dim], share)
    _check_depth(program, factors, old, new)
    buffers = follow_shards(program, factors)
    rule = "tensor: operators on what ranks have a share of, from the GEMMs that are summed up over them"
    unseen = _resize(made, program, factors, rule, buffers)
    stays = (
        nodes.kernel & ~unseen & (made.factors["tensor_size"] == 1) & (nodes.graph.ints("tensor_size") > 0)
    )
    made.note("tensor: operators on what every rank has whole stay", stays)
    made.note("tensor: reductions keep their size, which is of the whole", own)
    _communicate(made, nodes, program, factors, (nodes.large & ~own) | nodes.message,
                 "tensor: gradients and weights of which ranks have a share are communicated as such")  # fmt: skip
    if factors.padded:
        made.note("tensor: dimensions that do not divide are padded", nodes.kernel)
    return made


def _resize(
    made: Scaling, program: Program, factors: Factors, rule: str, buffers: dict[int, Fraction] | None = None
) -> Mask:
    unseen = resize(made, program, factors, rule, buffers)
    made.followed = True
    made.unclassified |= unseen
    return unseen


def _check_depth(program: Program, factors: Factors, old: int, new: int) -> None:
    """Check that heads are divided, and not the dimensions inside of a head.

    Raises:
        InputError: ranks would have copies, or parts, of heads.
    """
    names = {f"aten::{name}" for name in ATTENTION}
    for call in program.calls.values():
        key = call.tensor("key", 1) if call.name in names else None
        if key is None or len(key.dims) != 4:
            continue
        heads = key.dims[1]
        # Exact, where `Factors.size` would round up: half a head must be refused, not padded.
        exact = prod(Fraction(leaf.size) * factors.of.get(leaf, 1) for leaf in heads.leaves())
        # One head for all ranks is not divided, and needs not be.
        if factors.changed(key.dims[3]) or Fraction(exact).denominator > 1 or _copies(call, factors):
            total = heads.size * old
            raise InputError(
                f"scale tp: got {new}, but attention has {total} heads of keys and values, or copies of them, of which "
                f"ranks would have copies; expected a divisor of {total} (nearest: {near(new, divisors(total))}), or a "
                "second trace with another tp (--also TRACE --at tp=N)"
            )


def _copies(call: Call, factors: Factors) -> bool:
    query, key = call.tensor("query", 0), call.tensor("key", 1)
    return (
        query is not None
        and key is not None
        and factors.changed(query.dims[1])
        and not factors.changed(key.dims[1])
    )


def _communicate(
    made: Scaling, nodes: Nodes, program: Program, factors: Factors, which: Mask, rule: str
) -> None:
    """Give collectives and messages the factor of the tensors that they send."""
    grown, factor = np.zeros(nodes.graph.n_nodes, np.bool_), np.ones(nodes.graph.n_nodes)
    buckets = _buckets(program)
    for node, call in calls_of_collectives(nodes, program, which).items():
        gathers = "gather" in call.name or "reduce_scatter" in call.name
        names = ("input_tensor", "input_tensors", "input") if gathers else ("tensors", "input", "tensor")
        sent = [tensor for name in names for tensor in flat(call.argument(name))]
        whole = [part for tensor in sent for part in (buckets.get(id(tensor)) or [tensor])]
        # In elements: the precision is the same before and after.
        before = sum(prod(each.shape) for each in whole)
        after = sum(elements(each, factors) for each in whole)
        if before and after != before:
            grown[node], factor[node] = True, after / before
    made.assume(rule, grown, comm=factor)


def _buckets(program: Program) -> dict[int, list[Tensor]]:
    """Return for flat buffers that are reduced the tensors that they are made of, where these fill them."""
    # DDP's buckets: one-dimensional, with no dimension that a rule could follow, so they are scaled by their
    # parts.
    flats = {
        tensor.memory: tensor
        for call in program.calls.values()
        if call.name.startswith("c10d::allreduce")
        for tensor in flat(call.argument("tensors", 0))
        if len(tensor.dims) == 1
    }
    parts: dict[int, dict[int, Tensor]] = {memory: {} for memory in flats}
    for call in program.calls.values():
        for argument in (*call.inputs, *call.outputs):
            for tensor in flat(argument):
                if tensor.memory in parts and tensor.shape != flats[tensor.memory].shape:
                    parts[tensor.memory].setdefault(tensor.storage[1], tensor)
    found = {}
    for memory, tensor in flats.items():
        own = list(parts[memory].values())
        # Only where the parts fill the bucket: otherwise something in it is unknown.
        if sum(prod(each.shape) for each in own) == tensor.dims[0].size:
            found[id(tensor)] = own
    return found
