"""Counts as small integer expressions of conditions, e.g. min(stages_left + 1, microbatches).

All expressions of a library are tried. If several explain the examples, the one is chosen that explains most counts of
the same kind elsewhere in the corpus (the counts of a message among those of all messages), of those the one that
explains most other counts, and of those the shortest. That keeps a 4 from being taken for the number of layers, and a
1 for something that is 1 only in the examples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.lab.learned.archive import whole
from armillary.lab.learned.conditions import Value

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
VARIABLES = ("microbatches", "stage_layers", "stages_left", "stage", "pp", "layers", "cp", "tp", "dp")
QUESTIONS = (
    "stage_layers",
    "microbatches",
    "stages_left",
    "stage",
    "spare",
    "pp",
    "replicas",
    "expert_replicas",
    "ep",
    "tp",
    "cp",
    "dp",
    "etp",
    "one_dp",
    "one_tp",
)
"""Variables that the question of a rule may compare."""
Expression = tuple[str, str, str, int, int]
"""Form, two variables ("" where it has none) and two constants."""
_EQUAL = 1e-9
_CONSTANT = 99
_MOST = 2**53
_FORMS = ("constant", "plus", "at_most", "at_least", "lacking", "double", "difference", "least", "product")


def library() -> list[Expression]:
    """Return all expressions, short ones first."""
    # The order is a tie rule: of expressions that explain as much, the first is taken, so short and small ones lead.
    found: list[Expression] = [("constant", "", "", c, 0) for c in range(9)]
    found += [("plus", v, "", c, 0) for v in VARIABLES for c in (0, -1, 1, -2, 2, -3, 3)]
    for v in VARIABLES[:5]:
        found += [("at_most", v, "", c, d) for c in (0, -1, -2) for d in (1, 2, 3)]
        found += [("at_least", v, "", c, d) for c in (-1, -2, -3) for d in (0, 1, 2)]
        found += [("lacking", v, "", c, 0) for c in (1, 2, 3)]
    found += [("double", v, "", c, 0) for v in VARIABLES[:5] for c in range(-3, 5)]
    # Two variables only of those five, which are what the counts of a pipeline depend on.
    for v, u in permutations(VARIABLES[:5], 2):
        found += [("difference", v, u, c, d) for c in (0, -1, 1, -2, 2) for d in (0, 1, 2)]
        if v < u:  # min is symmetric
            found += [("least", v, u, c, d) for c in (0, 1, -1, 2, -2) for d in (0, 1, -1, 2, -2)]
        found += [("product", v, u, c, d) for c in (0, 1) for d in (0, -1, 1, 2)]
    return found


def value_of(expression: Expression, condition: Mapping[str, Value]) -> int:
    """Return the value under a condition."""
    columns = {v: np.array([int(condition.get(v, 0))], np.int64) for v in expression[1:3] if v}
    return int(_values(expression, columns, 1)[0])


def table_of(expressions: Sequence[Expression], conditions: Sequence[Mapping[str, Value]]) -> Ints:
    """Return the values of all expressions under all conditions, (expressions, conditions)."""
    columns = {v: np.array([int(each.get(v, 0)) for each in conditions], np.int64) for v in VARIABLES}
    found: Ints = np.stack([_values(each, columns, len(conditions)) for each in expressions])
    return found


def _values(expression: Expression, columns: Mapping[str, Ints], n: int) -> Ints:
    form, v, u, c, d = expression
    if form == "constant":
        constant: Ints = np.full(n, c, np.int64)
        return constant
    if form == "plus":
        return columns[v] + c
    if form == "at_most":
        most: Ints = np.minimum(columns[v] + c, d)
        return most
    if form == "at_least":
        under: Ints = np.maximum(columns[v] + c, d)
        return under
    if form == "lacking":
        lacking: Ints = np.maximum(c - columns[v], d)
        return lacking
    if form == "difference":
        difference: Ints = np.maximum(d, columns[v] - columns[u] + c)
        return difference
    if form == "least":
        least: Ints = np.minimum(columns[v] + c, columns[u] + d)
        return least
    if form == "double":
        return 2 * columns[v] + c
    return columns[v] * (columns[u] + c) + d


def to_text(expression: Expression) -> str:
    """Return an expression as text."""
    form, v, u, c, d = expression
    if form == "constant":
        return str(c)
    first = f"{v}{c:+d}" if c else v
    if form == "plus":
        return first
    if form in ("at_most", "at_least"):
        return f"{'min' if form == 'at_most' else 'max'}({d}, {first})"
    if form == "lacking":
        return f"max({d}, {c}-{v})"
    if form == "double":
        return f"2 {first}"
    if form == "difference":
        return f"max({d}, {v} - {u}{f'{c:+d}' if c else ''})"
    if form == "least":
        return f"min({first}, {u}{f'{d:+d}' if d else ''})"
    end = f"{d:+d}" if d else ""
    return f"{v} x ({u}{c:+d}){end}" if c else f"{v} x {u}{end}"


@dataclass(frozen=True)
class Rule:
    """An expression, or one of two rules by whether a variable exceeds a number.

    Attributes:
        expression: The expression of a rule without a question.
        variable: Variable of the question.
        above: Number that it must exceed for `yes`.
        yes: Rule if it does.
        no: Rule if it does not.
        exact: Whether the rule explains all examples.
    """

    expression: Expression = ("constant", "", "", 0, 0)
    variable: str = ""
    above: int = 0
    yes: Rule | None = None
    no: Rule | None = None
    exact: bool = True

    def for_(self, condition: Mapping[str, Value]) -> Rule:
        """Return the rule without a question that applies under a condition."""
        rule = self
        while rule.yes is not None and rule.no is not None:
            rule = rule.yes if int(condition.get(rule.variable, 0)) > rule.above else rule.no
        return rule

    def value(self, condition: Mapping[str, Value]) -> int:
        """Return the value under a condition."""
        return value_of(self.for_(condition).expression, condition)

    def to_json(self) -> Any:
        """Return the rule as plain JSON values."""
        if self.yes is None or self.no is None:
            return [*self.expression, self.exact]
        return [self.variable, self.above, self.yes.to_json(), self.no.to_json()]

    @classmethod
    def from_json(cls, found: Any) -> Rule:
        """Return the rule that `to_json` described."""
        if len(found) == 4:
            if found[0] not in QUESTIONS:
                raise ValueError(found[0])
            return cls(
                variable=found[0],
                above=whole(found[1], "above", -_MOST, _MOST),
                yes=cls.from_json(found[2]),
                no=cls.from_json(found[3]),
            )
        form, v, u, c, d, exact = found
        if form not in _FORMS or v not in ("", *VARIABLES) or u not in ("", *VARIABLES):
            raise ValueError(form)
        constants = whole(c, "constant", -_CONSTANT, _CONSTANT), whole(d, "constant", -_CONSTANT, _CONSTANT)
        return cls((form, v, u, *constants), exact=bool(exact))

    def __str__(self) -> str:
        if self.yes is None or self.no is None:
            return to_text(self.expression) + ("" if self.exact else " (about)")
        return f"({self.yes} if {self.variable} > {self.above} else {self.no})"


class Explained:
    """The expressions that explain each count of a corpus."""

    def __init__(self, conditions: Sequence[Mapping[str, Value]]) -> None:
        """Evaluate the library under all conditions."""
        self.conditions = conditions
        self.expressions = library()
        self.table = table_of(self.expressions, conditions)
        self.columns = {
            v: np.array([int(each.get(v, 0)) for each in conditions], np.int64) for v in VARIABLES
        }
        self.votes = np.zeros(len(self.expressions))
        self.alike: dict[Hashable, Floats] = defaultdict(lambda: np.zeros(len(self.expressions)))
        self.asked = {v: np.array([int(each.get(v, 0)) for each in conditions], np.int64) for v in QUESTIONS}

    def _candidates(self, rows: Ints, counts: Ints) -> Ints:
        return np.flatnonzero((self.table[:, rows] == counts[None, :]).all(1))

    def vote(self, rows: Ints, counts: Ints, kinds: Sequence[Hashable] = ()) -> None:
        """Add a vote, split evenly, for the expressions that give these counts under the conditions of these rows.

        Args:
            rows: Numbers of conditions.
            counts: Count under each.
            kinds: Kinds of these counts, the narrowest first.
        """
        found = self._candidates(rows, counts)
        if not len(found):
            return
        for kind in kinds:
            self.alike[kind][found] += 1 / len(found)
        # A count that never varies is explained by many expressions by chance: it says nothing about other kinds.
        if len(np.unique(counts)) > 1:
            self.votes[found] += 1 / len(found)

    def rule(
        self,
        rows: Ints,
        counts: Ints,
        kinds: Sequence[Hashable] = (),
        *,
        steady: bool = False,
        depth: int = 3,
    ) -> Rule:
        """Return the rule that explains counts; if none does, the expression that explains most of them.

        Args:
            rows: Numbers of conditions.
            counts: Count under each.
            kinds: Kinds of these counts, the narrowest first.
            steady: Whether counts that are the same in all examples are constant, whatever others of their kind do.
            depth: Most questions in a row.
        """
        found = self._candidates(rows, counts)
        if len(found):
            return Rule(self.expressions[self._likely(rows, found, kinds, steady)])
        hits = (self.table[:, rows] == counts[None, :]).sum(1)
        best: tuple[int, str, int] = (-1, "", 0)
        for variable, values in self.asked.items():
            for above in np.unique(values[rows])[:-1].tolist()[:4] if depth else ():
                yes = values[rows] > above
                right = self.table[:, rows] == counts[None, :]
                score = int(right[:, yes].sum(1).max() + right[:, ~yes].sum(1).max())
                if score > best[0]:
                    best = (score, variable, above)
        # No question explains more examples than a single expression does.
        if best[0] <= hits.max():
            return Rule(self.expressions[int(np.argmax(hits))], exact=False)
        _, variable, above = best
        yes = self.asked[variable][rows] > above
        sides = [
            self.rule(rows[side], counts[side], kinds, steady=steady, depth=depth - 1) for side in (yes, ~yes)
        ]
        exact = all(side.exact for side in sides)
        return Rule(variable=variable, above=above, yes=sides[0], no=sides[1], exact=exact)

    def _likely(self, rows: Ints, found: Ints, kinds: Sequence[Hashable], steady: bool) -> int:
        """Return the most likely of the expressions `found`, each of which explains all examples."""
        if steady:
            found = self._constant(rows, found)
        for votes in (self.alike[kind] for kind in kinds if kind in self.alike):
            found = found[votes[found] > votes[found].max() - _EQUAL]
        found = self._constant(rows, found)
        return int(found[np.argmax(self.votes[found])])

    def _constant(self, rows: Ints, found: Ints) -> Ints:
        """Return the expressions without those of a variable that varies, if a constant is among them.

        A variable that varies in the examples without changing the count is no part of it.
        """
        # `found` is ascending and the constants come first in the library.
        if self.expressions[int(found[0])][0] != "constant":
            return found
        varying = {v for v in VARIABLES if len(np.unique(self.columns[v][rows])) > 1}
        return found[[varying.isdisjoint(self.expressions[at][1:3]) for at in found.tolist()]]
