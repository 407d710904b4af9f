"""The layers of a recommendation model (arXiv 1906.00091, section 3): tables are divided, the rest is replicated.

A rank sums rows of its tables for the samples of all replicas, and an all-to-all gives every replica the sums of its
own samples, while the bottom MLP runs. Gradients return the same way, and the rows that were looked up are updated
after every microbatch. Indices are assumed to be present on the rank that needs them.
"""

from __future__ import annotations

from itertools import pairwise

from armillary.base.errors import InputError
from armillary.trace import CollectiveType
from armillary.trace.gemm import Gemm
from armillary.workload.layers.layer import Layer, Step
from armillary.workload.layers.nets.kernels import REPLICAS, Kernel, Kernels, check_plan, gemm, recomputed
from armillary.workload.layers.nets.tables import Share, shares
from armillary.workload.models.schema import Dlrm
from armillary.workload.plan.numbers import MOMENTS
from armillary.workload.plan.ranks import replicas
from armillary.workload.plan.schema import Plan

INDEX = 8
"""Bytes of an index into a table."""


def table_shares(model: Dlrm, plan: Plan) -> tuple[Share, ...]:
    """Return the tables of every coordinate along dp; those with equal shares have equal layers."""
    return shares(model, replicas(plan))


def dlrm_layers(model: Dlrm, plan: Plan, rank: int = 0) -> list[Layer]:
    """Return the layers for one microbatch: "embedding" with the bottom MLP and the interaction, then the top MLP.

    If ranks make sums of unequal size, the all-to-all has splits. Parameters of tables are in no group ("").
    Full recomputation does not repeat the lookup and the all-to-all, but keeps the received sums.

    Args:
        model: The model.
        plan: The plan.
        rank: Coordinate along dp.

    Raises:
        InputError: the plan does not go with such a model, or no such coordinate.
    """
    check_plan(model, plan)
    everyone = table_shares(model, plan)
    if not 0 <= rank < len(everyone):
        raise InputError(f"rank {rank}: expected a coordinate along dp, 0 to {len(everyone) - 1}")
    layers = [_embedding(model, plan, everyone, rank)]
    made: dict[tuple[int, int, bool], Layer] = {}
    for number, (inputs, outputs) in enumerate(pairwise([model.top_inputs, *model.top])):
        last = number == len(model.top) - 1
        key = (inputs, outputs, last)
        if key not in made:
            name = "head" if last else f"top {inputs}x{outputs}"
            # Equal layers of the top MLP are one object; the last one ends in the loss.
            size = plan.microbatch * outputs
            end = Kernel("loss", 3 * size, 2 * size, saved=size, held=2 * size) if last else _relu("", size)
            kernels = [_dense("product", model, plan, inputs, outputs), end]
            made[key] = Kernels(plan).layer(name, kernels, inputs=plan.microbatch * inputs, outputs=size)
        layers.append(made[key])
    return layers


def _dense(name: str, model: Dlrm, plan: Plan, inputs: int, outputs: int) -> Kernel:
    return gemm(name, plan.microbatch, inputs, outputs, bias=model.bias * outputs)


def _relu(prefix: str, size: int) -> Kernel:
    return Kernel(f"{prefix}relu", 2 * size, 3 * size, held=2 * size)


def _interaction(model: Dlrm, batch: int) -> Kernel:
    """Return the kernel that joins the sums and the output of the bottom MLP, by copies and dot products."""
    result = batch * model.top_inputs
    if model.interaction == "concatenation":
        return Kernel("interaction", 2 * result, 2 * result, held=2 * result)
    # A batched GEMM computes all vectors x vectors products, of which one triangle goes on.
    vectors, size = model.vectors, model.bottom[-1]
    joined, dots = batch * vectors * size, batch * vectors**2
    moved = 3 * joined + 2 * dots + result
    return Kernel(
        "interaction", moved, moved + joined, saved=joined, held=joined + result,
        macs=batch * vectors**2 * size, both=True, shape=Gemm(vectors, vectors, size, batch),
    )  # fmt: skip


def _embedding(model: Dlrm, plan: Plan, everyone: tuple[Share, ...], rank: int) -> Layer:
    made, batch, own = Kernels(plan), plan.microbatch, everyone[rank]
    # A rank looks up its tables for the samples of every replica.
    samples, element = batch * len(everyone), made.element
    bottom: list[Kernel] = []
    for number, (inputs, outputs) in enumerate(pairwise([model.dense_features, *model.bottom])):
        name = f"bottom {number + 1}"
        bottom += [_dense(name, model, plan, inputs, outputs), _relu(f"{name} ", batch * outputs)]
    join = _interaction(model, batch)
    sums = samples * own.columns * element
    indices = samples * own.lookups * INDEX
    lookup = Step("lookup", bytes=samples * own.elements * element + indices + sums, after=("",))
    # Rows looked up are read and written, and so are the states that the optimizer keeps of them.
    touched = samples * own.elements * 2 * (element + 4 * MOMENTS[plan.optimizer])
    there, back = _exchanges(everyone, rank, batch * element)
    first, *rest = bottom
    # The bottom MLP starts at the input, beside lookup and exchange; the interaction waits for both.
    mlp = [made.forward(first, ("",)), *map(made.forward, rest)]
    forward = [lookup, *there, *mlp, made.forward(join, ((there or (lookup,))[0].name, mlp[-1].name))]
    again = [kernel for kernel in (*bottom, join) if recomputed(plan, kernel)]
    gradient = made.backward(join)
    top, *lower = reversed(bottom)
    # The exchange of gradients overlaps the backward pass of the bottom MLP.
    backward = [*map(made.forward, again), gradient, *back, made.backward(top, (gradient.name,))]
    backward += map(made.backward, lower)
    update = Step("table update", bytes=sums + indices + touched, after=((back or (gradient,))[0].name,))
    kernels = [*bottom, join]
    saved, received = made.saved(kernels), element * batch * sum(share.columns for share in everyone)
    # With recomputation only the dense features and the received sums are kept.
    kept = element * batch * model.dense_features + received if again else saved
    return Layer(
        "embedding",
        tuple(forward),
        tuple(backward),
        (update, *(made.weight(kernel) for kernel in reversed(bottom) if kernel.weights)),
        {REPLICAS: sum(kernel.parameters for kernel in bottom), "": own.parameters},
        saved=kept + indices,
        working=made.working(kernels) + max(sums, received) + (saved if again else 0),
        boundary=element * batch * model.top_inputs,
    )


def _exchanges(
    everyone: tuple[Share, ...], rank: int, unit: int
) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Return the all-to-all of sums and that of their gradients; `unit` bytes per column."""
    columns = [share.columns for share in everyone]
    # One replica has all tables, and nothing to exchange.
    if len(columns) == 1:
        return (), ()
    even = len(set(columns)) == 1
    # Forward, this rank sends its columns to everyone; backward, everyone's columns go to their owners.
    out = tuple(unit * columns[rank] for _ in columns)
    home = tuple(unit * column for column in columns)
    there, back = (
        Step(
            name, collective=CollectiveType.ALL_TO_ALL, axes=REPLICAS, size=sum(parts),
            splits=() if even else parts, after=(after,),
        )
        for name, parts, after in (
            ("exchange", out, "lookup"), ("exchange backward", home, "interaction backward"),
        )
    )  # fmt: skip
    return (there,), (back,)
