"""Compact sequences of tokens: every distinct row of numbers and list of references is stored once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.lab.learned.tokens import Tokens
from armillary.lab.learned.vocabulary import AT, COLUMNS
from armillary.trace.columns import distinct_columns

Ints = NDArray[np.int64]
References = tuple[tuple[int, int, int], ...]
"""Form, symbol and count of each; see `reference_kernel`."""
LABELS = ("layer", "micro_batch")


@dataclass(frozen=True, eq=False)
class Packed:
    """The tokens of a class of ranks.

    Attributes:
        rows: Distinct symbols with their numbers, (rows, 1 + `COLUMNS`); the labels in them are 0.
        row: Row of every token, (n,).
        references: Distinct lists of references.
        reference: List of references of every token, (n,).
        labels: Layer and microbatch of every token, (2, n).
    """

    rows: Ints
    row: NDArray[np.int32]
    references: tuple[References, ...]
    reference: NDArray[np.int32]
    labels: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.row)

    @property
    def symbols(self) -> Ints:
        """Symbol of every token."""
        found: Ints = self.rows[self.row, 0]
        return found

    def column(self, name: str) -> Ints:
        """Return a column of numbers of all tokens."""
        if name in LABELS:
            labels: Ints = self.labels[LABELS.index(name)].astype(np.int64)
            return labels
        found: Ints = self.rows[self.row, 1 + AT[name]]
        return found

    def tokens(self) -> Tokens:
        """Return the sequence, unpacked."""
        numbers = self.rows[self.row, 1:]
        for name, values in zip(LABELS, self.labels, strict=True):
            numbers[:, AT[name]] = values
        sizes = np.array([len(each) for each in self.references], np.int64)
        table = np.array([entry for each in self.references for entry in each], np.int64).reshape(-1, 3)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        counts = sizes[self.reference]
        ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        # Place in `table` of every reference of every token: the start of its list plus its place in it.
        at = np.arange(ptr[-1]) + np.repeat(starts[self.reference] - ptr[:-1], counts)
        return Tokens(self.symbols, numbers, ptr, table[at, 0], table[at, 1], table[at, 2])


def pack(tokens: Tokens) -> Packed:
    """Return a compact form of a sequence."""
    labels = np.stack([tokens.column(name) for name in LABELS]).astype(np.int32)
    numbers = tokens.numbers.copy()
    # With the labels, which count up, nearly every row would be distinct; without them layers share their rows.
    numbers[:, [AT[name] for name in LABELS]] = 0
    table = np.concatenate([tokens.symbols[:, None], numbers], 1)
    first, row = distinct_columns(np.ascontiguousarray(table.T))
    form, named, count, ptr = (
        each.tolist() for each in (tokens.ref_form, tokens.ref_symbol, tokens.ref_count, tokens.ref_ptr)
    )
    known: dict[References, int] = {}
    reference = np.empty(len(tokens), np.int32)
    entries = list(zip(form, named, count, strict=True))
    for at in range(len(tokens)):
        # The order of references does not matter, so sorted lists are equal more often.
        key = tuple(sorted(entries[ptr[at] : ptr[at + 1]]))
        reference[at] = known.setdefault(key, len(known))
    rows = table[first] if len(first) else np.zeros((0, 1 + len(COLUMNS)), np.int64)
    return Packed(rows, row.astype(np.int32), tuple(known), reference, labels)
