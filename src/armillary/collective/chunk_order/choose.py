"""The registry of chunk schedulers: from a name to the bytes of each chunk, and the order of its dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from armillary.base.errors import InputError
from armillary.collective.chunk_order import Level, Order, greedy
from armillary.collective.chunk_order.alone import Problem, Rows
from armillary.collective.chunk_order.greedy import Chunks
from armillary.collective.rounds import plain_sizes
from armillary.platform.collectives import CHUNK_ORDERS

Scheduler = Callable[[Problem], Chunks]
"""Returns bytes and order of each chunk; the same for the same problem."""
SCHEDULERS = {
    "baseline": "armillary.collective.chunk_order.choose:baseline",
    "round-robin": "armillary.collective.chunk_order.choose:round_robin",
    "themis": "armillary.collective.chunk_order.choose:themis",
    "themis-flex": "armillary.collective.chunk_order.choose:themis_flex",
    "online-greedy": "armillary.collective.chunk_order.online:foreseen",
    "auto": "armillary.collective.chunk_order.choose:faster",
    "optimal": "armillary.collective.chunk_order.search:optimal",
}
"""Name -> function of each that is built in; the names are those of `platform.collectives.CHUNK_ORDERS`."""
MOST = 1 << 11
"""Most chunks for which "auto" and "optimal" time plans: timing is quadratic in them."""


def baseline(problem: Problem) -> Chunks:
    """Every chunk takes the plain order."""
    return greedy.baseline(problem.operation, problem.levels, problem.sizes)


def round_robin(problem: Problem) -> Chunks:
    """Every chunk begins one level after the one before."""
    return greedy.round_robin(problem.operation, problem.levels, problem.sizes)


def themis(problem: Problem) -> Chunks:
    """Level loads, see `greedy.themis`; an all-to-all moves the same bytes in every order and keeps the plain one."""
    if problem.operation == "all-to-all":
        return baseline(problem)
    return greedy.themis(problem.operation, problem.levels, problem.sizes)


def themis_flex(problem: Problem) -> Chunks:
    """The same with chunks of different sizes, see `greedy.themis_flex`."""
    if problem.operation == "all-to-all":
        return baseline(problem)
    return greedy.themis_flex(problem.operation, problem.levels, problem.sizes)


def faster(problem: Problem) -> Chunks:
    """Take baseline or themis, whichever ends first alone on the machine."""
    # Baseline first: it stays on a tie.
    return min((baseline(problem), themis(problem)), key=problem.time)


def chunks_for(
    how: str, within: str, operation: str, levels: Sequence[Level], size: int, chunks: int, costs: Rows
) -> Chunks:
    """Return bytes and order of each chunk.

    Args:
        how: Name of a scheduler, built in or of another package.
        within: One of `chunk_order.WITHIN`.
        operation: One of `chunk_order.SCHEDULABLE`.
        levels: The dimensions, innermost first.
        size: Bytes of the collective.
        chunks: Plain chunks that it is divided into.
        costs: How long phases of chunks take, hashable.

    Raises:
        InputError: there is no such scheduler, or what that of another package plans is no plan.
    """
    return list(_chunks_for(how, within, operation, tuple(levels), size, chunks, costs))


@lru_cache(maxsize=256)
def _chunks_for(
    how: str, within: str, operation: str, levels: tuple[Level, ...], size: int, chunks: int, costs: Rows
) -> tuple[tuple[int, Order], ...]:
    problem = Problem(operation, levels, tuple(plain_sizes(size, chunks)), within, costs)
    scheduler = find_scheduler(how)
    with CHUNK_ORDERS.guard(how):
        found = tuple(scheduler(problem))
        # Built-in schedulers are covered by tests; a plan of another package is checked in every run.
        wrong = "" if how in SCHEDULERS else wrong_plan(found, problem)
    if wrong:
        raise InputError(f"chunk scheduler '{how}': {wrong}")
    return found


def find_scheduler(name: str) -> Scheduler:
    """Return a scheduler.

    Raises:
        InputError: there is none of that name, or what another package registers is none.
    """
    found: Scheduler = CHUNK_ORDERS.load(name, SCHEDULERS)
    if not callable(found):
        raise InputError(f"chunk scheduler '{name}' is {found!r}, expected a function of a Problem")
    return found


def wrong_plan(chunks: Sequence[tuple[int, Order]], problem: Problem) -> str:
    """Return what is wrong with a plan: every chunk has bytes and visits each level once, and none is lost."""
    size, places = sum(problem.sizes), list(range(len(problem.levels)))
    for number, (each, order) in enumerate(chunks):
        if each < 1:
            return f"chunk {number} has {each} bytes, expected 1 or more"
        if sorted(order) != places:
            return f"chunk {number} visits the levels {tuple(order)}, expected each of 0 to {len(places) - 1} once"
    planned = sum(each for each, _ in chunks)
    return "" if planned == size else f"plans chunks of {planned} bytes in all, expected {size}"
