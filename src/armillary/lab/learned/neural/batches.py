"""Examples as padded arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.lab.learned.neural.examples import Examples, PieceExample
from armillary.lab.learned.neural.grammar import Written
from armillary.lab.learned.neural.inputs import count_features
from armillary.lab.learned.neural.lexicon import Lexicon

Batch = dict[str, NDArray[Any]]
"""`tokens`, `condition`, `near` or `counts` as `network.hidden` takes them; `target` is the next token, -100: none.
Counts and choices have the flat position `…_at` and the right answers; see `programs` and `pieces`."""


def programs(
    examples: Examples, which: Sequence[int], condition: NDArray[np.float32], lexicon: Lexicon
) -> Batch:
    """Return a batch of programs; `count_right` marks the expressions that give a count, (counts, expressions)."""
    written = [examples.programs[at] for at in which]
    length = max(len(each) for each in written)
    tokens = np.zeros((len(which), length), np.int64)
    target = np.full((len(which), length), -100, np.int64)
    counts = np.full((len(which), length), -1, np.int64)
    places, right = [], []
    for row, (at, each) in enumerate(zip(which, written, strict=True)):
        names, values = encoded(each, lexicon)
        tokens[row, : len(each)] = names[:-1]
        target[row, : len(each)] = names[1:]
        # The count of a token is an input only from the next position on: at its own position it is what is predicted.
        counts[row, 2 : len(each)] = values[: len(each) - 2]
        for position, value in enumerate(values[:-1]):
            if value >= 0:
                # Position 0 is the start token.
                places.append(row * length + position + 1)
                right.append(examples.values[:, at] == value)
    return {
        "tokens": tokens, "condition": condition[list(which)], "counts": count_features(counts), "target": target,
        "count_at": np.array(places, np.int64), "count_right": np.array(right, np.bool_),
    }  # fmt: skip


def encoded(program: Sequence[Written], lexicon: Lexicon) -> tuple[list[int], list[int]]:
    """Return the numbers of the tokens, preceded by that of the start token, and the counts."""
    names = [lexicon.tokens["<program>"], *(lexicon.tokens[token] for token, _ in program)]
    return names, [count for _, count in program]


def pieces(examples: Sequence[PieceExample], condition: NDArray[np.float32], lexicon: Lexicon) -> Batch:
    """Return a batch of pieces.

    `choice` holds the candidates of every choice, padded, (choices, most); `choice_there` and `choice_right` mark those
    that are no padding and those that are right; `residual_at`, `residual` and `residual_value` belong together.
    """
    length = 1 + max(len(each.symbols) for each in examples)
    tokens = np.zeros((len(examples), length), np.int64)
    target = np.full((len(examples), length), -100, np.int64)
    choices: list[tuple[int, int, int, list[int]]] = []
    residuals: list[tuple[int, int, float]] = []
    for row, each in enumerate(examples):
        symbols = [lexicon.first_symbol + symbol for symbol in each.symbols]
        tokens[row, : len(symbols) + 1] = [each.role, *symbols]
        target[row, : len(symbols) + 1] = [*symbols, lexicon.tokens["<end>"]]
        # Position 0 is the role, so symbol `at` is read at at + 1.
        choices += [(row * length + at + 1, one, many, good) for at, one, many, good in each.choices]
        residuals += [(row * length + at + 1, which, left) for at, which, left in each.residuals]
    most = max((many for _, _, many, _ in choices), default=1)
    first = np.array([one for _, one, _, _ in choices], np.int64).reshape(-1, 1)
    sizes = np.array([many for _, _, many, _ in choices], np.int64).reshape(-1, 1)
    there = np.arange(most)[None, :] < sizes
    right = np.zeros((len(choices), most), np.bool_)
    for row, (_, _, _, good) in enumerate(choices):
        right[row, good] = True
    return {
        "tokens": tokens, "condition": condition[[each.at for each in examples]],
        "near": np.array([each.near for each in examples], np.int64), "target": target,
        "choice_at": np.array([at for at, _, _, _ in choices], np.int64),
        "choice": np.where(there, first + np.arange(most)[None, :], 0), "choice_there": there, "choice_right": right,
        "residual_at": np.array([each[0] for each in residuals], np.int64),
        "residual": np.array([each[1] for each in residuals], np.int64),
        "residual_value": np.array([each[2] for each in residuals], np.float32),
    }  # fmt: skip
