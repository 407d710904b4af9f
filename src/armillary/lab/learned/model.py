"""The statistical model: programs, variants of pieces, references and numbers, each learned from a corpus.

A trace is made in four steps, each conditional on those before: the program of each class of ranks (skeletons with
counts), the variant of each role, the references of each token, and its numbers.
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
    """One of the shapes that programs of a kind have.

    Attributes:
        step: Template of blocks.
        times: Rules of its counts.
        blocks: Rules of the counts of every block.
        counters: For every block, the name of the counter of its microbatches; "": it has none (label -1).
        counted: Whether these counters give the microbatches of all sequences of the corpus.
    """

    step: Step
    times: list[Rule]
    blocks: dict[Block, list[Rule]]
    counters: dict[Block, str]
    counted: bool = True

    def microbatches(self, blocks: Sequence[Block]) -> list[int]:
        """Return the microbatch of every block of a sequence."""
        # Blocks with the same counter share one count: the k-th of them, whatever its other roles, is
        # microbatch k.
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
        blocks: Templates of blocks.
        shapes: Shapes of the step.
        tree: Tree to the shape.
        classes: Number of sequences of this kind in the corpus.
        layered: Whether their stages have one layer (0) or several (1): with one, nothing shows how layers follow.
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
        symbols: Symbols of each variant.
        tree: Tree to the variant.
        loose: Whether the pieces are loose.
        waits: References of each token, for all variants.
        places: Tree from surroundings to a place, see `places`.
        numbers: Entries of each place.
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
        column: The column.
        sums: Tree to the sum of monomials that it is; ``variant`` is an additional condition.
        rule: Rule of a small number that is a count; None: it is a sum.
        choice: Tree to a small number that no rule explains; None: a rule or a sum does.
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
        spread: Standard deviation of the logarithm of the residual.
    """

    ptr: Ints
    coefficients: Floats
    exponents: Floats
    error: Floats
    spread: Floats

    def values(self, logarithms: Floats) -> Floats:
        """Return the value of every sum under one condition, given the logarithms of the variables."""
        terms = np.exp(self.exponents @ logarithms) * self.coefficients
        # Every sum has a term (checked when a file is read): reduceat would give an empty one the next sum's
        # first term.
        found: Floats = np.add.reduceat(terms, self.ptr[:-1]) if len(terms) else terms
        return found


@dataclass
class StatisticalModel:
    """The statistical model.

    Attributes:
        vocabulary: Symbols.
        programs: Programs by kind, see `program_of`.
        roles: Variants by role.
        sums: Sums of all numbers.
        domain: Values of each condition in the corpus: words, or least and greatest number and whether it varies.
        about: Description of the training data.
        measured: Traces of files, whose programs are reproduced unchanged.
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
