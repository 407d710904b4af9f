"""Builds graphs from tokens with array operations, without an object for each node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.jit import Mode
from armillary.lab.learned.tokens import Tokens, parents_of
from armillary.lab.learned.vocabulary import AT, LISTS, NUMBERS, Vocabulary
from armillary.trace import Graph
from armillary.trace import columns as c
from armillary.trace.columns import KINDS, VERSION, Columns

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Layouts:
    """The attributes of every symbol of a vocabulary as arrays, and the strings and lists that they name.

    Attributes:
        ptr: Offsets of the attributes of a symbol, (symbols + 1,).
        name: Name of each attribute, index into `names`.
        kind: Field number of its kind.
        column: Column of the token that holds its value; -1: it is `value`; -2 and less: it is a list of `value`
            numbers that begin in column -2 - `column`.
        value: Bits of a constant.
    """

    vocabulary: Vocabulary
    ptr: Ints
    name: NDArray[np.int32]
    kind: NDArray[np.uint8]
    column: Ints
    value: Ints
    names: list[str]
    strings: tuple[bytes, ...]
    lists: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Layouts:
        """Lay out a vocabulary."""
        names: dict[str, int] = {}
        # Fixed places: the empty string, and the version that row 0 of every graph names.
        strings: dict[bytes, int] = {b"": 0, VERSION.encode(): 1}
        lists: dict[tuple[int, ...], int] = {}
        ptr, rows = [0], []
        for symbol in vocabulary.symbols:
            for name, kind, value in symbol.layout:
                where, bits = -1, 0
                if name in LISTS:
                    first, size = LISTS[name]
                    where, bits = -2 - first, size * value
                elif value is None:
                    where = AT[name]
                elif isinstance(value, str):
                    bits = strings.setdefault(value.encode(), len(strings))
                elif isinstance(value, tuple):
                    bits = lists.setdefault(tuple(map(int, value)), len(lists))
                else:
                    bits = int(value)
                rows.append((names.setdefault(name, len(names)), KINDS[kind], where, bits))
            ptr.append(len(rows))
        table = np.array(rows, np.int64).reshape(-1, 4).T
        return cls(
            vocabulary, np.array(ptr, np.int64), table[0].astype(np.int32), table[1].astype(np.uint8), table[2].copy(),
            table[3].copy(), list(names), tuple(strings), tuple(lists),
        )  # fmt: skip


def graph_of_tokens(
    tokens: Tokens, layouts: Layouts, source: str, *, strict: bool = False, mode: Mode = "compiled"
) -> Graph:
    """Return the graph of tokens; the k-th of them is node k.

    Raises:
        InputError: with `strict`, a reference names no earlier token; without, it is left out.
    """
    n, vocabulary = len(tokens), layouts.vocabulary
    data_ptr, data = parents_of(tokens, vocabulary, strict=strict, mode=mode)
    # Attributes: every node gets a copy of those of its symbol, then values from its own columns are filled in.
    counts = np.diff(layouts.ptr)[tokens.symbols]
    attr_ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    of_node = np.repeat(np.arange(n), counts)
    at = np.arange(attr_ptr[-1]) - attr_ptr[of_node] + layouts.ptr[tokens.symbols[of_node]]
    column, value = layouts.column[at], layouts.value[at]
    in_column = column >= 0
    value[in_column] = tokens.numbers[of_node[in_column], column[in_column]]
    items, list_ptr = _lists(tokens, layouts, column, value, of_node)
    name_at, strings = _names(tokens, layouts)
    # Row 0 is the metadata, rows 1 to n the nodes, and the last row only ends the offsets.
    rows = np.zeros((c.ROW_FIELDS, n + 2), np.int64)
    rows[c.NAME_AT, 0] = 1
    rows[c.ID, 1:-1] = np.arange(n)
    rows[c.TYPE, 1:-1] = vocabulary.kinds()[tokens.symbols]
    rows[c.DURATION, 1:-1] = tokens.numbers[:, AT["duration_micros"]]
    rows[c.NAME_AT, 1:-1] = name_at
    rows[c.DATA_AT, 1:] = data_ptr
    rows[c.ATTR_AT, 1:] = attr_ptr
    none: Ints = np.zeros(0, np.int64)
    columns = Columns(
        frame_ptr=np.array([0, n + 1], np.int64), unknown=np.zeros(1, np.int64), rows=rows, ctrl=none, data=data,
        attr_name=layouts.name[at], attr_kind=layouts.kind[at], attr_value=value, list_ptr=list_ptr, items=items,
        string_ptr=np.concatenate([[0], np.cumsum([len(text) for text in strings])]).astype(np.int64),
        pool=np.frombuffer(b"".join(strings), np.uint8), io=np.zeros((5, 0), np.int64),
        docs=np.zeros((2, 0), np.int64), names=layouts.names,
    )  # fmt: skip
    return Graph(columns, 0, source)


def _lists(tokens: Tokens, layouts: Layouts, column: Ints, value: Ints, of_node: Ints) -> tuple[Ints, Ints]:
    """Return the items and offsets of all lists; changes `value` of lists in columns to the numbers of their lists."""
    fixed = layouts.lists
    which = np.flatnonzero(column <= -2)
    sizes = value[which]
    ends = np.cumsum(sizes)
    # Flat index into all columns: list k covers -2 - column[k] and the sizes[k] - 1 columns after it.
    at = np.arange(sizes.sum()) + np.repeat(-2 - column[which] - ends + sizes, sizes)
    found = tokens.numbers[np.repeat(of_node[which], sizes), at]
    value[which] = len(fixed) + np.arange(len(which))
    lengths = np.concatenate([np.array([len(each) for each in fixed], np.int64), sizes])
    start = np.array([item for each in fixed for item in each], np.int64)
    return np.concatenate([start, found]), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _names(tokens: Tokens, layouts: Layouts) -> tuple[Ints, list[bytes]]:
    """Return the string of every token's name, and all strings."""
    symbols: Any = layouts.vocabulary.symbols
    strings = list(layouts.strings)
    # Names repeat in every layer: only the distinct ones become strings. A name's number is below NUMBERS.
    keys, inverse = np.unique(tokens.symbols * NUMBERS + tokens.numbers[:, AT["number"]], return_inverse=True)
    first = len(strings)
    for key in keys.tolist():
        symbol, number = divmod(key, NUMBERS)
        strings.append(symbols[symbol].name.replace("#", str(number)).replace("♯", "#").encode())
    return first + inverse.astype(np.int64), strings
