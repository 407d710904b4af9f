"""Traces as records, tokens with their condition, and records as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.lab.learned.archive import whole
from armillary.lab.learned.conditions import Value
from armillary.lab.learned.packed import LABELS, Packed, pack
from armillary.lab.learned.reference_kernel import BACK, ENDS, GROUP, KERNEL
from armillary.lab.learned.tokens import tokens_of
from armillary.lab.learned.vocabulary import AT, COLUMNS, NUMBERS, Vocabulary
from armillary.trace import Trace

_DIMENSIONS = {"rows": 2, "row": 1, "reference": 1, "labels": 2}
_MOST = 2**31 - 1
ARRAYS = {"rows": 0, "row": 0, "reference": 0, "labels": 1}
"""Arrays of a class that are concatenated, with the axis."""


@dataclass(frozen=True, eq=False)
class Record:
    """A trace of a corpus.

    Attributes:
        condition: Its condition; for a trace in files its name and the number of its ranks.
        classes: Tokens of each of its graphs.
        ranks: Number of ranks that run each graph.
        source: Name of the plan or trace that it comes from.
        rank_graph: For a trace that was read from files, the graph of every rank; empty for others.
    """

    condition: dict[str, Value]
    classes: tuple[Packed, ...]
    ranks: tuple[int, ...]
    source: str
    rank_graph: tuple[int, ...] = ()


def record_of(trace: Trace, condition: dict[str, Value], source: str, vocabulary: Vocabulary) -> Record:
    """Return a trace as a record.

    Raises:
        InputError: tokens cannot express something in it.
    """
    classes = tuple(
        pack(tokens_of(graph, vocabulary, short=trace.grid is not None)) for graph in trace.graphs
    )
    ranks = np.bincount(trace.rank_graph, minlength=len(trace.graphs)).tolist()
    listed = () if trace.grid is not None else tuple(trace.rank_graph.tolist())
    return Record(condition, classes, tuple(ranks), source, listed)


def arrays_of(records: Sequence[Record]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays of records, and the rest of them as plain JSON values."""
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
        KeyError, ValueError, IndexError, TypeError: the contents are not those of records.
    """
    split = {}
    for name, axis in ARRAYS.items():
        sizes = arrays[f"{name}_size"]
        if sizes.ndim != 1 or sizes.dtype.kind != "i" or (sizes < 0).any():
            raise ValueError(f"{name}_size: expected numbers of at least 0")
        ends = np.cumsum(sizes)
        if len(ends):
            array = arrays[name]
            if array.ndim != _DIMENSIONS[name] or array.dtype.kind != "i" or array.shape[axis] != ends[-1]:
                raise ValueError(f"{name}: expected {ends[-1]} rows of integers")
            split[name] = np.split(array, ends[:-1], axis=axis)
    # Every index is checked against what it points into: the file may come from others.
    classes = []
    for at, lists in enumerate(header["references"]):
        rows = split["rows"][at].copy()
        if rows.shape[1] != 1 + len(COLUMNS) or not _inside(rows[:, 0], len(place)):
            raise ValueError(f"rows: expected {1 + len(COLUMNS)} columns, the first a symbol")
        if not _inside(rows[:, 1 + AT["number"]], NUMBERS):
            raise ValueError(f"rows: a number in a name, expected 0 to {NUMBERS - 1}")
        # From the file's numbers of symbols to those of the vocabulary in use; references below likewise.
        rows[:, 0] = place[rows[:, 0]]
        own = tuple(tuple(reference(each, len(place)) for each in listed) for listed in lists)
        references = tuple(
            tuple((form, int(place[named]) if named >= 0 else -1, count) for form, named, count in each)
            for each in own
        )
        found = Packed(rows, split["row"][at], references, split["reference"][at], split["labels"][at])
        if not (_inside(found.row, len(rows)) and _inside(found.reference, len(references))):
            raise ValueError("row, reference: expected those that are there")
        if found.labels.shape != (len(LABELS), len(found)) or len(found.reference) != len(found):
            raise ValueError(f"labels: expected {len(LABELS)} for each of {len(found)} tokens")
        classes.append(found)
    records, at = [], 0
    for condition, ranks, source, rank_graph, many in header["records"]:
        count = whole(many, "classes", 0, len(classes) - at)
        records.append(
            Record(
                dict(condition), tuple(classes[at : at + count]),
                tuple(whole(each, "ranks", 0, _MOST) for each in ranks),
                str(source), tuple(whole(each, "rank_graph", 0, count - 1) for each in rank_graph),
            )
        )  # fmt: skip
        at += count
    return records


def reference(found: Any, symbols: int) -> tuple[int, int, int]:
    """Return a reference: form, symbol or -1, and count.

    Raises:
        ValueError, TypeError: it is no valid reference.
    """
    form, named, count = found
    whole(form, "form", 0, ENDS)
    # These forms name no symbol; a token cannot wait for itself, so `BACK` counts from 1.
    whole(named, "symbol", -1 if form in (KERNEL, GROUP, BACK) else 0, symbols - 1)
    return form, named, whole(count, "count", form == BACK, _MOST)


def _inside(values: NDArray[Any], many: int) -> bool:
    return not len(values) or bool(values.min() >= 0 and values.max() < many)
