"""Describe a corpus: conditions, operators, communication, structure and motifs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.lab.learned.conditions import WORDS, Value
from armillary.lab.learned.corpus import Corpus
from armillary.lab.learned.features import values_of
from armillary.lab.learned.graphs import Layouts, graph_of_tokens
from armillary.lab.learned.motifs import Template
from armillary.lab.learned.pieces import loose_symbols, pieces_of
from armillary.lab.learned.skeletons import find_skeletons
from armillary.lab.learned.vocabulary import AT
from armillary.trace import NodeType, Trace

if TYPE_CHECKING:
    from rich.table import Table

_LOOKED_AT = 50
"""Traces whose structure is sampled."""
_PARTS = (0.1, 0.5, 0.9)


def describe(corpus: Corpus) -> dict[str, Any]:
    """Return what a corpus consists of, as JSON knows values."""
    records = corpus.records
    # Keys of all records: traces of files have others than generated ones.
    keys = dict.fromkeys(key for record in records for key in record.condition)
    conditions = {
        key: _span([record.condition[key] for record in records if key in record.condition]) for key in keys
    }
    return {
        "traces": len(records),
        "sources": corpus.sources,
        "classes": sum(len(record.classes) for record in records),
        "tokens": sum(len(packed) for record in records for packed in record.classes),
        "digest": corpus.digest,
        "conditions": conditions,
        "operators": _operators(corpus),
        "grammar": _grammar(corpus),
        "structure": _structure(corpus),
        "motifs": _motifs(corpus),
    }


def _span(values: Sequence[Value]) -> Any:
    # Numbers before texts, which do not compare.
    distinct = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    return distinct if len(distinct) <= 8 else [distinct[0], "…", distinct[-1]]


def _operators(corpus: Corpus) -> list[dict[str, Any]]:
    """Return tokens, FLOPs, bytes and durations of every operator in its context of communication."""
    found: dict[int, list[tuple[Any, Any]]] = defaultdict(list)
    for record in corpus.records:
        for packed in record.classes:
            # Rows of equal nodes are stored once: count how often each occurs.
            times = np.bincount(packed.row, minlength=len(packed.rows))
            for symbol in np.unique(packed.rows[:, 0]).tolist():
                own = packed.rows[:, 0] == symbol
                found[symbol].append((packed.rows[own, 1:], times[own]))
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for number, parts in found.items():
        symbol = corpus.vocabulary.symbols[number]
        numbers, times = (np.concatenate(each) for each in zip(*parts, strict=True))
        row: dict[str, Any] = {"kind": NodeType(symbol.kind).name, "name": symbol.name, "role": symbol.role}
        row["tokens"] = int(times.sum())
        for title, column in (
            ("FLOPs", "num_ops"), ("bytes", "tensor_size"), ("message", "comm_size"), ("duration_ns", "duration_ns"),
        ):  # fmt: skip
            if AT[column] in symbol.columns:
                row[title] = _quantiles(numbers[:, AT[column]], times)
        key = (row["kind"], row["name"], row["role"])
        # An operator may have several symbols: numbers of the most frequent one, tokens of all.
        if key not in rows or rows[key]["tokens"] < row["tokens"]:
            row["tokens"] += rows.get(key, {"tokens": 0})["tokens"]
            rows[key] = row
        else:
            rows[key]["tokens"] += row["tokens"]
    return sorted(rows.values(), key=lambda row: -row["tokens"])


def _quantiles(values: Any, times: Any) -> list[int]:
    # Weighted quantiles: values are stored once, with how often they occur.
    order = np.argsort(values, kind="stable")
    ends = np.cumsum(times[order])
    return [
        int(values[order[min(np.searchsorted(ends, part * ends[-1]), len(order) - 1)]]) for part in _PARTS
    ]


def _grammar(corpus: Corpus) -> list[dict[str, Any]]:
    """Return which kinds of nodes follow each other in issue order, most frequent first."""
    kinds, counts = corpus.vocabulary.kinds(), np.zeros((len(NodeType), len(NodeType)), np.int64)
    for record in corpus.records:
        for packed in record.classes:
            own = kinds[packed.symbols]
            # Pairs of neighbours in issue order, all at once.
            np.add.at(counts, (own[:-1], own[1:]), 1)
    pairs = [
        (int(counts[a, b]), a, b) for a in range(len(counts)) for b in range(len(counts)) if counts[a, b]
    ]
    total = max(1, int(counts.sum()))
    return [
        {"kind": NodeType(a).name, "next": NodeType(b).name, "share": count / total}
        for count, a, b in sorted(pairs, reverse=True)
    ]


def _structure(corpus: Corpus) -> dict[str, Any]:
    layouts = Layouts.of(corpus.vocabulary)
    # A sample suffices for the structure, which is costly to compute.
    step = max(1, len(corpus.records) // _LOOKED_AT)
    values = []
    for record in corpus.records[::step]:
        graphs = tuple(graph_of_tokens(packed.tokens(), layouts, "class") for packed in record.classes)
        values.append(values_of(Trace(graphs, np.arange(len(graphs), dtype=np.int32))))
    sizes = [len(packed) for record in corpus.records for packed in record.classes]
    return {
        "traces looked at": len(values),
        "nodes of a class": [int(each) for each in np.quantile(sizes, _PARTS)],
        "classes of a trace": [int(e) for e in np.quantile([len(r.classes) for r in corpus.records], _PARTS)],
        "dependencies of a node": float(np.concatenate([each.degree for each in values]).mean()),
        "most dependencies": int(max(each.degree.max(initial=0) for each in values)),
        "most that wait for one": int(max(each.children.max(initial=0) for each in values)),
        "depth of a class": [int(e) for e in np.quantile(np.concatenate([v.depth for v in values]), _PARTS)],
    }


def _motifs(corpus: Corpus) -> list[dict[str, Any]]:
    """Return the blocks that sequences consist of, most frequent first."""
    records = [record for record in corpus.records if not record.rank_graph]
    # Symbols that stand anywhere would break blocks: left out first.
    loose = loose_symbols((packed for record in records for packed in record.classes), corpus.vocabulary)
    sequences = [
        pieces_of(packed, corpus.vocabulary, loose)
        for record in records[:: max(1, len(records) // _LOOKED_AT)]
        for packed in record.classes
    ]
    if not sequences:
        return []
    skeletons, found = find_skeletons(sequences)
    counts = Counter(block[0] for skeleton in found for block in skeleton.blocks)
    return [
        {"block": to_text(skeletons.blocks[block]), "classes": many} for block, many in counts.most_common(12)
    ]


def to_text(template: Template[str]) -> str:
    """Return a template of roles for people: loops in brackets with a star."""
    parts = [symbols[0] + "*" if len(symbols) == 1 else f"({' '.join(symbols)})*" for symbols in template]
    return " ".join(parts)


def tables(facts: dict[str, Any]) -> list[Table]:
    """Return what `describe` found as tables."""
    from armillary.base.units import format_bytes, format_time
    from armillary.report.plain import plain_table

    head = plain_table("corpus", "", left=2, widest=32)
    for key in ("traces", "classes", "tokens"):
        head.add_row(key, f"{facts[key]:,}")
    for key, value in facts["structure"].items():
        text = " / ".join(f"{each:,}" for each in value) if isinstance(value, list) else f"{value:,.4g}"
        head.add_row(key, text)
    given = plain_table("condition", "values", left=2, widest=20)
    for key, values in facts["conditions"].items():
        # Conditions that never vary say nothing.
        if len(values) > 1 or key in WORDS:
            given.add_row(key, ", ".join(str(each) for each in values))
    operators = plain_table(
        "operator", "communication", "tokens", "FLOPs", "bytes", "duration", left=2, widest=28
    )
    # The most frequent 40; the rest is rare.
    for row in facts["operators"][:40]:
        size = row.get("message", row.get("bytes"))
        operators.add_row(
            row["name"], row["role"], f"{row['tokens']:,}", f"{row['FLOPs'][1]:.3g}" if "FLOPs" in row else "",
            format_bytes(size[1]) if size else "", format_time(row["duration_ns"][1]) if "duration_ns" in row else "",
        )  # fmt: skip
    grammar = plain_table("kind of node", "next", "share", left=2, widest=24)
    for row in facts["grammar"][:8]:
        grammar.add_row(row["kind"], row["next"], f"{100 * row['share']:.1f} %")
    motifs = plain_table("classes", "blocks of one microbatch", left=2)
    for row in facts["motifs"]:
        motifs.add_row(f"{row['classes']:,}", row["block"])
    return [head, given, operators, grammar, *([motifs] if facts["motifs"] else [])]
