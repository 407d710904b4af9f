"""Whether two samples come from one distribution: Kolmogorov and Smirnov's test, a classifier, nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Test:
    """A two-sample test of Kolmogorov and Smirnov.

    Attributes:
        distance: Largest difference of the distribution functions.
        p: Probability of this distance or more if both are samples of one distribution, approximately.
    """

    __test__ = False  # pytest would collect a class of this name
    distance: float
    p: float


def kolmogorov_smirnov(one: NDArray[np.generic], other: NDArray[np.generic]) -> Test:
    """Compare two samples, neither of them empty.

    The p-value is that of the limit distribution with Stephens' correction (*J. R. Stat. Soc. B* 32, 1970).
    """
    a, b = np.sort(one), np.sort(other)
    both = np.concatenate([a, b])
    distance = np.abs(
        np.searchsorted(a, both, "right") / len(a) - np.searchsorted(b, both, "right") / len(b)
    ).max()
    size = np.sqrt(len(a) * len(b) / (len(a) + len(b)))
    x = (size + 0.12 + 0.11 / size) * float(distance)
    terms = np.arange(1, 101)
    # Below 0.2 the series converges slowly, and p is 1 to many digits.
    p = 1.0 if x < 0.2 else float(2 * np.sum((-1.0) ** (terms - 1) * np.exp(-2 * (terms * x) ** 2)))
    return Test(float(distance), min(1.0, max(0.0, p)))


def classifier_accuracy(
    one: Floats, other: Floats, *, folds: int = 5, ridge: float = 1.0, seed: int = 0
) -> float:
    """Return the share of vectors whose sample a classifier recognises; 0.5 is guessing.

    Lopez-Paz and Oquab, *Revisiting Classifier Two-Sample Tests*, ICLR 2017; the classifier is logistic regression on
    the features and their squares. Row k of both samples is for the same condition, so both are in the same fold.

    Args:
        one: (n, features).
        other: (n, features).
        folds: Number of parts for cross-validation.
        ridge: Weight of the squared coefficients.
        seed: Seed of the folds.
    """
    both = np.concatenate([one, other])
    scaled = standard(both, both)
    # Squares, since samples of equal mean may differ in variance; the column of ones is the intercept.
    inputs = np.concatenate([scaled, scaled**2, np.ones((len(both), 1))], 1)
    labels = np.repeat([0.0, 1.0], len(one))
    fold = np.tile(np.random.default_rng(seed).permutation(len(one)) % folds, 2)
    right = 0.0
    for part in range(folds):
        inside = fold != part
        weights = _logistic(inputs[inside], labels[inside], ridge)
        score = inputs[~inside] @ weights
        # What is exactly between counts half.
        right += float(np.sum(np.where(np.abs(score) < 1e-9, 0.5, (score > 0) == (labels[~inside] > 0.5))))
    return right / len(both)


def _logistic(inputs: Floats, labels: Floats, ridge: float, steps: int = 25) -> Floats:
    """Fit by Newton's method."""
    weights = np.zeros(inputs.shape[1])
    for _ in range(steps):
        # Clipped: exp would overflow, and a chance of exactly 0 or 1 gives no curvature.
        chance = 1 / (1 + np.exp(-np.clip(inputs @ weights, -30, 30)))
        gradient = inputs.T @ (chance - labels) + ridge * weights
        curvature = (inputs * (chance * (1 - chance))[:, None]).T @ inputs + ridge * np.eye(len(weights))
        step = np.linalg.solve(curvature, gradient)
        weights -= step
        if np.abs(step).max() < 1e-8:
            break
    return weights


def standard(vectors: Floats, like: Floats) -> Floats:
    """Return the vectors standardised by the mean and standard deviation of `like`."""
    spread = like.std(0)
    found: Floats = (vectors - like.mean(0)) / np.where(spread > 0, spread, 1.0)
    return found


def nearest_distances(vectors: Floats, known: Floats) -> Floats:
    """Return the Euclidean distance of each vector to the nearest known one, in standard deviations of those."""
    a, b = standard(vectors, known), standard(known, known)
    return np.array([float(np.sqrt(((b - row) ** 2).sum(1).min())) for row in a])
