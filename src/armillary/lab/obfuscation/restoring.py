"""The private file that maps new names to old ones, and how to put the old ones back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base.errors import InputError, nearest
from armillary.base.files import replacing
from armillary.base.hints import show
from armillary.base.text import json_text
from armillary.base.units import whole
from armillary.lab.obfuscation.relabel import Draft, Legend, mapped, renamed
from armillary.lab.obfuscation.rows import read, write
from armillary.trace.graph import Graph
from armillary.trace.trace import Trace, read_groups

VERSION = 1
_NUMBERED = ("tags", "streams", "threads")


def write_legend(path: Path, legend: Legend, key: str) -> None:
    """Write a legend and the key to a file that only its owner may read.

    Raises:
        InputError: the file cannot be written.
    """
    document = {"armillary_obfuscation_map": VERSION, "key": key, **vars(legend)}
    # The key is never readable by others.
    with replacing(path, private=True) as temporary:
        temporary.write_text(json_text(document) + "\n")


def read_legend(path: Path) -> Legend:
    """Read a legend.

    Raises:
        InputError: the file is no legend, or of another version.
    """
    from armillary.base.document import read_document

    data = dict(read_document(path, "obfuscation map", "json").data)
    version = data.pop("armillary_obfuscation_map", None)
    if version != VERSION:
        raise InputError(f"{path}: armillary_obfuscation_map: got {version!r}, expected {VERSION}")
    # Restoring needs the mapping only; the key is there to repeat the obfuscation.
    data.pop("key", None)
    names = [each.name for each in fields(Legend)]
    for name in data:
        if name not in names:
            raise InputError(f"{path}: {name}: no such key, expected some of {names}{nearest(name, names)}")
    try:
        values: dict[str, Any] = {
            name: {int(new): int(old) for new, old in data.get(name, {}).items()} for name in _NUMBERED
        }
        values |= {
            name: {str(a): _word(b) for a, b in data.get(name, {}).items()}
            for name in ("names", "groups", "axes")
        }
        ids = [[int(each) for each in graph] for graph in data.get("ids", [])]
        ranks = [int(each) for each in data.get("rank_graph", [])]
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path}: not an obfuscation map ({error}); expected a file that --map wrote"
        ) from error
    return Legend(**values, ids=ids, rank_graph=ranks)


def _word(value: object) -> str:
    if not isinstance(value, str | int):
        raise TypeError(f"{show(value)} is no text")
    return str(value)


def restore(trace: Trace, legend: Legend) -> Trace:
    """Return a trace with the original names, ids, tags, streams and group numbers, as far as a legend has them.

    What was dropped or changed stays so: shapes, labels, sizes, and ids of graphs whose nodes were restructured.

    Raises:
        InputError: the trace has a grid, other ranks, or cannot be read.
    """
    if trace.grid is not None:
        raise InputError("names are restored in the traces of ranks; expected a trace without a grid")
    if legend.rank_graph and len(legend.rank_graph) != trace.n_ranks:
        raise InputError(
            f"the map is of {len(legend.rank_graph)} ranks; expected {trace.n_ranks}, as the trace has"
        )
    found, _ = read_groups(trace)
    numbered = [(whole(new), whole(old)) for new, old in legend.groups.items()]
    number = {new: old for new, old in numbered if new is not None and old is not None}
    groups = {number.get(group, group): tuple(ranks.tolist()) for group, ranks in found.items()}
    # Without a rank_graph all ids counted from 0, so it does not matter which graph of the original a rank
    # ran.
    old = legend.rank_graph or [0] * trace.n_ranks
    # Two ranks may run one graph now but had different ids before: each pair (new graph, old graph) becomes
    # one graph.
    pairs = list(zip(trace.rank_graph.tolist(), old, strict=True))
    distinct = list(dict.fromkeys(pairs))
    graphs = tuple(
        _restored(trace.graphs[a], legend, legend.ids[b] if b < len(legend.ids) else [], groups)
        for a, b in distinct
    )
    return Trace(graphs, np.array([distinct.index(pair) for pair in pairs], np.int32))


def _restored(graph: Graph, legend: Legend, ids: list[int], groups: Mapping[int, tuple[int, ...]]) -> Graph:
    rows = read(graph)

    def known(table: Mapping[str, str], values: tuple[Any, ...]) -> dict[str, str]:
        return {text: table.get(text, text) for text in values}

    words = dict(rows.words)
    for name, table in (("name", legend.names), ("pg_name", legend.groups)):
        words[name] = renamed(words[name], known(table, words[name].values))
    numbers = dict(rows.numbers)
    for name, numbered in (("comm_tag", legend.tags), ("stream", legend.streams), ("tid", legend.threads)):
        numbers[name] = mapped(numbers[name], numbered)
    rows = replace(rows, words=words, numbers=numbers)
    own = np.array(ids, np.uint64).view(np.int64) if len(ids) == rows.n else None
    draft = Draft((rows,), (0,), np.zeros(1, np.int32), None, groups)
    return write(rows, graph.source, draft.definition(rows), own)
