"""A corpus as training examples of a network: programs with their counts, and pieces with the choices in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.lab.learned.conditions import Value, of_class, program_of
from armillary.lab.learned.contexts import surroundings
from armillary.lab.learned.corpus import Corpus
from armillary.lab.learned.expressions import library, table_of
from armillary.lab.learned.monomials import logarithms_of
from armillary.lab.learned.neural.grammar import Written, write
from armillary.lab.learned.neural.lexicon import Group, Lexicon
from armillary.lab.learned.packed import Packed
from armillary.lab.learned.pieces import Piece, loose_symbols, pieces_of
from armillary.lab.learned.reference_kernel import COUNTED
from armillary.lab.learned.skeletons import find_skeletons
from armillary.lab.learned.waits import plain

_EXACT = 1e-6


@dataclass(eq=False)
class PieceExample:
    """A piece in a class.

    Attributes:
        at: Number of its class.
        role: Token of its role.
        near: Numbers of its surroundings.
        symbols: Symbols of its tokens.
        choices: For each choice: position, first candidate, number of candidates, and those that are right.
        residuals: For each residual: position, number of the residual, and its value divided by the scale.
    """

    at: int
    role: int
    near: list[int]
    symbols: list[int]
    choices: list[tuple[int, int, int, list[int]]] = field(default_factory=list)
    residuals: list[tuple[int, int, float]] = field(default_factory=list)


@dataclass(eq=False)
class Examples:
    """All examples of a corpus.

    Attributes:
        conditions: Condition of every class of ranks.
        record: Number of the trace of every class.
        programs: Program of every class.
        pieces: Distinct pieces of all classes.
        values: Values of the expressions of counts, (expressions, classes).
    """

    conditions: list[dict[str, Value]]
    record: list[int]
    programs: list[list[Written]]
    pieces: list[PieceExample]
    values: NDArray[np.int64]


def cut(corpus: Corpus) -> tuple[list[dict[str, Value]], list[int], list[tuple[Packed, list[Piece]]]]:
    """Return conditions, numbers of traces, and pieces of all classes of ranks of the generated traces."""
    made = [(at, record) for at, record in enumerate(corpus.records) if not record.rank_graph]
    # Over all traces: what is loose in one is cut off in all, so that pieces are the same everywhere.
    loose = loose_symbols((each for _, record in made for each in record.classes), corpus.vocabulary)
    conditions, owner, parts = [], [], []
    for at, record in made:
        for stage, packed in enumerate(record.classes):
            conditions.append(of_class(record.condition, stage))
            owner.append(at)
            parts.append((packed, pieces_of(packed, corpus.vocabulary, loose)))
    return conditions, owner, parts


def programs_of(
    conditions: Sequence[Mapping[str, Value]], pieces: Sequence[Sequence[Piece]]
) -> list[list[Written]]:
    """Return the programs of all classes; those of one kind are written with the same few templates."""
    kinds: dict[Any, list[int]] = defaultdict(list)
    for at, condition in enumerate(conditions):
        kinds[program_of(condition)].append(at)
    found: list[list[Written]] = [[] for _ in conditions]
    for members in kinds.values():
        # As the statistical model does, so that both see the same blocks and counts.
        skeletons, own = find_skeletons([pieces[at] for at in members])
        for at, skeleton in zip(members, own, strict=True):
            found[at] = write(skeleton, skeletons)
    return found


def examples_of(
    parts: Sequence[tuple[Packed, list[Piece]]],
    conditions: list[dict[str, Value]],
    record: list[int],
    programs: list[list[Written]],
    lexicon: Lexicon,
) -> Examples:
    """Return the examples of classes."""
    sums = lexicon.base.sums
    logarithms = logarithms_of(conditions)
    pieces = []
    for at, (packed, own) in enumerate(parts):
        values = sums.values(logarithms[at])
        around = surroundings(
            [each.role for each in own], [each.loose for each in own], [each.microbatch for each in own]
        )
        known: set[tuple[str, tuple[str, ...]]] = set()
        for piece, near in zip(own, around, strict=True):
            # The same role in the same surroundings of a class has the same choices: one example is enough.
            if (piece.role, near) not in known:
                known.add((piece.role, near))
                pieces.append(_piece(at, piece, near, packed, conditions[at], values, lexicon))
    table = table_of(library(), conditions)
    return Examples(conditions, record, programs, pieces, table)


def _piece(
    at: int,
    piece: Piece,
    near: tuple[str, ...],
    packed: Packed,
    condition: Mapping[str, Value],
    values: NDArray[np.float64],
    lexicon: Lexicon,
) -> PieceExample:
    symbols = list(piece.variant)
    found = PieceExample(at, lexicon.tokens[piece.role], lexicon.surroundings(near), symbols)
    span = slice(piece.first, piece.first + len(symbols))
    for position, (symbol, which) in enumerate(zip(symbols, packed.reference[span].tolist(), strict=True)):
        full = packed.references[which]
        lists = plain(full)
        group = lexicon.references[piece.role, symbol]
        _choose(found, position, group, [group.references.index(lists)])
        for place, (form, _, count) in enumerate(full):
            if form in COUNTED:
                own = lexicon.tails[piece.role, symbol, lists, place]
                _choose_number(found, position, own, count, condition, values)
    numbers = packed.rows[packed.row[span], 1:]
    for position, column, group in lexicon.items(piece.role, symbols):
        _choose_number(found, position, group, int(numbers[position, column]), condition, values)
    return found


def _choose(example: PieceExample, position: int, group: Group, right: list[int]) -> None:
    if len(group) > 1:
        example.choices.append((position, group.first, len(group), right))


def _choose_number(
    example: PieceExample,
    position: int,
    group: Group,
    actual: int,
    condition: Mapping[str, Value],
    sums: NDArray[np.float64],
) -> None:
    if len(group) == 1 and group.residual < 0:
        return
    made = np.array([formula.value(condition, sums) for formula in group.formulas], np.float64)
    error = np.abs(made - actual)
    # Every formula that rounds to the number is right; if none does, the nearest are.
    right = np.flatnonzero(error <= max(0.5, _EXACT * abs(actual), float(error.min()))).tolist()
    _choose(example, position, group, right)
    if group.residual >= 0 and actual > 0 and made[right[0]] > 0:
        left = float(np.log(actual / made[right[0]])) / group.scale
        # Clipped at 3 standard deviations, as `Decoder.residual` does.
        example.residuals.append((position, group.residual, max(-3.0, min(3.0, left))))
