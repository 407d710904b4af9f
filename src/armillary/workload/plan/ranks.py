"""The rank grid of a plan, and checks that its sizes are possible."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from armillary.base.errors import InputError, nearest
from armillary.trace.grid import RankGrid
from armillary.workload.layers.shard import divisors, near
from armillary.workload.plan.schema import Parallel, Plan

MOST = 2**24
"""Most ranks: arrays with a few numbers per rank still fit into memory."""
AXES = ("tp", "cp", "ep", "dp", "pp")


def replicas(plan: Plan) -> int:
    """Return dp, the number of replicas.

    Raises:
        InputError: the ranks cannot be divided in this way.
    """
    own = plan.parallel
    if plan.ranks > MOST:
        raise InputError(f"ranks {plan.ranks}: expected at most {MOST}")
    model = own.tp * own.cp * own.pp
    # Experts do not enter: ep and etp divide the same ranks once more.
    if own.dp is None:
        if plan.ranks % model:
            best = near(plan.ranks, [model * max(1, plan.ranks // model), model * (plan.ranks // model + 1)])
            raise InputError(
                f"ranks {plan.ranks}: expected a multiple of tp {own.tp} x cp {own.cp} x pp {own.pp} = {model} "
                f"(nearest: {best})"
            )
        return plan.ranks // model
    if own.dp * model != plan.ranks:
        raise InputError(
            f"tp {own.tp} x cp {own.cp} x pp {own.pp} x dp {own.dp} = {own.dp * model}, expected ranks {plan.ranks} "
            f"(nearest dp: {max(1, plan.ranks // model)})"
        )
    return own.dp


def microbatches(plan: Plan) -> int:
    """Return the number of microbatches of a replica in a step.

    Raises:
        InputError: the batch cannot be divided in this way.
    """
    unit = replicas(plan) * plan.microbatch
    if plan.batch % unit:
        best = near(plan.batch, [unit * max(1, plan.batch // unit), unit * (plan.batch // unit + 1)])
        raise InputError(
            f"batch {plan.batch}: expected a multiple of dp {unit // plan.microbatch} x microbatch {plan.microbatch} "
            f"(nearest: {best})"
        )
    return plan.batch // unit


def rank_grid(plan: Plan) -> RankGrid:
    """Return the grid of a plan, with these axes.

    ``tp cp dp pp``; ``etp ep edp`` divide the same ranks of a stage for experts; ``fsdp`` and ``replicate`` divide
    cp and dp for hsdp (without it all of it is fsdp). With nodes to which tokens go once, ``ep.inside`` and
    ``ep.across`` divide ep. The subset ``pp.ends`` joins the first and the last stage.

    Raises:
        InputError: the order is no order of the axes, or two ways to divide the ranks do not fit together.
    """
    own = plan.parallel
    dp = replicas(plan)
    etp = own.tp if own.etp is None else own.etp
    stage = own.tp * own.cp * dp
    if stage % (etp * own.ep):
        name, value, other = ("etp", etp, own.ep) if stage % etp else ("ep", own.ep, etp)
        fits = divisors(stage // other if stage % other == 0 else stage)
        raise InputError(
            f"{name} {value}: expected etp {etp} x ep {own.ep} to divide tp {own.tp} x cp {own.cp} x dp {dp} = {stage} "
            f"(nearest {name}: {near(value, fits)})"
        )
    order = _order(own)
    shard = own.cp * dp if plan.data.shard is None else plan.data.shard
    if (own.cp * dp) % shard:
        raise InputError(
            f"shard {shard}: expected a divisor of cp {own.cp} x dp {dp} = {own.cp * dp} "
            f"(nearest: {near(shard, divisors(own.cp * dp))})"
        )
    # Dense layers and experts divide the same stage = tp x cp x dp ranks in two ways; edp is what experts leave.
    dense = {"tp": own.tp, "cp": own.cp, "dp": dp, "pp": own.pp}
    expert = {"etp": etp, "ep": own.ep, "edp": stage // (etp * own.ep), "pp": own.pp}
    # Every way lists all ranks, neighbours first. In the order of the experts, tp's place is etp's and dp's
    # is edp's; cp has none, as it is part of edp.
    ways = [
        [(axis, dense[axis]) for axis in order if axis != "ep"],
        [({"tp": "etp", "dp": "edp"}.get(axis, axis), 0) for axis in order if axis != "cp"],
        _sharded(order, own, shard, dp),
    ]
    ways[1] = [(axis, expert[axis]) for axis, _ in ways[1]]
    domain = plan.experts.domain
    if domain and own.ep > domain and own.ep % domain == 0:
        # Neighbouring ranks of ep are in one node, so the inner axis comes first.
        parts = [("ep.inside", domain), ("ep.across", own.ep // domain)]
        ways.append([part for each in ways[1] for part in (parts if each[0] == "ep" else [each])])
    return _joined(ways, own)


def _order(own: Parallel) -> list[str]:
    order = own.order.split("-")
    for axis in order:
        if axis not in AXES:
            raise InputError(
                f"order '{own.order}': no axis '{axis}', expected {'-'.join(AXES)}{nearest(axis, AXES)}"
            )
    if sorted(order) != sorted(AXES):
        raise InputError(f"order '{own.order}': expected each of {', '.join(AXES)} once")
    return order


def _sharded(order: list[str], own: Parallel, shard: int, dp: int) -> list[tuple[str, int]]:
    """Return the axes with cp and dp, if neighbours, replaced by one axis of shards and one of replicas."""
    dense = [axis for axis in order if axis != "ep"]
    first, last = sorted((dense.index("cp"), dense.index("dp")))
    if last - first > 1 and min(own.cp, dp) > 1:
        return []  # no single axis: what shards goes over both
    sizes = {"tp": own.tp, "pp": own.pp, "fsdp": shard, "replicate": own.cp * dp // shard}
    # Of two axes that are no neighbours one has a single rank: the place is that of the other.
    place = "dp" if own.cp == 1 else "cp"
    names: list[str] = []
    for axis in dense:
        names += [axis] if axis in ("tp", "pp") else ["fsdp", "replicate"] if axis == place else []
    return [(name, sizes[name]) for name in names]


def _joined(ways: list[list[tuple[str, int]]], own: Parallel) -> RankGrid:
    """Return the coarsest grid whose mesh dimensions compose the axes of all these divisions of the ranks."""
    # The strides at which any of the ways begins a new axis. Mesh dimensions lie between neighbouring
    # marks, which works if each mark divides the next.
    ends = {1}
    for way in ways:
        ends |= {prod(size for _, size in way[: i + 1]) for i in range(len(way))}
    marks = sorted(ends)
    for a, b in pairwise(marks):
        if b % a:
            raise InputError(
                f"tp {own.tp}, cp {own.cp}, ep {own.ep} and etp {own.etp or own.tp} in order {own.order}: groups of "
                f"{a} and of {b} neighbouring ranks cut each other, expected one to be a multiple of the other"
            )
    sizes = tuple(b // a for a, b in pairwise(marks)) or (1,)
    starts = {mark: mesh_dim for mesh_dim, mark in enumerate(marks)}
    axes: dict[str, tuple[int, ...]] = {}
    for way in ways:
        at = 1
        for axis, size in way:
            # An axis covers the mesh dimensions from its stride to the next.
            covered = tuple(range(starts[at], starts[at * size]))
            if axes.setdefault(axis, covered) != covered:
                # Experts would be in other stages than the layers around them.
                raise InputError(
                    f"order '{own.order}': {axis} {size} has neighbours {at} ranks apart among experts, and "
                    f"{prod(sizes[: axes[axis][0]])} among other layers, expected an order that ends in pp, as "
                    f"{'-'.join(AXES)}, or etp x ep as large as tp x cp"
                )
            at *= size
    if "fsdp" not in axes:
        axes["fsdp"], axes["replicate"] = tuple(sorted(axes["cp"] + axes["dp"])), ()
    return RankGrid(sizes, axes, {"pp.ends": ("pp", (0, own.pp - 1))} if own.pp > 1 else {})
