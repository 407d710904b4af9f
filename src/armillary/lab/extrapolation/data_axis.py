"""More or fewer replicas, each with the same samples as before."""

from __future__ import annotations

from fractions import Fraction

from armillary.lab.extrapolation.kernels import Nodes
from armillary.lab.extrapolation.scaling import Scaling
from armillary.trace import CollectiveType


def scale_data(nodes: Nodes, mesh_dim: int, factor: Fraction) -> Scaling:
    """Return what changes in a rank when one mesh dimension of its replicas grows by `factor`.

    What is reduced or reduced and scattered is whole on every rank and stays; what is gathered, and updated between
    the two, is the share of a rank and shrinks (ZeRO, arXiv 1910.02054, section 5).
    """
    made = Scaling(nodes)
    group = nodes.over_mesh_dim(mesh_dim) & nodes.large
    gathers = group & (nodes.collective == CollectiveType.ALL_GATHER)
    scatters = group & (nodes.collective == CollectiveType.REDUCE_SCATTER)
    reduces = group & (nodes.collective == CollectiveType.ALL_REDUCE)
    made.assume("data: all-reduces keep their size", reduces)
    made.assume("data: reduce-scatters keep their size, which is of the whole input", scatters)
    made.assume("data: all-gathers, whose size is of a rank's share, shrink", gathers, comm=1 / factor)
    made.assume("data: each replica has the samples it had", nodes.kernel & ~nodes.update)
    # With ZeRO each replica updates the share that it reduced; plain data parallelism repeats the whole
    # update.
    if gathers.any() or scatters.any():
        made.assume("data: a rank updates its share of sharded weights, which shrinks", nodes.update, size=1 / factor,
                    ops=1 / factor)  # fmt: skip
    else:
        made.assume("data: every replica updates all weights", nodes.update)
    return made
