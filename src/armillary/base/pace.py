"""How far long work is, and the limit on how long it may take.

A file of a few hundred bytes can ask for hours: a collective of thousands of NPUs whose messages share links, or routes
between all of them. How many events that are is known before (`armillary.base.counts.MOST_EVENTS`); how long one takes
depends on how many messages meet, and is known only while it runs. So loops tell a `Pace` how far they are. It tells
whoever listens, and ends work that takes too long: at the limit, or as soon as its own pace forecasts twice that. The
limit is on processor time, because other work on the machine is no fault of the file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from armillary.base.errors import InputError

MOST_SECONDS = 2400.0
"""Seconds of processor time that one simulation may take, and the search for its routes: 40 minutes."""
FIRST_WORD, NEXT_WORD = 2.0, 1.0
"""Seconds before it is said how far the work is, and between two such words."""
SURE = 30.0
"""Seconds of work after which its pace is believed."""
DOUBT = 2.0
"""Work is ended early where its pace forecasts so many times the limit, since estimates are rough."""
FIRST_SLICE, LEAST_SLICE = 1 << 15, 64
LONG_SLICE = 0.5
"""Seconds that compiled code may run between two looks at the clock, about: until then no interrupt is seen either."""

Tell = Callable[[str], None]
_listener: ContextVar[Tell | None] = ContextVar("listener", default=None)


@contextmanager
def listening(tell: Tell | None) -> Iterator[None]:
    """Have it told how far long work is, or None: nobody listens, for the duration of the context."""
    token = _listener.set(tell)
    try:
        yield
    finally:
        _listener.reset(token)


class Pace:
    """How far one piece of work is."""

    def __init__(self, what: str, total: float, unit: str, change: str) -> None:
        """Begin.

        Args:
            what: The work, for texts: "network model flow".
            total: How many steps it has, by an estimate.
            unit: What these are: "events".
            change: What would make it shorter.
        """
        self._what, self._total, self._unit, self._change = what, total, unit, change
        self._begun = self._looked = time.thread_time()
        self._word = FIRST_WORD
        self._slice = FIRST_SLICE

    def slice(self, most: int) -> int:
        """Return how many steps to take before `at` is called again."""
        return min(most, self._slice)

    def at(self, done: int) -> None:
        """Note that so many steps are done.

        Raises:
            InputError: the work takes too long.
        """
        now = time.thread_time()
        took, self._looked = now - self._looked, now
        # Steps of one kind of work differ by a factor of a thousand, from place to place.
        if took < LONG_SLICE / 2:
            self._slice = min(2 * self._slice, 1 << 40)
        elif took > 2 * LONG_SLICE:
            self._slice = max(self._slice // 4, LEAST_SLICE)
        spent = now - self._begun
        if spent < self._word:
            return
        # Late: the command line imports this module before it knows what to do.
        from armillary.base.allowed import how_to_raise, limit

        self._word = spent + NEXT_WORD
        whole = spent * max(self._total / max(done, 1), 1.0)
        most = limit(MOST_SECONDS)
        if spent > most or (spent > SURE and whole > DOUBT * most):
            raise InputError(
                f"{self._what}: {'about ' if whole > spent else ''}{_shown(whole)} of processor time by its pace "
                f"({self._far(done)} took {_shown(spent)}), expected at most {_shown(most)}: {self._change} "
                f"({how_to_raise(max(whole, 1.5 * spent) / most)})"
            )
        if tell := _listener.get():
            tell(f"{self._what}: {self._far(done)} after {_shown(spent)}, about {_shown(whole - spent)} more")

    def _far(self, done: int) -> str:
        from armillary.base.units import format_count

        of = f"{format_count(done)} of " if done < self._total else ""
        return f"{of}about {format_count(int(max(self._total, done)))} {self._unit}"


def _shown(seconds: float) -> str:
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
