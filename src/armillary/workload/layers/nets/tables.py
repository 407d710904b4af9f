"""Placement of embedding tables on ranks."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapreplace
from math import ceil

from armillary.base.errors import InputError
from armillary.workload.models.schema import Dlrm


@dataclass(frozen=True)
class Share:
    """Tables of one rank; ranks with equal shares are alike.

    Attributes:
        columns: Elements of the sums that it makes of one sample.
        lookups: Rows that it reads for one sample.
        elements: Elements of these rows.
        parameters: Of its tables; those with unknown rows count nothing.
    """

    columns: int = 0
    lookups: int = 0
    elements: int = 0
    parameters: int = 0


def shares(model: Dlrm, ranks: int) -> tuple[Share, ...]:
    """Divide the tables of a model over ranks.

    Tables are placed whole, those with the most elements to read first, each on the rank that reads least so far, then
    has the fewest parameters. If there are fewer tables than ranks, each table is first cut by columns into the fewest
    nearly equal parts that give every rank one.

    Raises:
        InputError: more ranks than columns.
    """
    count = sum(table.count for table in model.tables)
    cuts = ceil(ranks / count)
    least = min(table.size for table in model.tables)
    if cuts > least:
        raise InputError(
            f"dp {ranks}: expected at most {least * count}, '{model.name}' has {count} tables, "
            f"the narrowest of {least} columns (nearest: {least * count})"
        )
    pieces = [
        Share(columns, table.pooling, table.pooling * columns, (table.rows or 0) * columns)
        for table in model.tables
        for cut in range(cuts)
        for columns in [table.size // cuts + (cut < table.size % cuts)]
        for _ in range(table.count)
    ]
    # Longest processing time first (Graham 1969): large tables cannot be evened out at the end.
    pieces.sort(key=lambda piece: (-piece.elements, -piece.parameters))
    found = [Share()] * ranks
    waiting = [(0, 0, rank) for rank in range(ranks)]  # a heap, least loaded first
    for piece in pieces:
        rank = waiting[0][2]
        old = found[rank]
        found[rank] = new = Share(
            old.columns + piece.columns,
            old.lookups + piece.lookups,
            old.elements + piece.elements,
            old.parameters + piece.parameters,
        )
        heapreplace(waiting, (new.elements, new.parameters, rank))
    return tuple(found)
