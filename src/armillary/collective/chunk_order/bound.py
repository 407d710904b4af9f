"""The least time in which ports can move a collective, whatever order its chunks take: a small linear program.

Minimise t such that the shares x of all orders sum up to 1 and no level has more than t to move. That is a
matrix game: u = x / t maximises Σu with A u ≤ 1, where the unit basis is feasible. Of the many orders only those
that the prices of the levels ask for are columns (Gilmore and Gomory 1961).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np
from numpy.typing import NDArray

from armillary.base import portable
from armillary.collective.chunk_order import Level, Order, loads, plain_order

Reals = NDArray[np.float64]
ENOUGH = 1e-12


@dataclass(frozen=True)
class Shares:
    """`time` is ns per byte that no plan beats; `share` the part of the bytes that takes each order to reach it."""

    time: float
    share: dict[Order, float]


def best_shares(operation: str, levels: Sequence[Level]) -> Shares:
    """Return how bytes are best divided among orders if chunks were infinitely small."""
    # Column generation: start with one order and add the one that the current prices make cheapest.
    orders = [plain_order(operation, len(levels))]
    while True:
        columns = np.array([loads(operation, levels, order) for order in orders]).T
        used, price = _game(columns)
        best = cheapest(operation, levels, price.tolist())
        least = fsum(p * each for p, each in zip(price.tolist(), loads(operation, levels, best), strict=True))
        # Any prices that sum up to 1 give a bound, so it holds whatever was rounded on the way.
        if best in orders or least >= float(portable.dot(columns, used).max()) * (1 - ENOUGH):
            return Shares(least, {o: float(x) for o, x in zip(orders, used, strict=True) if x > ENOUGH})
        orders.append(best)


def cheapest(operation: str, levels: Sequence[Level], price: Sequence[float]) -> Order:
    """Return the order with the least price of its loads.

    Two neighbours a, b on the way in are in the right order if price · moving ÷ (1 - 1/n) is less for a, by
    exchange; of an all-gather, the way back. The last level of an all-reduce is tried out.
    """

    def key(at: int) -> float:
        level = levels[at]
        cost = price[at] * level.moving / (level.n if operation == "all-gather" else 1)
        return cost / (1 - 1 / level.n)

    def cost(order: Order) -> float:
        return fsum(p * each for p, each in zip(price, loads(operation, levels, order), strict=True))

    if operation == "all-to-all":
        return plain_order(operation, len(levels))
    order = tuple(sorted(range(len(levels)), key=key, reverse=operation == "all-gather"))
    if operation != "all-reduce":
        return order
    # The level at the turn costs differently, so each is tried there with the others in sorted order.
    return min(((*(a for a in order if a != last), last) for last in reversed(order)), key=cost)


def _game(columns: Reals) -> tuple[Reals, Reals]:
    """Return (shares of the columns, prices of the rows) of a matrix game by the simplex method with Bland's rule."""
    rows, n = columns.shape
    scale = float(columns.max())
    table = np.hstack([columns / scale, np.eye(rows), np.ones((rows, 1))])
    # Slack columns form the first basis; the reduced costs of the shares are all -1.
    goal = np.concatenate([-np.ones(n), np.zeros(rows + 1)])
    basis = list(range(n, n + rows))
    while (enters := np.flatnonzero(goal[:-1] < -ENOUGH)).size:
        # Bland's rule, lowest index first on both choices, cannot cycle.
        at = int(enters[0])
        able = np.flatnonzero(table[:, at] > ENOUGH)
        ratio = table[able, -1] / table[able, at]
        row = min(able[ratio <= ratio.min() + ENOUGH].tolist(), key=lambda r: basis[r])
        table[row] /= table[row, at]
        for other in range(rows):
            if other != row:
                table[other] -= table[other, at] * table[row]
        goal -= goal[at] * table[row]
        basis[row] = at
    used = np.zeros(n + rows)
    used[basis] = table[:, -1]
    return used[:n] / used[:n].sum(), goal[n:-1] / goal[n:-1].sum()
