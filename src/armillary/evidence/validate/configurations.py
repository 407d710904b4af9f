"""Which configuration serves best at equal interactivity: how often the one that is predicted to be best nearly is.

A configuration is an engine, its precisions, devices and how these are divided. Over the number of clients each is a
curve of tokens per s of a device over tokens per s of a user. A question is asked at an interactivity where two or more
configurations of one model, device and lengths were measured: of these, which has the largest throughput?
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
QUESTIONS = 20
"""Interactivities of a cell, in equal ratios from the second least to the second largest that was measured."""
NEAR = 0.95
"""Share of the best throughput from which on a configuration is as good."""


@dataclass(frozen=True)
class Point:
    """A run of a configuration.

    Attributes:
        cell: Model, device and lengths: what a question is asked of.
        configuration: What may be chosen.
        clients: Of the closed loop.
        measured: Tokens per s of a user and of a device.
        predicted: The same.
    """

    cell: Hashable
    configuration: Hashable
    clients: int
    measured: tuple[float, float]
    predicted: tuple[float, float]


@dataclass(frozen=True)
class Answers:
    """What became of the questions.

    Attributes:
        good: Questions whose answer reaches `NEAR` of the best measured throughput.
        asked: All.
        cells: Of how many cells.
    """

    good: int
    asked: int
    cells: int


def answers(points: Iterable[Point]) -> Answers:
    """Return how often the configuration that is predicted to be best is nearly the best measured one."""
    cells: dict[Hashable, dict[Hashable, list[Point]]] = {}
    for point in points:
        cells.setdefault(point.cell, {}).setdefault(point.configuration, []).append(point)
    each = [_asked(found) for found in cells.values()]
    asked = [one for one in each if one]
    return Answers(sum(map(sum, asked)), sum(map(len, asked)), len(asked))


def _asked(configurations: Mapping[Hashable, Sequence[Point]]) -> list[bool]:
    """Return of each question of a cell whether its answer is good."""
    curves = [
        (_curve([(point.clients, point.measured) for point in points]),
         _curve([(point.clients, point.predicted) for point in points]))
        for points in configurations.values()
        if len({point.clients for point in points}) > 1
    ]  # fmt: skip
    if len(curves) < 2:
        return []
    least = sorted(measured[0][0] for measured, _ in curves)[1]
    most = sorted(measured[0][-1] for measured, _ in curves)[-2]
    found = []
    for at in np.geomspace(least, most, QUESTIONS) if least < most else ():
        there = [pair for pair in curves if pair[0][0][0] <= at <= pair[0][0][-1]]
        if len(there) > 1:
            real = [float(np.interp(at, *measured)) for measured, _ in there]
            chosen = int(np.argmax([np.interp(at, *predicted) for _, predicted in there]))
            found.append(real[chosen] >= NEAR * max(real))
    return found


def _curve(points: Sequence[tuple[int, tuple[float, float]]]) -> tuple[Floats, Floats]:
    """Return interactivities, ascending, and throughputs; runs with as many clients count as their mean."""
    clients = np.array([count for count, _ in points])
    rates = np.array([rate for _, rate in points])
    means = np.array([rates[clients == count].mean(axis=0) for count in np.unique(clients)])
    order = np.argsort(means[:, 0], kind="stable")
    return means[order, 0], means[order, 1]
