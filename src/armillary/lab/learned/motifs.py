"""Repeated motifs of a sequence: loops of runs, shortest first, and templates that several sequences share.

A sequence is first cut into runs (a symbol and its number of repetitions). A loop is a list of runs that repeats; a
template is a list of loops without the counts. `match` finds the counts with which a template gives a sequence.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
Template = tuple[tuple[T, ...], ...]
"""The symbols of every loop."""


@dataclass(frozen=True)
class Loop(Generic[T]):
    """Runs that repeat: `times` x (symbol x count, …)."""

    runs: tuple[tuple[T, int], ...]
    times: int

    @property
    def symbols(self) -> tuple[T, ...]:
        """The symbols of the runs."""
        return tuple(symbol for symbol, _ in self.runs)


def runs_of(sequence: Sequence[T]) -> list[tuple[T, int]]:
    """Return the runs of a sequence."""
    found: list[tuple[T, int]] = []
    for symbol in sequence:
        if found and found[-1][0] == symbol:
            found[-1] = (symbol, found[-1][1] + 1)
        else:
            found.append((symbol, 1))
    return found


def compress(sequence: Sequence[T], longest: int = 8) -> list[Loop[T]]:
    """Return the loops of a sequence: at each place, the shortest list of at most `longest` runs that repeats there."""
    runs = runs_of(sequence)
    found: list[Loop[T]] = []
    at = 0
    while at < len(runs):
        period, times = 1, 1
        # A list of one run cannot repeat: runs of the same symbol are one run.
        for length in range(2, min(longest, (len(runs) - at) // 2) + 1):
            count = 1
            while runs[at + count * length : at + (count + 1) * length] == runs[at : at + length]:
                count += 1
            if count > 1:
                period, times = length, count
                break
        found.append(Loop(tuple(runs[at : at + period]), times))
        at += period * times
    return found


def expand(loops: Sequence[Loop[T]]) -> list[T]:
    """Return the sequence of symbols that loops stand for."""
    return [
        symbol
        for loop in loops
        for _ in range(loop.times)
        for symbol, count in loop.runs
        for _ in range(count)
    ]


def template_of(loops: Sequence[Loop[T]]) -> Template[T]:
    """Return loops without their counts."""
    return tuple(loop.symbols for loop in loops)


def match(template: Template[T], sequence: Sequence[T]) -> list[Loop[T]] | None:
    """Return the loops with the template's symbols that give the sequence, some of them 0 times; None: there are none.

    The first loops repeat as often as possible.
    """
    runs = runs_of(sequence)
    # States from which no match exists: with them backtracking takes polynomial time.
    dead: set[tuple[int, int, int]] = set()

    def follow(place: int, at: int, left: int) -> list[Loop[T]] | None:
        """Match loops from `place` on with the runs from `at` on; `left` symbols of the first run are left."""
        if place == len(template):
            return [] if at == len(runs) else None
        if (place, at, left) in dead:
            return None
        symbols = template[place]
        if len(symbols) == 1:
            if at < len(runs) and runs[at][0] == symbols[0]:
                # A run may be shared by neighbouring loops of the template: greedy first, then fewer.
                for take in range(left, 0, -1):
                    after = (at + 1, _first(runs, at + 1)) if take == left else (at, left - take)
                    rest = follow(place + 1, *after)
                    if rest is not None:
                        return [Loop(((symbols[0], take),), 1), *rest]
        # A loop of several runs begins with a whole run.
        elif at < len(runs) and left == runs[at][1]:
            size, body = len(symbols), tuple(runs[at : at + len(symbols)])
            if tuple(symbol for symbol, _ in body) == symbols:
                times = 1
                while tuple(runs[at + times * size : at + (times + 1) * size]) == body:
                    times += 1
                for count in range(times, 0, -1):
                    next_at = at + count * size
                    rest = follow(place + 1, next_at, _first(runs, next_at))
                    if rest is not None:
                        return [Loop(body, count), *rest]
        rest = follow(place + 1, at, left)
        if rest is not None:
            return [Loop(tuple((symbol, 1) for symbol in symbols), 0), *rest]
        dead.add((place, at, left))
        return None

    return follow(0, 0, _first(runs, 0))


def _first(runs: Sequence[tuple[T, int]], at: int) -> int:
    return runs[at][1] if at < len(runs) else 0


def shared_templates(sequences: Sequence[Sequence[T]]) -> list[Template[T]]:
    """Return few templates that together match all the sequences, those of most sequences first."""
    distinct = list(dict.fromkeys(tuple(each) for each in sequences))
    candidates: dict[Template[T], int] = {}
    for each in distinct:
        template = template_of(compress(each))
        candidates[template] = candidates.get(template, 0) + 1
    order = sorted(candidates, key=lambda each: (-candidates[each], len(each)))
    made = {template: {i for i, each in enumerate(distinct) if match(template, each)} for template in order}
    # Greedy set cover. Each sequence has a template of its own among the candidates, so it ends.
    left, chosen = set(range(len(distinct))), []
    while left:
        best = max(order, key=lambda each: len(made[each] & left))
        chosen.append(best)
        left -= made[best]
    return chosen
