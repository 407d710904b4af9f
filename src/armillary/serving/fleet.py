"""Replicas that are served together, because what one gets depends on what others have done.

A router looks at the replicas, and a request that follows others may follow those of another replica. The loops of the
replicas stop at each arrival, so that what is done by then is known, and go on with the request that one of them got.
Where times of arrivals are not all known, they stop no later than the next could come: after the first thing that any
of them will do, and the shortest delay. A replica of which nothing can be done by then is left alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from armillary.base.allowed import require
from armillary.base.jit import Mode
from armillary.serving import columns as c
from armillary.serving.replica import INTERPRETED, Engine, Replica, Served
from armillary.serving.requests import Ints, Requests
from armillary.serving.router import choose
from armillary.serving.step_table import StepTable


def routed(
    requests: Requests, replicas: int, engine: Engine, table: StepTable, router: str, mode: Mode | None = None
) -> tuple[list[Served], list[Ints]]:
    """Return what each replica that has any requests served, and the numbers of these in the order in which they came.

    Requests that come in the same ns come in their order.

    Args:
        requests: A load without clients.
        replicas: How many there are.
        engine: Of each.
        table: Times of its steps.
        router: One of `armillary.serving.router.ROUTERS`.
        mode: Of the kernels; None: what is sooner done.

    Raises:
        InputError: a request can never be served.
        ShortageError: the requests of all replicas need more memory than there is.
    """
    require_loops(requests, replicas, "fewer requests or replicas, or router round-robin")
    mode = mode or mode_of(requests, engine)
    # Where nothing is shared, only a preempted request could find blocks: its own.
    if engine.cached and not requests.alike:
        found, shares = routed(requests, replicas, replace(engine, cached=False), table, router, mode)
        if not any(each.preempted.any() for each in found):
            return [replace(each, engine=engine) for each in found], shares
    fleet = [Replica(requests, engine, table, mode, router=True) for _ in range(min(replicas, len(requests)))]
    sent: list[list[int]] = [[] for _ in fleet]
    ahead, last, up = Ahead(requests), -1, range(len(fleet))
    while ahead.known or ahead.waits:
        at = ahead.next
        if ahead.waits:
            at = min(at, ahead.soonest(each.next for each in fleet if each.has))
        for k, each in enumerate(fleet):
            if each.next <= 2 * at:
                each.advance(2 * at)
                if ahead.waits:
                    ahead.done([(sent[k][place], ns) for place, ns in each.ended()])
        if ahead.next > at:
            continue
        r = ahead.pop()
        last = choose(router, r, fleet, up, last)
        fleet[last].send(r, at)
        sent[last].append(r)
    served = []
    for each, mine in zip(fleet, sent, strict=True):
        if mine:
            each.advance(c.NEVER - 1)
            served.append(each.served(part_of(requests, mine)))
    return served, [np.array(mine, np.int64) for mine in sent if mine]


def require_loops(requests: Requests, replicas: int, instead: str) -> None:
    """Check that there is memory for loops of which each may get any request.

    Raises:
        ShortageError: there is not; `instead` says what to do.
    """
    n = len(requests)
    require(
        8 * (c.R_COLUMNS + 1) * n * replicas,
        f"{replicas:,} replicas, any of which may get each of {n:,} requests,",
        instead,
    )


def mode_of(requests: Requests, engine: Engine) -> Mode:
    """Return in which mode of the kernels a load is sooner done."""
    work = int(requests.prompt.sum() // max(1, engine.budget) + requests.output.sum())
    return "interpreted" if work <= INTERPRETED else "compiled"


def part_of(requests: Requests, mine: list[int]) -> Requests:
    """Return some requests in any order, as if they followed none: it is known when they came."""
    own = None if requests.shared is None else tuple(requests.shared[r] for r in mine)
    return replace(
        requests, arrival=requests.arrival[mine], prompt=requests.prompt[mine], output=requests.output[mine],
        shared=own, follows=None,
    )  # fmt: skip


class Ahead:
    """Requests that have not come.

    Attributes:
        known: A heap of times, in ns, and numbers of those whose time is known.
        waits: How many wait for others.
    """

    def __init__(self, requests: Requests) -> None:
        follows = requests.follows
        heads = np.flatnonzero(requests.arrival >= 0)
        self.known = [(int(requests.arrival[r]), int(r)) for r in heads]
        heapq.heapify(self.known)
        self.waits = len(requests) - len(heads)
        self._open = follows.counts.tolist() if follows else []
        self._delay = follows.delay.tolist() if follows else []
        self._last = [0] * len(self._open)
        self._begin, self._later = (each.tolist() for each in follows.later) if follows else ([], [])
        self._shortest = min((self._delay[r] for r in np.flatnonzero(requests.arrival < 0)), default=0)

    @property
    def next(self) -> int:
        """Time of the next arrival that is known, in ns."""
        return self.known[0][0] if self.known else c.NEVER // 2 - 1

    def pop(self) -> int:
        """Return the next, which comes."""
        return heapq.heappop(self.known)[1]

    def soonest(self, half: Iterable[int]) -> int:
        """Return ns before which no further arrival becomes known, if replicas go on at these half ns."""
        return (min(half, default=c.NEVER) + 1) // 2 + self._shortest

    def done(self, ended: Iterable[tuple[int, int]]) -> None:
        """Let those come that follow requests which were done at some ns."""
        for r, ns in ended if self.waits else ():
            for other in self._later[self._begin[r] : self._begin[r + 1]]:
                self._open[other] -= 1
                # The last that ends has the latest time, whichever replica is asked first.
                self._last[other] = max(self._last[other], ns)
                if not self._open[other]:
                    heapq.heappush(self.known, (self._last[other] + self._delay[other], other))
                    self.waits -= 1
