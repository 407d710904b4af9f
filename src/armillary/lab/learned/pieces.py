"""Pieces: the runs of tokens that a program repeats, such as one layer forward, and single tokens between them.

A piece extends as long as the labels of layer and microbatch stay the same. Tokens at the ends of some pieces that are
missing from otherwise equal ones (a gather of weights, a reduction of gradients, a message) are *loose*: pieces of
their own. The role of a piece is the name of its last kernel; pieces of one role are variants of each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from armillary.lab.learned.packed import Packed
from armillary.lab.learned.vocabulary import Vocabulary
from armillary.trace import NodeType

_ENDS = 3
"""Most tokens at an end that may be missing together: weights and experts have collectives of their own."""
Variant = tuple[int, ...]
"""Symbols of a piece."""


@dataclass(frozen=True)
class Piece:
    """Part of a sequence.

    Attributes:
        role: Its role.
        first: Index of its first token.
        variant: Its symbols.
        microbatch: Label of its tokens.
        layer: Label of its tokens.
        loose: Whether it is a single loose token.
    """

    role: str
    first: int
    variant: Variant
    microbatch: int
    layer: int
    loose: bool


def segments(packed: Packed) -> list[tuple[int, Variant]]:
    """Return (first token, symbols) of every longest run with one layer and microbatch."""
    if not len(packed):
        return []
    ends = np.flatnonzero((np.diff(packed.labels, axis=1) != 0).any(0)) + 1
    bounds = [0, *ends.tolist(), len(packed)]
    symbols = packed.symbols.tolist()
    return [(a, tuple(symbols[a:b])) for a, b in pairwise(bounds)]


def loose_symbols(classes: Iterable[Packed], vocabulary: Vocabulary) -> set[int]:
    """Return the symbols at the ends of some segments of a sequence that are missing from otherwise equal segments."""
    kinds, loose = vocabulary.kinds(), set()
    for packed in classes:
        known = {variant for _, variant in segments(packed)}
        while True:
            found = {
                end
                for each in known
                for many in range(1, min(_ENDS, len(each) - 1) + 1)
                for ends, rest in ((each[:many], each[many:]), (each[-many:], each[:-many]))
                # A kernel is work, not communication that comes and goes.
                if rest in known and all(kinds[end] != NodeType.COMP_NODE for end in ends)
                for end in ends
                if end not in loose
            }
            if not found:
                break
            loose |= found
            # Segments without what was found loose may now equal others, which reveals more: repeat until
            # nothing is new.
            known |= {stripped(each, loose)[1] for each in known}
    return loose


def stripped(variant: Variant, loose: set[int]) -> tuple[Variant, Variant, Variant]:
    """Return the loose tokens before, the tokens between (perhaps none), and the loose tokens after."""
    low, high = 0, len(variant)
    while low < high and variant[low] in loose:
        low += 1
    while high > low and variant[high - 1] in loose:
        high -= 1
    return variant[:low], variant[low:high], variant[high:]


def pieces_of(packed: Packed, vocabulary: Vocabulary, loose: set[int]) -> list[Piece]:
    """Return the pieces of a sequence."""
    found = []
    layer, batch = packed.labels.tolist()
    for first, variant in segments(packed):
        before, inside, after = stripped(variant, loose)
        at = first
        for part in (*((each,) for each in before), inside, *((each,) for each in after)):
            if part:
                single = len(part) == 1 and part[0] in loose
                found.append(Piece(role_of(part, vocabulary), at, part, batch[at], layer[at], single))
            at += len(part)
    return found


def role_of(variant: Variant, vocabulary: Vocabulary) -> str:
    """Return the name of the last kernel, or, where there is no kernel, name and group of the last token."""
    symbols = [vocabulary.symbols[at] for at in variant]
    kernels = [each.name for each in symbols if each.kind == NodeType.COMP_NODE]
    return kernels[-1] if kernels else f"{symbols[-1].name} {symbols[-1].group or ''}".rstrip()
