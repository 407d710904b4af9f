"""COMET's other model: a DLRM whose tables decide how many nodes it takes, and what more memory is worth then.

A DLRM is not divided as MPx_DPy. Its tables must lie somewhere, so the fewest nodes that hold them train it; the
cluster trains as many DLRMs side by side as that leaves room for. Fewer nodes exchange less between pods, so that
memory gains: what counts is the time of a step times its nodes, the node time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cache

from armillary.base.errors import InputError
from armillary.engine import simulate
from armillary.evidence.reproduce.case_workloads import Time, measure
from armillary.evidence.reproduce.comet_assumptions import NODES, Assumptions, DlrmAssumptions
from armillary.evidence.reproduce.comet_clusters import BASE, CLUSTERS, part
from armillary.evidence.reproduce.comet_memory import (
    Expansion,
    beyond,
    fits,
    hybrid_bandwidth,
    with_bandwidth,
)
from armillary.evidence.reproduce.comet_sweep import CAPACITIES, RATES, Best, Choice, fastest
from armillary.evidence.reproduce.comet_workload import Share
from armillary.platform.kernels import Override
from armillary.platform.model import Platform
from armillary.workload.generate import generate, replica_layers
from armillary.workload.memory.footprint import worst
from armillary.workload.models import Model, load_model
from armillary.workload.models.schema import Dlrm
from armillary.workload.pipeline.partition import partition
from armillary.workload.plan.schema import Data, Numbers, Plan

SIZES = tuple(2**e for e in range(3, 11))
"""Nodes of one DLRM: a pod to the whole cluster."""
# The sweep must end at the whole cluster.
assert SIZES[-1] == NODES


@dataclass(frozen=True)
class Size:
    """A DLRM on so many nodes of the base cluster, as if it fitted: bytes that a node needs, parts of the step."""

    nodes: int
    needed: int
    fits: bool
    time: Time

    @property
    def node_time(self) -> int:
        """Time of a step times its nodes, ns."""
        return self.nodes * self.time.total


@dataclass(frozen=True)
class FoundDlrm:
    """All that was simulated of the DLRM; `Choice` and `Best` have nodes for MP, and node time for time.

    Attributes:
        sizes: Every number of nodes of the base cluster, with memory without end.
        hybrid: (nodes, bandwidth of the expansion) -> node time, with as much capacity as it takes.
        clusters: Name -> the best numbers of nodes, without and with the expansion.
        local: Bytes of the memory of a node of the base cluster.
    """

    sizes: tuple[Size, ...]
    hybrid: dict[tuple[int, float], int]
    clusters: dict[str, Best]
    local: int

    def fitting(self) -> Size | None:
        """Return the best number of nodes that hold it by themselves."""
        # By node time, not by time: fewer nodes leave room for more DLRMs.
        fit = (size for size in self.sizes if size.fits)
        return min(fit, key=lambda size: size.node_time, default=None)

    def best(self, capacity: float, rate: float) -> Choice | None:
        """Return the best number of nodes with an expansion."""
        own = {size.nodes: size.node_time for size in self.sizes if size.fits}
        needed = {size.nodes: size.needed for size in self.sizes}
        more = {
            nodes: time
            for (nodes, other), time in self.hybrid.items()
            # Own memory plus expansion must hold it.
            if other == rate and needed[nodes] <= self.local + capacity
        }
        # A size that fits by itself stays a choice, with its own time.
        return fastest(own | more)

    def gain(self) -> tuple[float, Choice | None]:
        """Return by how much an expansion of those swept makes node time shorter at most, and with how many nodes."""
        own = self.fitting()
        bests = [self.best(capacity, rate) for capacity in CAPACITIES for rate in RATES]
        top = min((best for best in bests if best), key=lambda best: best.time, default=None)
        return (own.node_time / top.time if own and top else 0.0), top


def explore_dlrm(chosen: Assumptions) -> FoundDlrm:
    """Simulate all numbers of nodes on the base cluster, with expansions of all bandwidths, and on the other clusters.

    Raises:
        InputError: the batch cannot be divided so.
    """
    usual = Expansion(chosen.expansion_capacity, chosen.expansion)
    hybrid = {
        (nodes, rate): time
        # No limit of capacity: `best` applies each one afterwards, so that times are simulated once.
        for rate in RATES
        for nodes, time in _times(SIZES, BASE, Expansion(float("inf"), rate), chosen).items()
    }
    return FoundDlrm(
        tuple(_size(nodes, chosen) for nodes in SIZES),
        hybrid,
        {name: _best(name, usual, chosen) for name in CLUSTERS},
        chosen.capacity,
    )


def dlrm_share(nodes: int, chosen: DlrmAssumptions) -> Share:
    """Return what a node does in a step and holds when so many train the DLRM.

    Raises:
        InputError: the batch cannot be divided so.
    """
    return _share(
        # Only fields that the share depends on, as a key of the cache.
        nodes,
        DlrmAssumptions(**{f.name: getattr(chosen, f.name) for f in fields(DlrmAssumptions)}),
    )


def dlrm_expanded(
    nodes: int, platform: Platform, expansion: Expansion, chosen: Assumptions
) -> tuple[Share, Platform] | None:
    """Return what a node does and the machine on which it does it; None if that cannot be held.

    With placement "spread" every access touches both memories, as of the Transformer; with "weights" only rows of
    tables lie outside, so that lookups and updates alone become slower, by the share of the rows that does.
    """
    own = dlrm_share(nodes, chosen)
    if not fits(own.needed, platform, expansion):
        return None
    local = platform.npu.memory.bandwidth
    # Bytes that do not fit, and so lie in the expansion.
    missing = own.needed * beyond(own.needed, platform.npu.memory.capacity)
    if not missing:
        return own, platform
    if chosen.placement == "spread":
        rate = hybrid_bandwidth(local, expansion.bandwidth, missing / own.needed)
        return own, with_bandwidth(platform, rate)
    # More than the tables would have to lie outside.
    if missing > own.weights:
        return None
    # Accesses of both memories follow each other, so that rates combine harmonically.
    slower = local / hybrid_bandwidth(local, expansion.bandwidth, missing / own.weights)
    rows = tuple(Override(f"*{kernel}", factor=slower) for kernel in ("lookup", "table update"))
    return own, replace(platform, compute=replace(platform.compute, overrides=rows))


@cache
def _share(nodes: int, training: DlrmAssumptions) -> Share:
    # A sample at least per node in every division.
    if training.dlrm_batch % NODES:
        raise InputError(
            f"--dlrm-batch {training.dlrm_batch}: expected a multiple of {NODES}, samples for each node"
        )
    model = dlrm(training)
    plan = Plan(
        ranks=nodes,
        batch=training.dlrm_batch,
        # Each node has its part of the batch at once.
        microbatch=training.dlrm_batch // nodes,
        optimizer="sgd",
        data=Data(overlap=training.overlap),
        numbers=Numbers(
            compute="fp32" if training.dlrm_precision == "fp32" else "bf16",
            gradients="bf16" if training.gradients == "bf16" else "fp32",
        ),
    )
    # The node that holds most, at the peak of the step.
    held = worst(partition(replica_layers(model, plan), plan), plan)
    # The paper counts states and activations: no gaps of an allocator, no buffers of a library, no context.
    return Share(generate(model, plan), held.peak - held.at_peak["buffers"], held.at_peak["weights"])


def dlrm(training: DlrmAssumptions) -> Model:
    """Return the DLRM of LIBRA, whose rows are not published, with as many rows as make the parameters."""
    model = load_model("dlrm-libra")
    assert isinstance(model, Dlrm)
    # One table type; unpacking fails if that changes.
    (tables,) = model.tables
    # Rounded up: tables must have whole rows.
    rows = -(-training.dlrm_parameters // (tables.count * tables.size))
    grown = tables.model_copy(update={"rows": rows, "pooling": training.dlrm_pooling})
    return model.model_copy(update={"tables": [grown]})


def _size(nodes: int, chosen: Assumptions) -> Size:
    own, platform = dlrm_share(nodes, chosen), part(BASE, chosen, nodes)
    return Size(nodes, own.needed, fits(own.needed, platform, None), measure(own.trace, platform, "physical"))


def _times(sizes: Iterable[int], name: str, expansion: Expansion, chosen: Assumptions) -> dict[int, int]:
    """Return node times of the numbers of nodes that hold it."""
    cases = {nodes: dlrm_expanded(nodes, part(name, chosen, nodes), expansion, chosen) for nodes in sizes}
    return {
        nodes: nodes * simulate(case[0].trace, case[1]).total_ticks for nodes, case in cases.items() if case
    }


def _best(name: str, expansion: Expansion, chosen: Assumptions) -> Best:
    times = _times(SIZES, name, expansion, chosen)
    # The memory is the same on any number of nodes.
    capacity = part(name, chosen, SIZES[0]).npu.memory.capacity
    own = {nodes: time for nodes, time in times.items() if dlrm_share(nodes, chosen).needed <= capacity}
    return Best(fastest(own), fastest(times))
