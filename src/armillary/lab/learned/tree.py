"""A decision tree over conditions: CART with the Gini impurity (Breiman et al., 1984)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.lab.learned.archive import real, whole
from armillary.lab.learned.conditions import Value

_MOST = 2**53


@dataclass(frozen=True)
class Tree:
    """A leaf with a choice, or a question with two answers.

    Attributes:
        choice: For a leaf, the most frequent class of its examples.
        share: For a leaf, the share of its examples that have that class.
        key: The condition of the question.
        value: A word that it must equal, or a number that it must exceed.
        yes: Subtree if it does.
        no: Subtree if it does not.
    """

    choice: int = -1
    share: float = 1.0
    key: str = ""
    value: Value = 0
    yes: Tree | None = None
    no: Tree | None = None

    def choose(self, condition: Mapping[str, Value]) -> int:
        """Return the choice under a condition."""
        tree = self
        while tree.yes is not None and tree.no is not None:
            found = condition.get(tree.key, 0)
            if isinstance(tree.value, str):
                answer = found == tree.value
            else:
                answer = not isinstance(found, str) and found > tree.value
            tree = tree.yes if answer else tree.no
        return tree.choice

    def asked(self) -> set[str]:
        """Return the names of the conditions in the questions."""
        if self.yes is None or self.no is None:
            return set()
        return {self.key, *self.yes.asked(), *self.no.asked()}

    def to_json(self) -> Any:
        """Return the tree as plain JSON values."""
        if self.yes is None or self.no is None:
            return [self.choice, self.share]
        return [self.key, self.value, self.yes.to_json(), self.no.to_json()]

    @classmethod
    def from_json(cls, found: Any) -> Tree:
        """Return the tree that `to_json` described."""
        if len(found) == 2:
            return cls(whole(found[0], "choice", -_MOST, _MOST), real(found[1], "share", 0.0, 1.0))
        key, value, yes, no = found
        if not isinstance(key, str) or not isinstance(value, (int, float, str)):
            raise ValueError(key)
        return cls(key=key, value=value, yes=cls.from_json(yes), no=cls.from_json(no))  # type: ignore[arg-type]


def grow(conditions: Sequence[Mapping[str, Value]], classes: Sequence[int], depth: int = 12) -> Tree:
    """Fit a tree to examples; a leaf whose examples are all of one class is not split."""
    if len(set(classes)) <= 1:
        return Tree(classes[0] if len(classes) else -1)
    return Questions(conditions).grow(classes, np.arange(len(classes)), depth)


class Questions:
    """All questions about the conditions of examples, answered once for several trees."""

    def __init__(self, conditions: Sequence[Mapping[str, Value]]) -> None:
        """List the questions and their answers, (questions, examples)."""
        self.questions = list(_questions(conditions))
        self.answers = np.array([answer for _, _, answer in self.questions], np.bool_)

    def grow(self, classes: Sequence[int], rows: NDArray[np.int64], depth: int = 12) -> Tree:
        """Fit a tree to the examples of these rows, as `grow` does."""
        if len(set(classes)) <= 1:
            return Tree(classes[0] if len(classes) else -1)
        known, codes = np.unique(np.array(classes, np.int64), return_inverse=True)
        return self.grow_any(np.eye(len(known), dtype=np.bool_)[codes], known, rows, depth)

    def grow_any(
        self, right: NDArray[np.bool_], known: NDArray[np.int64], rows: NDArray[np.int64], depth: int = 12
    ) -> Tree:
        """Fit a tree to examples each of which may have several right choices.

        Args:
            right: Whether a choice is right, (rows, choices).
            known: The choices.
            rows: Numbers of the examples.
            depth: Most questions in a row.
        """
        answers = self.answers[:, rows] if self.questions else np.zeros((0, len(rows)), np.bool_)
        return _grow(self.questions, answers, right, known, np.arange(len(rows)), depth)


def _questions(conditions: Sequence[Mapping[str, Value]]) -> Any:
    keys = dict.fromkeys(key for each in conditions for key in each)
    for key in keys:
        values = [each.get(key, 0) for each in conditions]
        if any(isinstance(value, str) for value in values):
            for word in sorted({str(value) for value in values}):
                yield key, word, np.array([value == word for value in values], np.bool_)
        else:
            column = np.array(values, np.int64)
            for least in np.unique(column)[:-1].tolist():
                yield key, least, column > least


def _grow(
    questions: list[Any],
    answers: NDArray[np.bool_],
    right: NDArray[np.bool_],
    known: NDArray[np.int64],
    rows: NDArray[np.int64],
    depth: int,
) -> Tree:
    # Chosen anew at every node: the fewer choices its examples need, the purer it is.
    shown = _fewest(right[rows])
    total = shown.sum(0)
    best = int(np.argmax(total))
    leaf = Tree(int(known[best]), float(right[rows, best].mean()))
    if leaf.share == 1.0 or depth == 0 or not questions:
        return leaf
    part = answers[:, rows].astype(np.float64)
    # Class counts of both sides of all questions at once, (questions, choices).
    yes = part @ shown
    many, all_rows = yes.sum(1), len(rows)
    no = total[None, :] - yes
    with np.errstate(divide="ignore", invalid="ignore"):
        purity = (yes**2).sum(1) / many + (no**2).sum(1) / (all_rows - many)
    purity[(many == 0) | (many == all_rows)] = -1
    # Of questions that divide as well as each other the first is taken.
    at = int(np.argmax(purity > purity.max() - 1e-9 * all_rows))
    # The best question makes nothing purer, so asking would only fit noise.
    if purity[at] <= (total**2).sum() / all_rows + 1e-12 * all_rows and purity[at] < all_rows:
        return leaf
    key, value, _ = questions[at]
    mask = answers[at, rows]
    return Tree(
        key=key, value=value,
        yes=_grow(questions, answers, right, known, rows[mask], depth - 1),
        no=_grow(questions, answers, right, known, rows[~mask], depth - 1),
    )  # fmt: skip


def _fewest(right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return one right choice of each row, one-hot, (rows, choices), using few different choices.

    The choice that is right in most rows comes first, then that of most of the rest, and so on.
    """
    found = np.zeros(right.shape)
    left = np.ones(len(right), np.bool_)
    while left.any():
        # Greedy set cover.
        best = int(right[left].sum(0).argmax())
        mine = left & right[:, best]
        if not mine.any():
            break
        found[mine, best] = 1.0
        left &= ~mine
    return found
