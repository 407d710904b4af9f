"""Finds the dimensions of a recorded graph's tensors that an axis changes directly; others follow from them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import prod

import numpy as np

from armillary.base.errors import InputError
from armillary.convert.pytorch.arguments import size
from armillary.lab.extrapolation.kernels import Mask, Nodes
from armillary.lab.extrapolation.recorded.calls import Call, Tensor, flat
from armillary.lab.extrapolation.recorded.costs import elements
from armillary.lab.extrapolation.recorded.dimensions import Dim, Factors
from armillary.lab.extrapolation.recorded.tensors import BUFFERS, Program
from armillary.lab.extrapolation.shapes import Sizes
from armillary.trace import CollectiveType, NodeType

GATHER, SCATTER, REDUCE = CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_REDUCE
SUMS = {
    "aten::mm": ("self", 0, 1),
    "aten::bmm": ("self", 0, 2),
    "aten::addmm": ("mat1", 1, 1),
    "aten::baddbmm": ("batch1", 1, 2),
    "aten::linear": ("input", 0, -1),
    "aten::embedding": ("weight", 0, 0),
    "aten::convolution": ("input", 0, 1),
}
"""Operators that sum over a dimension of an argument, or look it up: its name, its place, the dimension."""
REDUCTIONS = ("aten::sum", "aten::amax", "aten::max", "aten::logsumexp", "aten::mean")
ISSUES = (
    (("c10d::_allgather_base_",), int(GATHER), "input_tensor"),
    (("c10d::allgather_", "c10d::allgather_coalesced_"), int(GATHER), "input_tensors"),
    (("c10d::_reduce_scatter_base_",), int(SCATTER), "input_tensor"),
    (("c10d::reduce_scatter_",), int(SCATTER), "input_tensors"),
    (("c10d::allreduce_", "c10d::allreduce_coalesced_"), int(REDUCE), "tensors"),
    (("c10d::alltoall_base_",), int(CollectiveType.ALL_TO_ALL), "input"),
    (("c10d::broadcast_",), int(CollectiveType.BROADCAST), "tensors"),
    (("c10d::send",), -int(NodeType.COMM_SEND_NODE), "tensors"),
    (("c10d::recv_",), -int(NodeType.COMM_RECV_NODE), "tensors"),
)
"""Calls that issue collectives and messages: names, kind (below 0 the type of a message), and what they send."""
NOISE = ("aten::randn", "aten::rand")
CREATES = ("aten::randint", "aten::empty", "aten::zeros", "aten::ones", "aten::full", "aten::arange", "aten::randn",
           "aten::rand", "aten::tril", "aten::triu")  # fmt: skip


def token_dims(program: Program, sizes: Sizes, axis: str) -> list[Dim]:
    """Return the dimensions that count samples or tokens where they come in: of token ids, places, masks, messages.

    What is computed from them follows; weights, their gradients and states of the optimizer are never asked.
    """
    batch, length = sizes
    found: list[Dim] = []
    for tensor, call in _incoming(program):
        shape = tensor.shape
        if tensor.integer and len(shape) == 2 and shape == (batch, length):
            found.append(tensor.dims[axis == "sequence"])
        elif call == "aten::arange" and shape == (length,) and axis == "sequence":
            found.append(tensor.dims[0])
        elif call and len(shape) >= 2 and shape[-2:] == (length, length) and axis == "sequence":
            found += tensor.dims[-2:]
        elif call == "c10d::recv_" and shape[:2] == (batch, length):
            found.append(tensor.dims[axis == "sequence"])
    # No token ids: a model of images or noise, whose samples come first.
    if axis == "batch" and not found:
        found = [t.dims[0] for t, call in _incoming(program) if _is_sample(t, call) and t.shape[0] == batch]
    return found


def _is_sample(tensor: Tensor, call: str) -> bool:
    """Say whether a tensor is noise, or came from outside, such as images and labels: nothing updates it."""
    rank = len(tensor.shape)
    return (rank > 1 and call in NOISE) or (not call and not tensor.writers and rank > (not tensor.integer))


def counting_dims(program: Program) -> list[Dim]:
    """Return dimensions that count samples and tokens, by what comes in: matrices of whole numbers, and activations."""
    found: list[Dim] = []
    for tensor, call in _incoming(program):
        if tensor.integer and len(tensor.shape) == 2:
            found += tensor.dims
        elif call == "c10d::recv_" and len(tensor.shape) > 2:
            found += tensor.dims[:2]
    return found


def _incoming(program: Program) -> Iterator[tuple[Tensor, str]]:
    """Yield tensors that no operator computed from others, and what made them."""
    for tensor in program.roots:
        yield tensor, ""
    for call in program.calls.values():
        if call.name in CREATES:
            for tensor in (each for argument in call.outputs for each in flat(argument)):
                yield tensor, call.name
        elif call.name == "c10d::recv_":
            for tensor in flat(call.argument("tensors", 0)):
                yield tensor, call.name


def calls_of_collectives(nodes: Nodes, program: Program, which: Mask) -> dict[int, Call]:
    """Return by node the call that issued a collective or message: the first unmatched one of its kind and size.

    They run on threads of their own, in the order in which they were issued.
    """
    waiting: dict[tuple[int, int], list[Call]] = {}
    for call in (program.calls[node] for node in sorted(program.calls)):
        for names, kind, argument in ISSUES:
            if call.name in names:
                # Kind and bytes identify the call; several of the same are matched in the order of issue.
                sent = size(call.given.values[call.at(argument, 0)])
                waiting.setdefault((kind, sent), []).append(call)
    kinds = nodes.collective.tolist()
    sizes = nodes.graph.ints("comm_size").tolist()
    found: dict[int, Call] = {}
    for node in np.flatnonzero((nodes.collective >= 0) | nodes.message).tolist():
        kind = kinds[node] if kinds[node] >= 0 else -int(nodes.graph.types[node])
        own = waiting.get((kind, sizes[node]), [])
        if own:
            found[node] = own.pop(0)
    return {node: call for node, call in found.items() if which[node]}


def summed_dims(nodes: Nodes, program: Program, reductions: Mask) -> list[Dim]:
    """Return the dimensions of which each rank sums a share: those that the GEMMs before a reduction sum over.

    Raises:
        InputError: what is reduced comes from no GEMM.
    """
    found: list[Dim] = []
    calls = calls_of_collectives(nodes, program, reductions)
    for node in np.flatnonzero(reductions).tolist():
        call = calls.get(node)
        tensors = [] if call is None else [each for argument in call.inputs for each in flat(argument)]
        own = [dim for tensor in tensors for dim in _summed(tensor, nodes.graph.n_nodes)]
        if not own:
            raise InputError(
                f"scale tp: {nodes.graph.node(node)} reduces what no GEMM, look-up or sum is seen to make, so what "
                "ranks have a share of is not known; expected a second trace with another tp (--also TRACE --at tp=N)"
            )
        found += own
    return found


def _summed(tensor: Tensor, before: int) -> Iterator[Dim]:
    """Yield what the GEMMs that a tensor comes from sum over: the nearest ones, through copies and sums."""
    # Backwards through the operators that wrote the tensor before it was read: each with its own limit.
    seen, todo = {id(tensor)}, [(tensor, before)]
    while todo:
        each, limit = todo.pop()
        for call in each.writers:
            # Another collective ends the search: what lies behind it is summed up already.
            if call.node >= limit or call.name.startswith(("c10d::", "_c10d_functional::")):
                continue
            if call.name in SUMS:
                name, at, dim = SUMS[call.name]
                given = call.tensor(name, at)
                if given is not None and len(given.dims) > dim:
                    yield given.dims[dim]
                continue
            if call.name in REDUCTIONS:
                yield from _reduced(call)
                continue
            for other in (other for argument in call.inputs for other in flat(argument)):
                if id(other) not in seen and not other.integer:
                    seen.add(id(other))
                    todo.append((other, call.node))


def _reduced(call: Call) -> Iterator[Dim]:
    source, dims = call.tensor("self", 0), call.value("dim", 1)
    for each in (dims if isinstance(dims, list) else [dims]) if source is not None else ():
        if source is not None and type(each) is int and source.dims:
            yield source.dims[each]


def shard_tensors(nodes: Nodes, program: Program, gathers: Mask, scatters: Mask) -> list[Tensor]:
    """Return the tensors that are a rank's share of weights or gradients: inputs of gathers, results of scatters."""
    found: list[Tensor] = []
    for node, call in calls_of_collectives(nodes, program, gathers | scatters).items():
        names = ("input_tensor", "input") if gathers[node] else ("output_tensor",)
        own = [tensor for name in names if (tensor := call.tensor(name)) is not None]
        if not own and scatters[node]:
            own = [tensor for tensor in [call.result()] if tensor is not None]
        found += own
    for call in program.calls.values():
        if call.name == "fsdp::all_gather_copy_in":
            found += flat(call.argument("all_gather_inputs", 0))
    return found


def keep_whole(program: Program, factors: Factors, members: int, factor: Fraction) -> None:
    """Keep the size of buffers that hold all shares: as the shares shrink, their number grows."""
    for call in program.calls.values():
        if call.name in ("aten::split", "aten::chunk"):
            whole, parts = call.tensor("self", 0), list(flat(call.outputs[:1]))
            if whole is None or len(whole.dims) != 1 or len(parts) != members or not parts[0].dims:
                continue
            count = whole.dims[0].leaves()[0]
            if factors.changed(parts[0].dims[0]) and count.whole and count not in factors.of:
                factors.of[count] = factor


def follow_shards(program: Program, factors: Factors) -> dict[int, Fraction]:
    """Scale shares of weights as the weights that are gathered from them, and buffers as their parts.

    Returns:
        Factors of the work of the operators that fill, exchange and empty buffers, by node.
    """
    weights: dict[int, Tensor] = {}
    for shard, weight in program.gathers:
        # A weight is gathered for forward and for backward: its shard is scaled once.
        if weights.setdefault(id(shard), weight) is weight and (ratio := _grown([weight], factors)) != 1:
            factors.scale(shard.dims, ratio)
    found: dict[int, Fraction] = {}
    into: dict[int, tuple[Fraction, set[int]]] = {}
    for node in sorted(program.calls):
        call = program.calls[node]
        if call.name == "fsdp::all_gather_copy_in":
            shards = list(flat(call.argument("all_gather_inputs", 0)))
            found[node] = _grown(shards, factors)
            gathered = [weights[id(each)] for each in shards if id(each) in weights]
            ratio = _grown(gathered, factors) if gathered else found[node]
            _fills(into, [*flat(call.argument("all_gather_output", 1)), *flat(call.outputs)], ratio)
        elif call.name == "fsdp::chunk_cat":
            found[node] = _grown(list(flat(call.argument("tensors", 0))), factors)
            _fills(into, list(flat(call.argument("out", 3))), found[node])
        elif BUFFERS.match(call.name):
            names = ("all_gather_output", "output_tensor", "input_tensor")
            own = [tensor for name in names for tensor in flat(call.argument(name))]
            found[node] = next((into[each.memory][0] for each in own if each.memory in into), Fraction(1))
            _fills(into, own, found[node])
    for call in program.calls.values():
        for tensor in (each for argument in (*call.inputs, *call.outputs) for each in flat(argument)):
            ratio, sizes = into.get(tensor.memory, (Fraction(1), set()))
            leaves = [leaf for dim in tensor.dims for leaf in dim.leaves()]
            # Views of a buffer with its size, or that of a share, are the buffer itself.
            if ratio != 1 and prod(tensor.shape) in sizes and not any(leaf in factors.of for leaf in leaves):
                factors.of[leaves[-1]] = ratio
    return found


def _fills(into: dict[int, tuple[Fraction, set[int]]], buffers: list[Tensor], ratio: Fraction) -> None:
    """Record the factor of each buffer by its memory, and the sizes of the buffers."""
    sizes = {prod(each.shape) for each in buffers}
    for each in buffers:
        into.setdefault(each.memory, (ratio, set()))[1].update(sizes)


def _grown(tensors: list[Tensor], factors: Factors) -> Fraction:
    old = sum(prod(each.shape) for each in tensors)
    return Fraction(sum(elements(each, factors) for each in tensors), old) if old else Fraction(1)
