"""The statistical model: programs, variants of pieces, references and numbers, each learned from a corpus.

A trace is made in four steps, each conditional on those before: the program of each class of ranks (skeletons with
counts), the variant of each role, what each token waits for, and its numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.lab.learned.conditions import Value
from armillary.lab.learned.expressions import Rule
from armillary.lab.learned.motifs import Template
from armillary.lab.learned.pieces import Variant
from armillary.lab.learned.records import Record
from armillary.lab.learned.skeletons import Block, Step
from armillary.lab.learned.tree import Tree
from armillary.lab.learned.vocabulary import Vocabulary
from armillary.lab.learned.waits import Token, Waits

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass
class Shape:
    """One way in which programs of a kind go.

    Attributes:
        step: Template of blocks.
        times: Rules of its counts.
        blocks: Rules of the counts of every block.
        counters: For every block what counts its microbatches; "": they have none (label -1).
        counted: Whether the microbatches of all sequences of the corpus are those that are counted so.
    """

    step: Step
    times: list[Rule]
    blocks: dict[Block, list[Rule]]
    counters: dict[Block, str]
    counted: bool = True

    def microbatches(self, blocks: Sequence[Block]) -> list[int]:
        """Return the microbatch of every block of a sequence."""
        turns: dict[str, int] = {}
        found = []
        for block in blocks:
            counter = self.counters[block]
            found.append(turns.get(counter, 0) if counter else -1)
            turns[counter] = found[-1] + 1
        return found


@dataclass
class Program:
    """The programs of one kind, see `program_of`.

    Attributes:
        blocks: Templates.
        shapes: Ways.
        tree: Which of them.
        classes: How many sequences of the corpus are of this kind.
        layered: Whether their stages have one layer (0) or several (1): programs of one do not show how several go.
    """

    blocks: list[Template[str]]
    shapes: list[Shape]
    tree: Tree
    classes: int
    layered: list[int] = field(default_factory=lambda: [0, 1])


NO_SUM = Tree()


@dataclass
class Variants:
    """The variants of a role.

    Attributes:
        symbols: Of each.
        tree: Which of them.
        loose: Whether its pieces are loose.
        waits: What each token waits for, whatever the variant.
        places: Which of the numbers, by surroundings, see `places`.
        numbers: Numbers by place.
    """

    symbols: list[Variant]
    tree: Tree
    loose: bool
    waits: dict[Token, Waits]
    places: Tree
    numbers: list[list[Entry]]


@dataclass
class Entry:
    """A column of a token that is not 0.

    Attributes:
        token: Name, kind and occurrence in its piece.
        column: Which.
        sums: Which sum of monomials it is; a condition more is ``variant``, see `variant_name`.
        rule: A small number that is a count; None: it is a sum.
        choice: A small number that no rule explains: a tree to it; None: one does.
    """

    token: Token
    column: int
    sums: Tree = NO_SUM
    rule: Rule | None = None
    choice: Tree | None = None


@dataclass
class Sums:
    """Sums of monomials, see `monomials.Sum`, as arrays.

    Attributes:
        ptr: Offsets of their terms.
        coefficients: (terms,).
        exponents: (terms, variables).
        error: Mean relative error on the corpus.
        spread: Standard deviation of the logarithm of what is left.
    """

    ptr: Ints
    coefficients: Floats
    exponents: Floats
    error: Floats
    spread: Floats

    def values(self, logarithms: Floats) -> Floats:
        """Return the value of every sum under one condition, given the logarithms of the variables."""
        terms = np.exp(self.exponents @ logarithms) * self.coefficients
        found: Floats = np.add.reduceat(terms, self.ptr[:-1]) if len(terms) else terms
        return found


@dataclass
class StatisticalModel:
    """All that is learned.

    Attributes:
        vocabulary: Symbols.
        programs: By kind, see `program_of`.
        roles: By name.
        sums: Of all numbers.
        domain: Values of each condition in the corpus: words, or least and greatest number and whether it varies.
        about: What it was trained on.
        measured: Traces of files, whose programs are kept as they are.
        spread: Quantiles of the logarithms of their durations between ranks, by operator.
        shared: Share of that variance which the tokens of a rank have in common.
    """

    vocabulary: Vocabulary
    programs: dict[tuple[Value, ...], Program]
    roles: dict[str, Variants]
    sums: Sums
    domain: dict[str, list[Value]]
    about: dict[str, Any] = field(default_factory=dict)
    measured: list[Record] = field(default_factory=list)
    spread: dict[str, list[float]] = field(default_factory=dict)
    shared: float = 0.0
