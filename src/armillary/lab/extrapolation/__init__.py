"""Extrapolates a trace to another size: finds its axes and scales each by laws that the report lists.

This is the opposite of `trace.expand`: ranks that do the same share a graph again, groups become coordinates
of a rank grid, and peers become steps along one (`symbolic`, `mesh_dims`). The role of an axis follows from
what happens along it (`roles`): messages, all-to-alls, and whether the next kernels wait for a reduction or,
where operators name tensors, whether the reduced tensor was computed from tokens. Scaling an axis makes a
coordinate of the grid larger and multiplies quantities of nodes by factors, each under a rule that is listed
with the nodes it was applied to.

Laws are rules (`data_axis`, `tensor_axis`, `token_axis`, `shapes`) or measured from a second trace
(`reference`): a sum of two neighbouring powers. Stages are lifted back to layers and emitted again; emitting
them in the old number must give the trace back node by node, else it is refused. Interleaved stages are
virtual stages that take turns.

A recorded pipeline is taken apart by its messages (`recorded.stages`), each call is given to a layer
(`recorded.layers`), and pieces of calls are copied into graphs in the order of the schedule (`recorded.restage`,
`recorded.written`): the host waits for whatever precedes it in the new order.

Expert work lies behind an odd number of all-to-alls (`expert_axis`). More ranks of ep and more replicas
are two elementary steps, and together they leave dp as it is. Rings of cp are parsed into rounds and rebuilt
(`rings`); the old number of rounds must give the trace back. Experts with one replica have no reductions in
the trace: their parameters are read from their GEMMs, and the stage is emitted again on a grid with one
coordinate more.
"""

from armillary.lab.extrapolation.extrapolate import extrapolate
from armillary.lab.extrapolation.extrapolated import Assumption, Extrapolated
from armillary.lab.extrapolation.recognise import as_all_ranks, ranks_named_by, recognise, recognise_one
from armillary.lab.extrapolation.reference import Reference
from armillary.lab.extrapolation.roles import Evidence

__all__ = [
    "Assumption",
    "Evidence",
    "Extrapolated",
    "Reference",
    "as_all_ranks",
    "extrapolate",
    "ranks_named_by",
    "recognise",
    "recognise_one",
]
