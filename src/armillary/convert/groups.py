"""Communicator groups of a converted workload: their numbers, and the node that stores them in a trace."""

from __future__ import annotations

import json
from collections.abc import Sequence

from armillary.trace import GraphBuilder, Node, NodeType


class Groups:
    """Numbers groups from 1, in the order of their first query; the world is 0.

    Chakra readers expect numbers as names of groups, and one group for one set of ranks in one order.
    """

    def __init__(self, npus: int) -> None:
        self.world = tuple(range(npus))
        self.ranks: dict[int, tuple[int, ...]] = {}
        self._number: dict[tuple[int, ...], int] = {self.world: 0}

    def number(self, ranks: Sequence[int]) -> int:
        """Return the number of the group of `ranks`, in this order; 0 for all ranks in ascending order."""
        key = tuple(ranks)
        # The world is there from the start, so that a new group gets the next number from 1.
        found = self._number.setdefault(key, len(self._number))
        if found:
            self.ranks[found] = key
        return found

    def metadata(self, builder: GraphBuilder) -> int | None:
        """Add the node that lists the groups, unless the world is the only one; see `groups_node`."""
        if not self.ranks:
            return None
        ident = builder.add("", NodeType.METADATA_NODE)
        builder.nodes[-1] = groups_node(ident, self.ranks)
        return ident


def groups_node(ident: int, groups: dict[int, tuple[int, ...]]) -> Node:
    """Return the metadata node in which PyTorch stores the process groups and ASTRA-sim reads them."""
    table = [
        {"pg_name": str(number), "ranks": list(ranks), "group_size": len(ranks)}
        for number, ranks in groups.items()
    ]
    return Node(
        ident,
        "## process_group:init ##",
        NodeType.METADATA_NODE,
        # PyTorch stores inputs as texts of three lists: values, shapes and types.
        inputs=(f"['{json.dumps(table)}']", "[[]]", "['String']"),
    )
