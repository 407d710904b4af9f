"""A rank's graph as a sequence of tokens in issue order, and back.

A token is a symbol of a `Vocabulary`, a row of numbers, and references to earlier tokens (`reference_kernel`). Values
that no engine reads (ids of operators) are left out; the graph of the tokens simulates to the same ticks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.base.jit import Mode, load
from armillary.lab.learned.reference_kernel import BACK, LAST, TAIL
from armillary.lab.learned.vocabulary import (
    AT,
    COLUMNS,
    CONSTANTS,
    GEMMS,
    LISTS,
    VALUES,
    Entry,
    Symbol,
    Vocabulary,
    split_name,
)
from armillary.trace import Graph, NodeType
from armillary.trace.columns import distinct_columns
from armillary.trace.gemm import GEMM
from armillary.trace.graph import distinct
from armillary.trace.structure import issue_order

Ints = NDArray[np.int64]
_KERNEL = "armillary.lab.learned.reference_kernel"


@dataclass(frozen=True, eq=False)
class Tokens:
    """A sequence of tokens.

    Attributes:
        symbols: Symbol of every token, (n,).
        numbers: Numbers of every token, (n, `COLUMNS`); 0 where a symbol does not have the column.
        ref_ptr: Offsets of references, (n + 1,).
        ref_form: Form of every reference, see `reference_kernel`.
        ref_symbol: Symbol that a reference names, -1: none.
        ref_count: Count of every reference: which token, or how many.
    """

    symbols: Ints
    numbers: Ints
    ref_ptr: Ints
    ref_form: Ints
    ref_symbol: Ints
    ref_count: Ints

    def __len__(self) -> int:
        return len(self.symbols)

    def column(self, name: str) -> Ints:
        """Return a column of numbers, (n,)."""
        found: Ints = self.numbers[:, AT[name]]
        return found


def tokens_of(
    graph: Graph, vocabulary: Vocabulary, *, short: bool = False, mode: Mode = "compiled"
) -> Tokens:
    """Return the tokens of a graph; new symbols join the vocabulary.

    Args:
        graph: The graph.
        vocabulary: Vocabulary of the tokens.
        short: Whether a token with long lists of references leaves out those that its other references imply.
        mode: Mode of the kernel.

    Raises:
        InputError: the graph has a cycle, or a node has something that tokens cannot express: uneven splits, or more
            than two GEMMs.
    """
    order = _order(graph)
    symbols, numbers = _classified(graph, vocabulary)
    symbols, numbers = symbols[order], numbers[order]
    ptr, parent = _parents(graph, order)
    found = _referred(symbols, numbers, ptr, parent, vocabulary, mode)
    if short:
        # Forms that count tokens change with the size of the program. Where a token has them, dependencies
        # that others imply are dropped: the node starts at the same tick, and what is left is more often the
        # same everywhere.
        listed = (
            (found.ref_form == TAIL)
            | (found.ref_form == BACK)
            | ((found.ref_form == LAST) & (found.ref_count > 2))
        )
        many = np.add.reduceat(np.append(listed, False), found.ref_ptr[:-1]) if len(found) else np.zeros(0)
        which = np.flatnonzero((many > 0) & (np.diff(found.ref_ptr) > 1))
        if len(which):
            ptr, parent = _without_ancestors(ptr, parent, which, mode)
            found = _referred(symbols, numbers, ptr, parent, vocabulary, mode)
    return found


def _referred(
    symbols: Ints, numbers: Ints, ptr: Ints, parent: Ints, vocabulary: Vocabulary, mode: Mode
) -> Tokens:
    n, kinds, groups = len(symbols), vocabulary.kinds(), vocabulary.groups()
    form, named, count = (np.zeros(len(parent), np.int64) for _ in range(3))
    ref_ptr = np.zeros(n + 1, np.int64)
    used = load(_KERNEL, mode).refer(
        symbols, numbers[:, AT["micro_batch"]].copy(), (kinds == NodeType.COMP_NODE).astype(np.int64), groups,
        ptr, parent, np.full(len(kinds), -1, np.int64), np.full(len(kinds) + 1, -1, np.int64),
        np.zeros(n, np.int64), np.zeros(n, np.int64), form, named, count, ref_ptr,
    )  # fmt: skip
    return Tokens(symbols, numbers, ref_ptr, form[:used].copy(), named[:used].copy(), count[:used].copy())


def _without_ancestors(ptr: Ints, parent: Ints, which: Ints, mode: Mode) -> tuple[Ints, Ints]:
    """Return the dependencies, for the tokens `which` without those that others of the same token imply."""
    keep, order = np.ones(len(parent), np.bool_), np.arange(len(ptr) - 1)
    ancestors = load("armillary.trace.order_kernel", mode).ancestors
    for token in which.tolist():
        own = slice(ptr[token], ptr[token + 1])
        # Marks all ancestors of the parents; a parent that is marked is an ancestor of another one.
        mark = np.zeros(token, np.int64)
        for each in parent[own].tolist():
            mark[parent[ptr[each] : ptr[each + 1]]] = 1
        ancestors(ptr, parent, order[:token], mark)
        keep[own] = mark[parent[own]] == 0
    kept = np.concatenate([[0], np.cumsum(keep)])
    return kept[ptr].astype(np.int64), parent[keep]


def parents_of(
    tokens: Tokens, vocabulary: Vocabulary, *, strict: bool = False, mode: Mode = "compiled"
) -> tuple[Ints, Ints]:
    """Return the dependencies of tokens as positions, in CSR: the tokens that references name, each once.

    Raises:
        InputError: with `strict`, a reference names no earlier token; without, it is left out.
    """
    n = len(tokens)
    ptr, parent, _, lost = named_by(
        tokens.symbols, tokens.numbers[:, AT["micro_batch"]].copy(),
        (tokens.ref_ptr, tokens.ref_form, tokens.ref_symbol, tokens.ref_count), vocabulary, mode,
    )  # fmt: skip
    if strict and lost >= 0:
        name = vocabulary.symbols[int(tokens.symbols[lost])].name
        raise InputError(
            f"token {lost} '{name}' would wait for what is not there: the model cannot make this trace, "
            "expected a condition nearer to its corpus"
        )
    child = np.repeat(np.arange(n), np.diff(ptr))
    # (child, parent) as one number, so that sorting removes duplicates and orders parents within a child.
    child, parent = np.divmod(distinct(child * max(n, 1) + parent), max(n, 1))
    return np.concatenate([[0], np.cumsum(np.bincount(child, minlength=n))]).astype(np.int64), parent


def named_by(
    symbols: Ints,
    batch: Ints,
    references: tuple[Ints, Ints, Ints, Ints],
    vocabulary: Vocabulary,
    mode: Mode = "compiled",
) -> tuple[Ints, Ints, Ints, int]:
    """Return the tokens that references name.

    Args:
        symbols: Symbol of every token, (n,).
        batch: Microbatch of every token, (n,).
        references: Offsets, (n + 1,), forms, symbols and counts, see `Tokens`.
        vocabulary: Vocabulary of the symbols.
        mode: Mode of the kernel.

    Returns:
        Offsets of the tokens' parents, parents, offsets after those of every reference, and the first token with a
        reference that names nothing; -1: there is none.
    """
    n, kinds, groups = len(symbols), vocabulary.kinds(), vocabulary.groups()
    compute = (kinds == NodeType.COMP_NODE).astype(np.int64)
    resolve = load(_KERNEL, mode).resolve
    ptr, parent, lost = np.zeros(n + 1, np.int64), np.zeros(0, np.int64), np.full(1, -1, np.int64)
    ends = np.zeros(len(references[1]), np.int64)
    # Counts first, then allocates and writes.
    for write in (0, 1):
        rooms = (
            np.full(len(kinds), -1, np.int64),
            np.full(len(kinds) + 1, -1, np.int64),
            np.zeros(n, np.int64),
            np.zeros(n, np.int64),
        )
        used = resolve(symbols, batch, compute, groups, *references, *rooms, ptr, parent, ends, lost, write)
        parent = parent if write else np.zeros(used, np.int64)
    return ptr, parent, ends, int(lost[0])


def _order(graph: Graph) -> Ints:
    """Return the nodes in order of ids, or by start if some wait for greater ids, as in traces that Chakra linked."""
    ptr, parent = graph.parents()
    if (graph.ids[parent] >= np.repeat(graph.ids, np.diff(ptr))).any():
        return issue_order(graph)
    return np.argsort(graph.ids, kind="stable")


def _parents(graph: Graph, order: Ints) -> tuple[Ints, Ints]:
    """Return the dependencies in issue order, CSR, those of a node ascending."""
    n = graph.n_nodes
    ptr, parent = graph.parents()
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    child = rank[np.repeat(np.arange(n), np.diff(ptr))]
    keys = distinct(child * max(n, 1) + rank[parent])
    child, parents = np.divmod(keys, max(n, 1))
    return np.concatenate([[0], np.cumsum(np.bincount(child, minlength=n))]).astype(np.int64), parents


def _classified(graph: Graph, vocabulary: Vocabulary) -> tuple[Ints, Ints]:
    """Return symbol and numbers of every node, in file order."""
    n = graph.n_nodes
    numbers = np.zeros((n, len(COLUMNS)), np.int64)
    present = {name for name in graph.attr_names if graph.has(name).any()} if n else set()
    if "comm_splits" in present:
        at = int(np.argmax(graph.has("comm_splits")))
        raise InputError(f"{graph.node(at)} has comm_splits, expected even parts: tokens cannot say others")
    codes, names = graph.name_codes()
    split = [split_name(name) for name in names]
    known: dict[str, int] = {}
    of_name = np.array([known.setdefault(name, len(known)) for name, _ in split], np.int64)
    numbers[:, AT["number"]] = np.array([number for _, number in split], np.int64)[codes] if n else 0
    numbers[:, AT["duration_micros"]] = graph.duration_micros.view(np.int64)
    # A message along an axis has a distance as its peer, which is the same for all ranks and part of the symbol.
    along = graph.has("comm_axis")
    # Columns that decide on the symbol: equal columns give one symbol, so that only distinct nodes are
    # looked at singly.
    keys = [graph.types.astype(np.int64), of_name[codes] if n else codes.astype(np.int64)]
    for name in CONSTANTS:
        if name in present:
            keys.append(_codes(graph, name))
    for name in VALUES:
        if name in present:
            has, values = graph.has(name), graph.ints(name)
            fixed = along & has if name in ("comm_src", "comm_dst") else np.zeros(n, np.bool_)
            numbers[:, AT[name]] = np.where(fixed, 0, values)
            # An attribute that is 0 differs from one that is absent.
            keys += [has.astype(np.int64), np.where(fixed, values, 0)]
    keys += [_listed(graph, name, numbers) for name in LISTS if name in present]
    first, inverse = distinct_columns(np.stack(keys)) if n else (np.zeros(0, np.int64), np.zeros(0, np.int64))
    found = [vocabulary.number(_symbol(graph, int(at), split[codes[at]][0])) for at in first]
    return (np.array(found, np.int64)[inverse] if n else np.zeros(0, np.int64)), numbers


def _codes(graph: Graph, name: str) -> Ints:
    if name in ("pg_name", "comm_axis", "precision"):
        return graph.strings(name)[0].astype(np.int64)
    if name == "involved_dim":
        return graph.bool_lists(name)[0].astype(np.int64)
    return np.where(graph.has(name), graph.ints(name), -1)


def _listed(graph: Graph, name: str, numbers: Ints) -> Ints:
    """Fill in the columns of an attribute of `LISTS`, and return the number of entries of each node."""
    codes, lists = graph.int_lists(name)
    first, size = LISTS[name]
    most = GEMMS if name == GEMM else 1
    table = np.zeros((len(lists) + 1, size * most), np.int64)
    many = np.zeros(len(lists) + 1, np.int64)
    for at, values in enumerate(lists):
        if len(values) % size or not size <= len(values) <= size * most:
            where = graph.node(int(np.argmax(codes == at)))
            raise InputError(
                f"{where}: {name} has {len(values)} numbers, expected {size} for each of at most {most}"
            )
        table[at, : len(values)] = values
        many[at] = len(values) // size
    numbers[:, first : first + size * most] = table[codes]
    return many[codes]


def _symbol(graph: Graph, position: int, name: str) -> Symbol:
    layout: list[Entry] = []
    found = graph.attrs(position)
    along = any(key == "comm_axis" for key, _, _ in found)
    for key, kind, value in found:
        if key in CONSTANTS or (along and key in ("comm_src", "comm_dst")):
            layout.append((key, kind, tuple(value) if isinstance(value, list) else value))
        elif key in VALUES:
            layout.append((key, kind, None))
        elif key in LISTS:
            layout.append((key, kind, len(value) // LISTS[key][1]))
    return Symbol(int(graph.types[position]), name, tuple(layout))


def same(one: Tokens, other: Tokens) -> bool:
    """Return whether two sequences are equal."""
    values: list[Any] = [
        np.array_equal(a, b) for a, b in zip(vars(one).values(), vars(other).values(), strict=True)
    ]
    return all(values)
