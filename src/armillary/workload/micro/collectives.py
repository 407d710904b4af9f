"""One collective on every group of a machine, alone or beside a compute node."""

from __future__ import annotations

from armillary.base.errors import InputError
from armillary.convert.groups import Groups, groups_node
from armillary.trace import CollectiveType, Graph, GraphBuilder, NodeType, Trace
from armillary.workload.layers.shard import divisors, near


def group_sizes(npus: int) -> list[int]:
    """Return every group size that divides `npus`, ascending from 2."""
    return [size for size in divisors(npus) if size > 1]


def check_group(npus: int, members: int) -> None:
    """Refuse group sizes that leave ranks over.

    Raises:
        InputError: names the nearest size that does not.
    """
    possible = group_sizes(npus)
    if not possible:
        raise InputError(f"{npus} NPUs: expected at least 2, or nothing is sent")
    if members not in possible:
        raise InputError(
            f"groups of {members} ranks on {npus} NPUs: expected a size of at least 2 that divides {npus} "
            f"(nearest: {near(members, possible)})"
        )


def blocks(npus: int, members: int) -> list[tuple[int, ...]]:
    """Return the ranks of every group."""
    return [tuple(range(first, first + members)) for first in range(0, npus, members)]


COLLECTIVES = {kind.name.lower().replace("_", "-"): kind for kind in CollectiveType}
"""Chakra's collectives by name."""
_DIVIDED = frozenset(
    ("all-gather", "reduce-scatter", "reduce-scatter-block", "all-to-all", "gather", "scatter")
)


def parts(name: str, members: int) -> int:
    """Return the number of parts, one per member, of a collective's data; 1 if it is not divided."""
    return members if name in _DIVIDED else 1


def comm_size(name: str, members: int, size: int) -> int:
    """Return ``comm_size`` of a collective on `size` bytes: an all-gather counts the contribution of one rank."""
    return size // members if name == "all-gather" else size


def collective_trace(name: str, npus: int, members: int, size: int, compute_ns: int = 0) -> Trace:
    """Return the trace in which every group of `members` ranks runs one collective.

    Args:
        name: one of `COLLECTIVES`.
        npus: ranks in all.
        members: ranks of a group, which divide `npus`; the ranks of a group share one graph.
        size: bytes of its data: the vector of all, or what all parts are together.
        compute_ns: also run a compute node of this duration, which neither waits for the other.
    """
    groups = Groups(npus)
    graphs: list[Graph] = []
    for ranks in blocks(npus, members):
        builder = GraphBuilder()
        number = groups.number(ranks)
        if number:  # of all groups, only its own: a graph does not grow with the machine
            ident = builder.add("", NodeType.METADATA_NODE)
            builder.nodes[-1] = groups_node(ident, {number: ranks})
        if compute_ns:
            # Chakra's own field counts whole microseconds, and 0 would mean no duration; an attribute has
            # the exact one.
            builder.compute("compute", duration_micros=max(1, round(compute_ns / 1000)))
            builder.nodes[-1].attrs.append(("duration_ns", "int64", compute_ns))
        builder.collective(name, COLLECTIVES[name], comm_size(name, members, size), group=number or None)
        # One object for all members of a group, so that they are stored once.
        graphs += [builder.graph(f"{name} of group {number}")] * members
    return Trace.from_ranks(graphs)
