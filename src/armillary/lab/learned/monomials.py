"""Sizes as sums of few monomials of conditions, e.g. 2 microbatch sequence hidden + 2 hidden ffn / tp.

A single monomial is fitted by least squares of logarithms with rounded exponents. A sum is fitted by non-negative
least squares of relative errors over a library of products (Lawson and Hanson, *Solving Least Squares Problems*, 1974,
chapter 23), whose solutions use few of them. The rest is the residual.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from armillary.lab.learned.conditions import Value
from armillary.lab.learned.tree import Tree

Floats = NDArray[np.float64]
ABOVE = (
    "microbatch",
    "sequence",
    "hidden",
    "ffn",
    "vocabulary",
    "kv_heads",
    "heads",
    "head_size",
    "stage_layers",
    "experts",
    "top_k",
    "expert_size",
    "shared_experts",
)
"""Conditions that sizes grow with."""
BELOW = ("tp", "cp", "dp", "ep", "etp")
"""Conditions that divide sizes."""
LATE = ("kv_here", "routed")
"""Conditions that sizes grow with and that others (nearly) imply; the others are preferred."""
ROUTED = {"routed", "hidden", "expert_size"}
"""Factors of products with `routed`, which is divided by tp and cp already."""
OF = {"ep": "experts", "etp": "expert_size"}
"""Conditions that divide only products with the given other condition."""
OTHERS = ("stage", "pp", "microbatches", "layers")
VARIABLES = (*ABOVE, *BELOW, *LATE, *OTHERS)
GOOD = 1e-6
"""Relative error of a fit that is as good as exact: sizes are whole numbers, shards are rounded up."""
NOTHING = -80.0
"""In place of the logarithm of 0."""
SQUARED = ("hidden", "sequence", "heads")
"""Conditions whose square a product may have."""
_SEVERAL = {
    "stage": 0, "stages_left": 0, "replicas": 1, "tp": 1, "cp": 1, "experts": 0, "ep": 1, "etp": 1,
    "expert_replicas": 1, "shared_experts": 0, "one_dp": 0,
}  # fmt: skip
"""Numbers for which a question is whether they exceed this value."""
_EXACT = 1e-9
_MOST = 40
"""Most terms of a sum."""
_LARGEST = 4
"""Largest exponent of a monomial."""
_ROWS = 400
"""Most examples that a sum is fitted to; its error is that on all."""
_FEW = 4


@dataclass(frozen=True, eq=False)
class Sum:
    """A sum of monomials.

    Attributes:
        coefficients: (terms,).
        exponents: (terms, `VARIABLES`).
        error: Mean relative error on the examples.
        spread: Standard deviation of the logarithm of the residual.
    """

    coefficients: Floats
    exponents: NDArray[np.int64]
    error: float
    spread: float

    def values(self, logarithms: Floats) -> Floats:
        """Return the values at conditions, given the logarithms of `VARIABLES`, (conditions, variables)."""
        found: Floats = np.exp(logarithms @ self.exponents.T) @ self.coefficients
        return found

    def logarithm(self, logarithms: Floats, values: Floats) -> Floats:
        """Return the logarithms of values over those of the sum."""
        found: Floats = np.log(values / np.maximum(self.values(logarithms), 1e-300))
        return found

    def __str__(self) -> str:
        return " + ".join(
            " ".join(
                [f"{c:.6g}", *(f"{v}^{e}" if e != 1 else v for v, e in zip(VARIABLES, row, strict=True) if e)]
            )
            for c, row in zip(self.coefficients.tolist(), self.exponents.tolist(), strict=True)
        )


def logarithms_of(conditions: Sequence[Mapping[str, Value]]) -> Floats:
    """Return the logarithms of `VARIABLES`, (conditions, variables); `NOTHING` of 0, so that products vanish.

    Places count from 0 and are no factors: their logarithm is that of 1 at least.
    """
    rows = [[int(each.get(v, 1)) for v in VARIABLES] for each in conditions]
    table = np.array(rows, np.float64).reshape(-1, len(VARIABLES))
    none = (table <= 0) & np.array([v not in OTHERS for v in VARIABLES])
    return np.where(none, NOTHING, np.log(np.maximum(table, 1)))


class Fitter:
    """Fits sums to values under the conditions of a corpus."""

    def __init__(self, logarithms: Floats, conditions: Sequence[Mapping[str, Value]]) -> None:
        self.logarithms = logarithms
        varying = _independent(logarithms)
        # A product of many others, and what may be another name of tp.
        for at in (VARIABLES.index("routed"), VARIABLES.index("etp")):
            if at not in varying and len(np.unique(logarithms[:, at])) > 1:
                varying.append(at)
        # Tried from degree 1 on: a library of higher degree has products that fit few examples by chance.
        self.libraries = [_library(varying, degree) for degree in (1, 2, 3, 4)]
        self.questions = list(_questions(conditions))

    def fit(
        self,
        rows: NDArray[np.int64],
        values: Floats,
        variants: NDArray[np.int64],
        sums: list[Sum],
        depth: int = 6,
    ) -> Tree:
        """Return a tree to sums that explain positive values under the conditions of these rows.

        Where one sum leaves an error, the tree asks the question that explains most of the residual.

        Args:
            rows: Numbers of conditions.
            values: Values under them, positive.
            variants: Variant of the piece under each, an additional condition.
            sums: List to which the sums of the tree are appended.
            depth: Most questions in a row.
        """
        found = self._one(rows, values)
        if found.error > GOOD and depth and len(rows) >= 2 * _FEW:
            best = self._split(rows, found.logarithm(self.logarithms[rows], values), variants)
            if best is not None:
                key, value, yes = best
                # On a copy: the sums of both sides count only if the question is worth it.
                tried = list(sums)
                sides = [
                    self.fit(rows[side], values[side], variants[side], tried, depth - 1)
                    for side in (yes, ~yes)
                ]
                errors = [tried[at].error for at in range(len(sums), len(tried))]
                # A question must remove 30 % of the error, or it would only fit noise.
                if errors and np.mean(errors) < 0.7 * found.error:
                    sums[:] = tried
                    return Tree(key=key, value=value, yes=sides[0], no=sides[1])
        sums.append(found)
        return Tree(len(sums) - 1)

    def _one(self, rows: NDArray[np.int64], values: Floats) -> Sum:
        best = self._monomial(rows, values)
        # A single monomial is exact, or there are too few examples to tell sums apart.
        if best.error < GOOD or len(values) < _FEW:
            return best
        own = np.arange(len(rows))
        if len(own) > _ROWS:
            own = np.random.default_rng(0).choice(len(own), _ROWS, replace=False)
        for terms in self.libraries:
            # Divided by the values the target is 1 everywhere, so that squares of relative errors are minimised.
            scaled = np.exp(self.logarithms[rows[own]] @ terms.T) / values[own, None]
            found = nonnegative(scaled, np.ones(len(own)))
            used = np.flatnonzero(found > 0)
            if len(used):
                many = _judged(found[used], terms[used], self.logarithms[rows], values)
                best = min(best, many, key=lambda each: each.error)
            if best.error < GOOD:
                break
        return best

    def _split(
        self, rows: NDArray[np.int64], left: Floats, variants: NDArray[np.int64]
    ) -> tuple[str, Value, NDArray[np.bool_]] | None:
        """Return the question (key, value, answers) that explains most of the variance of the residual `left`."""
        asked = [(key, value, answer[rows]) for key, value, answer in self.questions]
        asked += [("variant", f"v{each}", variants == each) for each in np.unique(variants)]
        best, most = None, 1e-12
        for key, value, yes in asked:
            many = int(yes.sum())
            if _FEW <= many <= len(rows) - _FEW:
                gain = float(
                    left.var() - (many * left[yes].var() + (len(rows) - many) * left[~yes].var()) / len(rows)
                )
                if gain > most:
                    best, most = (key, value, yes), gain
        return best

    def _monomial(self, rows: NDArray[np.int64], values: Floats) -> Sum:
        logs, target = self.logarithms[rows], np.log(values)
        exponents = np.zeros(len(VARIABLES), np.int64)
        columns = [v for v in _independent(logs) if VARIABLES[v] not in OTHERS]
        if columns:
            matrix = np.column_stack([logs[:, columns], np.ones(len(rows))])
            # The logarithm of a monomial is linear in those of its variables; the last column is the coefficient.
            found = np.linalg.lstsq(matrix, target, rcond=None)[0]
            exponents[columns] = np.clip(np.rint(found[:-1]), -_LARGEST, _LARGEST)
        # The exponents were rounded, so the coefficient is fitted again.
        left = target - logs @ exponents
        return _judged(np.array([np.exp(left.mean())]), exponents[None, :], logs, values)


def _questions(conditions: Sequence[Mapping[str, Value]]) -> Iterator[tuple[str, Value, NDArray[np.bool_]]]:
    """Yield the questions that sizes may depend on: words, and whether there are several of something."""
    for key in dict.fromkeys(key for each in conditions for key in each):
        values = [each.get(key, 0) for each in conditions]
        if any(isinstance(value, str) for value in values):
            for word in sorted({str(value) for value in values})[1:]:  # one word follows from the others
                yield key, word, np.array([value == word for value in values], np.bool_)
    for key, above in _SEVERAL.items():
        yield key, above, np.array([int(each.get(key, 0)) > above for each in conditions], np.bool_)


def _judged(coefficients: Floats, exponents: NDArray[np.int64], logs: Floats, values: Floats) -> Sum:
    made = np.exp(logs @ exponents.T) @ coefficients
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = float(np.std(np.log(values / np.maximum(made, 1e-300))))
    return Sum(coefficients, exponents, float(np.mean(np.abs(made / values - 1))), spread)


def nonnegative(matrix: Floats, target: Floats) -> Floats:
    """Return the x >= 0 that minimises the norm of matrix @ x - target, by the active set method of Lawson and Hanson.

    It ends early with `_MOST` entries or when the largest error is below 1e-9.
    """
    # Columns of length 1 make gains comparable.
    norms = np.linalg.norm(matrix, axis=0)
    unit = matrix / norms
    x = np.zeros(matrix.shape[1])
    active: list[int] = []
    for _ in range(4 * _MOST):
        left = target - unit @ x
        if np.abs(left).max() < _EXACT or len(active) >= _MOST:
            break
        gain = unit.T @ left
        # The product that reduces the error most joins; those that are in cannot.
        gain[active] = -1
        best = int(np.argmax(gain))
        if gain[best] <= 1e-12:
            break
        active.append(best)
        while active:
            part = np.linalg.lstsq(unit[:, active], target, rcond=None)[0]
            if part.min() > 0:
                x[:] = 0
                x[active] = part
                break
            old = x[active]
            bad = part <= 0
            # The unconstrained solution has a negative entry: go towards it until the first entry reaches 0,
            # and drop what is 0 there.
            step = float(np.min(old[bad] / np.maximum(old[bad] - part[bad], 1e-300)))
            x[active] = old + step * (part - old)
            kept = [at for at in active if x[at] > 1e-12]
            x[[at for at in active if at not in kept]] = 0
            # Rounding left nothing at 0: drop the most negative, or the loop would not end.
            if len(kept) == len(active):
                kept.remove(active[int(np.argmin(part))])
            active = kept
    found: Floats = x / norms
    return found


def _independent(logs: Floats) -> list[int]:
    """Return the variables that are no product of powers of those before them."""
    kept: list[int] = []
    # Gram-Schmidt, beginning with the constant: the coefficient is free.
    basis = np.ones((len(logs), 1)) / np.sqrt(max(1, len(logs)))
    for at in range(logs.shape[1]):
        column = logs[:, at] - basis @ (basis.T @ logs[:, at])
        # Once more, since rounding leaves nearly dependent columns a remainder ("twice is enough").
        column -= basis @ (basis.T @ column)
        size = float(np.linalg.norm(column))
        if size > 1e-6 * np.sqrt(len(logs)):
            kept.append(at)
            basis = np.column_stack([basis, column / size])
    return kept


def _library(varying: Sequence[int], most: int) -> NDArray[np.int64]:
    """Return the exponents of all products of up to `most` variables over products of those that divide."""
    above = [at for at in varying if VARIABLES[at] in (*ABOVE, *LATE)]
    below = [at for at in varying if VARIABLES[at] in BELOW]
    rows = []
    for top in (each for degree in range(most + 1) for each in combinations_with_replacement(above, degree)):
        words = [VARIABLES[at] for at in top]
        if not _sensible(words):
            continue
        divide = [at for at in below if _divides(VARIABLES[at], words)]
        # Each subset of the variables that may divide this product.
        for mask in range(1 << len(divide)):
            row = np.bincount(top, minlength=len(VARIABLES)).astype(np.int64)
            row[[at for i, at in enumerate(divide) if mask >> i & 1]] -= 1
            rows.append(row)
    for at in varying:
        if VARIABLES[at] in OTHERS:
            rows.append(np.bincount([at], minlength=len(VARIABLES)).astype(np.int64))
    return np.stack(rows)


def _sensible(words: Sequence[str]) -> bool:
    """Return whether a product of these variables occurs in sizes."""
    once = all(word in SQUARED or words.count(word) == 1 for word in words)
    return once and ("routed" not in words or ROUTED.issuperset(words))


def _divides(word: str, words: Sequence[str]) -> bool:
    """Return whether a variable may divide a product of these."""
    if "routed" in words:
        return word == "etp"
    return word not in OF or OF[word] in words
