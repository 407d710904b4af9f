"""Codes for texts that occur many times, such as the names of nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from armillary.base import jit
from armillary.trace.columns import Columns

I64 = NDArray[np.int64]

KERNEL = "armillary.trace.text_kernel"

COMPILED_FROM = 50_000
"""Texts from which the compiled kernel wins over a dictionary, loading Numba included."""

FEW = 100
"""Below so many texts, each is decoded without looking for repeats first."""

_NUMBER = re.compile(rb"[0-9]+")


def intern(columns: Columns, strings: I64, mode: jit.Mode | None = None) -> tuple[I64, I64]:
    """Return a code for every string of a batch, equal where the bytes are, and the first string of each code.

    Args:
        columns: the batch.
        strings: which of its strings; codes are in the order of first use.
        mode: "compiled" for the kernel, "interpreted" for a dictionary; by default the faster one.
    """
    if mode == "compiled" or (mode is None and len(strings) >= COMPILED_FROM):
        return _intern(columns.string_ptr, columns.pool, strings)
    if len(strings) < FEW:
        return _look_up(columns.raws(strings), strings)
    # Texts that were packed once are one string: look at each once.
    used, inverse = np.unique(strings, return_inverse=True)
    codes, _ = _look_up(columns.raws(used), used)
    of_string = codes[inverse]
    # Codes above are in the order of string numbers: renumber by first use.
    _, first = np.unique(of_string, return_index=True)
    order = np.argsort(first, kind="stable")
    number = np.empty(len(first), np.int64)
    number[order] = np.arange(len(first))
    return number[of_string], strings[first[order]]


def _intern(ptr: I64, pool: NDArray[np.uint8], strings: I64) -> tuple[I64, I64]:
    n = len(strings)
    # At most half full, so that probing stays short.
    table = np.zeros(1 << (2 * n).bit_length(), dtype=np.int64)
    hashes, first, codes = (np.empty(n, dtype=np.int64) for _ in range(3))
    found = jit.load(KERNEL, "compiled").intern(ptr, pool, strings, table, hashes, first, codes)
    return codes, strings[first[:found]]


def _look_up(texts: Sequence[bytes], strings: I64) -> tuple[I64, I64]:
    index: dict[bytes, int] = {}
    codes = np.array([index.setdefault(text, len(index)) for text in texts], dtype=np.int64)
    first = np.zeros(len(index), dtype=np.int64)
    # Reversed, so that the first occurrence is written last and stays.
    first[codes[::-1]] = strings[::-1]
    return codes, first


def fold_numbers(columns: Columns, strings: I64) -> tuple[I64, list[str]]:
    """Return a code for every string, equal where the texts differ only in numbers, and the texts with ``#`` for these.

    ``layer.12.mlp`` and ``layer.7.mlp`` are both ``layer.#.mlp``.
    """
    codes, first = intern(columns, strings)
    if len(first) < COMPILED_FROM:
        # Few texts: a regular expression on each is faster than the array form below.
        index: dict[str, int] = {}
        folded = [_NUMBER.sub(b"#", raw).decode() for raw in columns.raws(first)]
        merged = np.array([index.setdefault(text, len(index)) for text in folded], dtype=np.int64)
        return merged[codes], list(index)
    ptr, text = columns.string_ptr, columns.pool
    size = ptr[first + 1] - ptr[first]
    offsets = np.zeros(len(first) + 1, dtype=np.int64)
    np.cumsum(size, out=offsets[1:])
    text = text[np.repeat(ptr[first] - offsets[:-1], size) + np.arange(offsets[-1])]
    # A run of digits becomes one "#": its first digit is replaced, the others are dropped.
    digit = (text >= ord("0")) & (text <= ord("9"))
    again = np.zeros(len(text), dtype=np.bool_)
    again[1:] = digit[1:] & digit[:-1]
    # A digit that begins a text continues no run, whatever the text before it ends with.
    again[offsets[:-1][size > 0]] = False
    kept = np.zeros(len(text) + 1, dtype=np.int64)
    np.cumsum(~again, out=kept[1:])
    text[digit] = ord("#")
    ptr, text = kept[offsets], text[~again]
    merged, examples = _intern(ptr, text, np.arange(len(first)))
    return merged[codes], [text[ptr[at] : ptr[at + 1]].tobytes().decode() for at in examples.tolist()]
