"""Small classifiers on NumPy: randomised trees, nearest neighbours, linear scores, and a regression."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
I64 = NDArray[np.int64]


def forest(known: Floats, labels: I64, asked: Floats, classes: int, seed: int, trees: int = 80) -> Floats:
    """Return scores, (asked, classes), of extremely randomised trees (Geurts, Ernst, Wehenkel, Mach. Learn. 63, 2006).

    Args:
        known: Features of the training samples, (n, features).
        labels: Their classes, (n,).
        asked: Features of the samples to classify, (m, features).
        classes: Number of classes.
        seed: Seed of the thresholds.
        trees: Number of trees.
    """
    draw = np.random.default_rng(seed)
    hot = np.eye(classes)[labels]
    scores = np.zeros((len(asked), classes))
    for _ in range(trees):
        _grow(known, hot, np.arange(len(known)), asked, np.arange(len(asked)), scores, draw)
    return scores / trees


def _grow(
    known: Floats,
    hot: Floats,
    mine: I64,
    asked: Floats,
    theirs: I64,
    scores: Floats,
    draw: np.random.Generator,
) -> None:
    """Grow a tree over the training samples `mine`, and pass the samples `theirs` down with it."""
    stack = [(mine, theirs)]
    # Features (with a random cut each) to choose from at a node.
    tried = max(1, 2 * int(np.sqrt(known.shape[1])))
    while stack:
        mine, theirs = stack.pop()
        if not len(theirs):
            continue
        total = hot[mine].sum(axis=0)
        best = None
        if len(mine) >= 4 and total.max() < len(mine):
            columns = draw.integers(0, known.shape[1], tried)
            values = known[np.ix_(mine, columns)]
            low, high = values.min(axis=0), values.max(axis=0)
            cut = low + (high - low) * draw.random(tried)
            left = (values < cut).astype(np.float64)
            inside = left.T @ hot[mine]
            count = np.maximum(inside.sum(axis=1), 1e-9)
            other = np.maximum(len(mine) - count, 1e-9)
            # Gini: the sum of squared class counts over the size is largest where both sides are pure.
            purity = (inside**2).sum(axis=1) / count + ((total - inside) ** 2).sum(axis=1) / other
            # A cut that leaves a side empty would not end.
            purity[(inside.sum(axis=1) < 1) | (inside.sum(axis=1) > len(mine) - 1)] = -1.0
            best = int(np.argmax(purity))
            if purity[best] < 0:
                best = None
        if best is None:
            scores[theirs] += total / len(mine)
            continue
        side = left[:, best] > 0
        go = asked[theirs, columns[best]] < cut[best]
        stack += [(mine[side], theirs[go]), (mine[~side], theirs[~go])]


def nearest(known: Floats, labels: I64, asked: Floats, classes: int, count: int = 9) -> Floats:
    """Return scores of the nearest neighbours in standardised features, weighted by 1 / distance."""
    known, asked = _standard(known, asked)
    # |a - b|² = |a|² + |b|² - 2ab; rounding may make it negative, and equal samples must not weigh infinitely.
    distance = np.sqrt(np.maximum((asked**2).sum(1)[:, None] + (known**2).sum(1) - 2 * asked @ known.T, 1e-9))
    near = np.argsort(distance, axis=1)[:, :count]
    weight = 1 / np.take_along_axis(distance, near, axis=1)
    scores: Floats = np.einsum("mk,mkc->mc", weight, np.eye(classes)[labels][near])
    return scores


def linear(known: Floats, labels: I64, asked: Floats, classes: int, ridge: float = 3.0) -> Floats:
    """Return scores of a linear discriminant: ridge regression on indicators."""
    known, asked = _standard(known, asked)
    hot = np.eye(classes)[labels]
    gram = known.T @ known + ridge * np.eye(known.shape[1])
    weights = np.linalg.solve(gram, known.T @ (hot - hot.mean(axis=0)))
    scores: Floats = asked @ weights + hot.mean(axis=0)
    return scores


def ordered(known: Floats, values: Floats, asked: Floats, labels: I64, classes: int) -> Floats:
    """Return scores of a regression on ordered values: how likely each class is, given the predicted value.

    Logarithms of sizes are nearly linear in those of totals. The ridge minimises the leave-one-out error (closed form:
    Allen, Technometrics 16, 1974); the predictions of a class are modelled as normal.

    Args:
        known: Features of the training samples, (n, features).
        values: Their values, (n,).
        asked: Features of the samples to classify, (m, features).
        labels: Classes of the training samples, (n,).
        classes: Number of classes.
    """
    known, asked = _standard(known, asked)
    left, scale, right = np.linalg.svd(known, full_matrices=False)
    mean, best = float(values.mean()), None
    for ridge in 10.0 ** np.arange(-2, 5):
        shrink = scale**2 / (scale**2 + ridge)
        fitted = left @ (shrink * (left.T @ (values - mean)))
        # Diagonal of the hat matrix, the mean included: residual / (1 - leverage) is the error without the sample.
        lever = (left**2 @ shrink) + 1 / len(values)
        out = values - (values - mean - fitted) / np.maximum(1 - lever, 1e-3)
        error = float(((out - values) ** 2).mean())
        if best is None or error < best[0]:
            best = error, out, right.T @ (scale / (scale**2 + ridge) * (left.T @ (values - mean)))
    assert best is not None
    _, out, weights = best
    count = np.maximum(np.bincount(labels, minlength=classes), 1)
    centre = np.bincount(labels, out, classes) / count
    spread = max(float(((out - centre[labels]) ** 2).mean()), 1e-12)
    # Log of class frequency times normal density, all classes with one variance.
    scores: Floats = np.log(count) - ((asked @ weights + mean)[:, None] - centre) ** 2 / (2 * spread)
    return scores


def _standard(known: Floats, asked: Floats) -> tuple[Floats, Floats]:
    mean, spread = known.mean(axis=0), known.std(axis=0)
    # Constant features say nothing and would divide by zero.
    used = spread > 1e-9
    return (known[:, used] - mean[used]) / spread[used], (asked[:, used] - mean[used]) / spread[used]
