"""Traces as records: tokens with their condition, and those as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.trace import Trace
from armillary.workload.learned.conditions import Value
from armillary.workload.learned.packed import Packed, pack
from armillary.workload.learned.tokens import tokens_of
from armillary.workload.learned.vocabulary import Vocabulary

ARRAYS = {"rows": 0, "row": 0, "reference": 0, "labels": 1}
"""Arrays of a class that are put behind each other, and along which axis."""


@dataclass(frozen=True, eq=False)
class Record:
    """A trace of a corpus.

    Attributes:
        condition: What it was made for; of a trace in files its name and the number of its ranks.
        classes: Tokens of each of its graphs.
        ranks: How many ranks run each.
        source: Where it comes from.
        rank_graph: Of a trace that was read from files: the graph of every rank; empty for others.
    """

    condition: dict[str, Value]
    classes: tuple[Packed, ...]
    ranks: tuple[int, ...]
    source: str
    rank_graph: tuple[int, ...] = ()


def record_of(trace: Trace, condition: dict[str, Value], source: str, vocabulary: Vocabulary) -> Record:
    """Return a trace as a record.

    Raises:
        InputError: tokens cannot say something of it.
    """
    classes = tuple(
        pack(tokens_of(graph, vocabulary, short=trace.grid is not None)) for graph in trace.graphs
    )
    ranks = np.bincount(trace.rank_graph, minlength=len(trace.graphs)).tolist()
    listed = () if trace.grid is not None else tuple(trace.rank_graph.tolist())
    return Record(condition, classes, tuple(ranks), source, listed)


def arrays_of(records: Sequence[Record]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays of records, and what else belongs to them as JSON knows values."""
    arrays: dict[str, Any] = {}
    classes = [each for record in records for each in record.classes]
    for name, axis in ARRAYS.items():
        parts = [getattr(each, name) for each in classes]
        if parts:
            arrays[name] = np.concatenate(parts, axis=axis)
        arrays[f"{name}_size"] = np.array([part.shape[axis] for part in parts], np.int64)
    listed = [
        [dict(each.condition), each.ranks, each.source, each.rank_graph, len(each.classes)]
        for each in records
    ]
    return arrays, {"records": listed, "references": [each.references for each in classes]}


def records_of(
    arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any], place: NDArray[np.int64]
) -> list[Record]:
    """Return the records that `arrays_of` described; `place` is the number of each of their symbols.

    Raises:
        KeyError, ValueError, IndexError, TypeError: they are none.
    """
    split = {}
    for name, axis in ARRAYS.items():
        ends = np.cumsum(arrays[f"{name}_size"])
        if len(ends):
            if arrays[name].shape[axis] != ends[-1]:
                raise ValueError(name)
            split[name] = np.split(arrays[name], ends[:-1], axis=axis)
    classes = []
    for at, lists in enumerate(header["references"]):
        rows = split["rows"][at].copy()
        rows[:, 0] = place[rows[:, 0]]
        references = tuple(
            tuple(
                (int(form), int(place[named]) if named >= 0 else -1, int(count))
                for form, named, count in each
            )
            for each in lists
        )
        classes.append(
            Packed(rows, split["row"][at], references, split["reference"][at], split["labels"][at])
        )
        if len(references) <= classes[-1].reference.max(initial=-1) or len(rows) <= classes[-1].row.max(
            initial=-1
        ):
            raise ValueError("rows")
    records, at = [], 0
    for condition, ranks, source, rank_graph, many in header["records"]:
        own = tuple(classes[at : at + many])
        records.append(Record(condition, own, tuple(ranks), source, tuple(rank_graph)))
        at += many
    return records
