"""The choices that a network learns to make: tokens, lists of references, counts in them, and formulas of numbers.

All candidates come from the statistical library (`StatisticalModel`): its variants, references, and fitted sums and
rules. Its trees, which decide between them, are not used: that is what the network learns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from armillary.lab.learned.conditions import Value
from armillary.lab.learned.contexts import KEYS
from armillary.lab.learned.expressions import Rule
from armillary.lab.learned.model import Entry, StatisticalModel
from armillary.lab.learned.neural.grammar import MARKS, block_name
from armillary.lab.learned.packed import References
from armillary.lab.learned.tree import Tree
from armillary.lab.learned.vocabulary import AT, token_keys
from armillary.lab.learned.waits import Token, Waits


@dataclass(frozen=True)
class Formula:
    """A number under a condition: a sum of the library, a rule, or itself."""

    sum: int = -1
    rule: Rule | None = None
    constant: int = 0

    def value(self, condition: Mapping[str, Value], sums: NDArray[np.float64]) -> int:
        """Return the number; `sums` are the values of all sums under the condition."""
        if self.rule is not None:
            return self.rule.value(condition)
        return max(1, round(float(sums[self.sum]))) if self.sum >= 0 else self.constant


@dataclass
class Group:
    """Candidates of one choice.

    Attributes:
        first: Number of the first candidate among all.
        formulas: Candidates for a number or a count.
        references: Candidates for the references of a token.
        residual: Number of the residual of a number whose formulas leave an error; -1: none.
        scale: Standard deviation of that residual.
    """

    first: int
    formulas: list[Formula] = field(default_factory=list)
    references: list[References] = field(default_factory=list)
    residual: int = -1
    scale: float = 0.0

    def __len__(self) -> int:
        return len(self.formulas) or len(self.references)


class Lexicon:
    """Tokens and groups of candidates of a library, each with its number."""

    def __init__(self, base: StatisticalModel, blocks: int) -> None:
        """Number the choices of a library; `blocks` is the largest number of blocks of a program."""
        self.base = base
        self.roles = list(base.roles)
        self.tokens = {
            token: at
            for at, token in enumerate((*MARKS, *self.roles, *(block_name(each) for each in range(blocks))))
        }
        self.first_symbol = len(self.tokens)
        self.size = self.first_symbol + len(base.vocabulary)
        # Values of surroundings: none, the capped counts of `contexts.KEYS`, and roles.
        self.near = {value: at for at, value in enumerate(("", "0", "1", "2", *self.roles))}
        self.candidates = 0
        self.residuals = 0
        self.references: dict[tuple[str, int], Group] = {}
        self.tails: dict[tuple[str, int, References, int], Group] = {}
        self.numbers: dict[str, dict[Token, list[tuple[int, Group]]]] = {}
        for role, found in base.roles.items():
            for symbols in found.symbols:
                self._refer(role, symbols, found.waits)
            self.numbers[role] = self._columns(found.numbers)
        # Numbered last, when all groups are complete: the candidates of a group are consecutive.
        for group in self.groups():
            group.first = self.candidates
            self.candidates += len(group)

    def groups(self) -> list[Group]:
        """Return all groups, in the order of their candidates."""
        numbers = [group for own in self.numbers.values() for columns in own.values() for _, group in columns]
        return [*self.references.values(), *self.tails.values(), *numbers]

    def surroundings(self, near: Sequence[str]) -> list[int]:
        """Return the numbers of the surroundings of a piece; values that the corpus lacks count as ""."""
        return [at * len(self.near) + self.near.get(value, 0) for at, value in enumerate(near)]

    @property
    def near_size(self) -> int:
        """Number of distinct numbers that `surroundings` may return."""
        return len(KEYS) * len(self.near)

    def _refer(self, role: str, symbols: Sequence[int], waits: Mapping[Token, Waits]) -> None:
        for symbol, token in zip(symbols, token_keys(symbols, self.base.vocabulary), strict=True):
            own = waits[token]
            group = self.references.setdefault((role, symbol), Group(0))
            group.references += [each for each in own.lists if each not in group.references]
            for (which, place), rule in own.tails.items():
                _add(
                    self.tails.setdefault((role, symbol, own.lists[which], place), Group(0)),
                    Formula(rule=rule),
                )

    def _columns(self, numbers: Sequence[Sequence[Entry]]) -> dict[Token, list[tuple[int, Group]]]:
        found: dict[tuple[Token, int], Group] = {}
        seen: dict[tuple[Token, int], int] = {}
        sums = self.base.sums
        for entries in numbers:
            for entry in entries:
                group = found.setdefault((entry.token, entry.column), Group(0))
                seen[entry.token, entry.column] = seen.get((entry.token, entry.column), 0) + 1
                for formula in _formulas(entry):
                    _add(group, self._first_equal(formula))
                    # A formula that is exact to a thousandth needs no residual.
                    if formula.sum >= 0 and sums.error[formula.sum] > 1e-3:
                        group.scale = max(group.scale, float(sums.spread[formula.sum]))
        table: dict[Token, list[tuple[int, Group]]] = {}
        for (token, column), group in found.items():
            # In some places the number has no entry, which means 0.
            if seen[token, column] < len(numbers):
                _add(group, Formula())
            if group.scale:
                group.residual = self.residuals
                self.residuals += 1
            table.setdefault(token, []).append((column, group))
        return table

    def _first_equal(self, formula: Formula) -> Formula:
        """Return the formula with the first sum of the library that has the same terms."""
        if formula.sum < 0:
            return formula
        sums = self.base.sums
        if not hasattr(self, "_equal"):
            self._equal: dict[tuple[bytes, bytes], int] = {}
            self._same: list[int] = []
            for at in range(len(sums.error)):
                own = slice(int(sums.ptr[at]), int(sums.ptr[at + 1]))
                key = (np.round(sums.coefficients[own], 9).tobytes(), sums.exponents[own].tobytes())
                self._same.append(self._equal.setdefault(key, at))
        return Formula(self._same[formula.sum])

    def items(self, role: str, symbols: Sequence[int]) -> list[tuple[int, int, Group]]:
        """Return position, column and group of every number of a piece that is not always 0."""
        keys = token_keys(symbols, self.base.vocabulary)
        meant = self.base.vocabulary.symbols
        return [
            (at, column, group)
            for at, (key, symbol) in enumerate(zip(keys, symbols, strict=True))
            for column, group in self.numbers[role].get(key, ())
            if column in meant[symbol].columns or column == AT["duration_micros"]
        ]


def _add(group: Group, formula: Formula) -> None:
    if formula not in group.formulas:
        group.formulas.append(formula)


def _formulas(entry: Entry) -> list[Formula]:
    if entry.rule is not None:
        return [Formula(rule=entry.rule)]
    if entry.choice is not None:
        return [Formula(constant=value) for value in _leaves(entry.choice)]
    return [Formula(each) for each in _leaves(entry.sums)]


def _leaves(tree: Tree) -> list[int]:
    if tree.yes is None or tree.no is None:
        return [tree.choice]
    return [*_leaves(tree.yes), *_leaves(tree.no)]
