"""A fleet whose replicas fail, or are started and stopped: what becomes of requests that lose theirs.

As in `armillary.serving.fleet`, the loops of the replicas stop whenever something may change. Of what happens in the
same ns, results come first, then failures, then replicas that begin, then looks at how many are wanted, then requests.

A replica that fails is gone with its cache, and begins anew; each of its lives is a loop of its own. A request that was
there goes back to the router with the tokens that it has been given, and the next replica computes prompt and tokens
again. Who finds no replica waits at the router, those that come back in front.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from armillary.base.errors import InputError
from armillary.base.jit import Mode
from armillary.serving import columns as c
from armillary.serving.changes import MOST_FAILURES, MOST_LOOKS, MOST_RETURNED, Changes, Scale
from armillary.serving.fleet import Ahead, mode_of, part_of, require_loops
from armillary.serving.outcome import Outcome
from armillary.serving.replica import Engine, Replica, Served
from armillary.serving.requests import Ints, Requests
from armillary.serving.router import choose
from armillary.serving.step_table import StepTable

FAILS, BEGINS, LOOKS = range(3)
OFF, STARTS, TAKES, ENDS, IN_REPAIR = range(5)
"""A replica is off, starts, takes requests, ends those that it has, or is in repair."""


@dataclass(frozen=True)
class Life:
    """What a replica did from its begin until it failed or stopped.

    Attributes:
        replica: Its number.
        sent: (requests) Numbers of those that it got, in order.
        before: (requests) Tokens that each had been given before.
        served: What became of them.
        given: (requests) Tokens that it gave to each.
        latest: (requests) ns of the step that gave the last of these.
    """

    replica: int
    sent: Ints
    before: Ints
    served: Served
    given: Ints
    latest: Ints


@dataclass
class _Place:
    """Where a replica may be: its state, and its present life.

    Attributes:
        times: ns that it works each time; None: for ever.
        own: Its loop.
        state: One of those above.
        turn: Counts changes of the state: events of earlier ones do not happen.
        sent: Numbers of the requests of this life.
        before: Tokens that each had been given before.
        since: ns at which it was started.
        paid: ns for which it has been there, but for the present time.
    """

    times: Iterator[int] | None
    own: Replica | None = None
    state: int = OFF
    turn: int = 0
    sent: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)
    since: int = 0
    paid: int = 0


class Fleet:
    """Replicas of one load.

    Attributes:
        lives: Of all that ended.
        arrival: (requests) ns at which each came.
    """

    def __init__(
        self,
        requests: Requests,
        replicas: int,
        engine: Engine,
        table: StepTable,
        router: str,
        changes: Changes,
        mode: Mode | None = None,
    ) -> None:
        """Begin with all replicas, or with the least that always run.

        Raises:
            InputError: a request can never be served, or replicas fail, or are looked at, too often.
            ShortageError: the requests of all replicas need more memory than there is.
        """
        require_loops(requests, replicas, "fewer requests or replicas")
        _check_often(changes, replicas, int(requests.arrival.max(initial=0)))
        self._mode = mode or mode_of(requests, engine)
        self._requests, self._engine, self._table, self._router = requests, engine, table, router
        self._changes = changes
        self._places = [_Place(changes.fail.times(k) if changes.fail else None) for k in range(replicas)]
        self._events: list[tuple[int, int, int, int]] = []
        self._failures = self._looks = self._returned = 0
        self._queue: deque[tuple[int, int]] = deque()
        self._ahead, self._last, self._done = Ahead(requests), -1, 0
        self._homes: dict[int, int] = {}
        self._wanted: deque[tuple[int, int]] = deque()
        self.lives: list[Life] = []
        self.arrival = requests.arrival.copy()
        least = changes.scale.least if changes.scale else replicas
        for k in range(least):
            self._begin(k, 0)
        if changes.scale:
            heapq.heappush(self._events, (changes.scale.every, LOOKS, 0, 0))

    def run(self) -> Outcome:
        """Return what becomes of the load.

        Raises:
            InputError: replicas fail, or are looked at, too often.
        """
        n, ahead = len(self._requests), self._ahead
        while True:
            at = min(ahead.next, self._events[0][0] if self._events else c.NEVER // 2 - 1)
            if ahead.waits:
                at = min(at, ahead.soonest(own.next for own in self._loops() if own.has))
            self._advance(at)
            if self._done == n:
                break
            while self._events and self._events[0][0] == at:
                self._happen(*heapq.heappop(self._events))
            self._give(at)
            if ahead.next == at:
                r = ahead.pop()
                self.arrival[r] = at
                self._queue.append((r, 0))
                self._give(at)
        for k, place in enumerate(self._places):
            self._end(k)
            place.own = None
        return self._outcome()

    def _loops(self) -> list[Replica]:
        return [place.own for place in self._places if place.own]

    def _advance(self, at: int) -> None:
        """Go on to a ns, and learn what is done by then."""
        for k, place in enumerate(self._places):
            own = place.own
            if own is None or own.next > 2 * at:
                continue
            own.advance(2 * at)
            ended = [(place.sent[where], ns) for where, ns in own.ended()]
            self._done += len(ended)
            self._ahead.done(ended)
            if ended and place.state == ENDS and not own.has:
                self._stop(k, max(ns for _, ns in ended))

    def _happen(self, at: int, kind: int, k: int, turn: int) -> None:
        if kind == LOOKS:
            self._looks += 1
            assert self._changes.scale
            if self._looks > MOST_LOOKS:
                raise InputError(_TOO_OFTEN["looks"])
            self._look(at, self._changes.scale)
        elif self._places[k].turn == turn:
            if kind == FAILS:
                self._fail(k, at)
            else:
                self._begin(k, at)

    def _begin(self, k: int, at: int) -> None:
        """Let a replica take requests from now on, with an empty cache."""
        place = self._places[k]
        place.own = Replica(self._requests, self._engine, self._table, self._mode, router=True)
        if place.state == OFF:
            place.since = at
        place.sent, place.before = [], []
        place.state = TAKES
        place.turn += 1
        if place.times:
            heapq.heappush(self._events, (at + next(place.times), FAILS, k, place.turn))

    def _fail(self, k: int, at: int) -> None:
        """Lose a replica: its requests go back, and it is repaired if it was to take more."""
        self._failures += 1
        if self._failures > MOST_FAILURES:
            raise InputError(_TOO_OFTEN["failures"])
        place = self._places[k]
        own, more = place.own, place.state == TAKES
        assert own and self._changes.fail
        given = own.given[0]
        left = own.left
        self._returned += len(left)
        if self._returned > MOST_RETURNED:
            raise InputError(
                f"fail: more than {MOST_RETURNED:,} times a request lost its replica, expected a longer mtbf"
            )
        back = [(place.sent[where], place.before[where] + int(given[where])) for where in left]
        self._queue.extendleft(reversed(back))
        self._end(k, at)
        if more:
            place.own, place.state = None, IN_REPAIR
            place.turn += 1
            heapq.heappush(self._events, (at + self._changes.fail.repair, BEGINS, k, place.turn))
        else:
            self._off(k, at)

    def _stop(self, k: int, at: int) -> None:
        """Stop a replica that has no request."""
        self._end(k)
        self._off(k, at)

    def _off(self, k: int, at: int) -> None:
        place = self._places[k]
        place.paid += at - place.since
        place.own, place.state = None, OFF
        place.turn += 1

    def _end(self, k: int, at: int | None = None) -> None:
        """Keep what a replica did in its present life, up to some ns."""
        place = self._places[k]
        if place.own is None or not place.sent:
            return
        served = place.own.served(part_of(self._requests, place.sent))
        if at is not None:
            steps = served.steps[served.steps[:, c.L_START] < at].copy()
            steps[:, c.L_END] = np.minimum(steps[:, c.L_END], at)
            served = replace(served, steps=steps)
        sent, before = np.array(place.sent, np.int64), np.array(place.before, np.int64)
        self.lives.append(Life(k, sent, before, served, *place.own.given))

    def _give(self, at: int) -> None:
        """Send what waits at the router to replicas that take requests."""
        while self._queue:
            up = [k for k, place in enumerate(self._places) if place.state == TAKES]
            if not up:
                return
            r, before = self._queue.popleft()
            k = self._chosen(r, up)
            place = self._places[k]
            assert place.own
            place.own.send(r, at, before)
            place.sent.append(r)
            place.before.append(before)

    def _chosen(self, r: int, up: list[int]) -> int:
        fleet = {k: own for k in up if (own := self._places[k].own)}
        follows = self._requests.follows
        home = int(follows.sessions[r]) if follows and self._router == "session" else -1
        if self._homes.get(home) in fleet:
            return self._homes[home]
        self._last = choose(self._router, r, fleet, up, self._last)
        if home >= 0:
            self._homes[home] = self._last
        return self._last

    def _look(self, at: int, scale: Scale) -> None:
        """Start the replicas that are missing, and stop those that were not wanted for a while."""
        waiting = len(self._queue) + sum(own.has for own in self._loops())
        wanted = min(max(-(-waiting // scale.target), scale.least), len(self._places))
        # Who wanted no more than this look is never the most again, so those that are kept descend.
        while self._wanted and self._wanted[-1][1] <= wanted:
            self._wanted.pop()
        self._wanted.append((at, wanted))
        while self._wanted[0][0] <= at - scale.hold and len(self._wanted) > 1:
            self._wanted.popleft()
        most = self._wanted[0][1]
        there = [k for k, place in enumerate(self._places) if place.state not in (OFF, ENDS)]
        order = sorted(range(len(self._places)), key=lambda k: (self._places[k].state != ENDS, k))
        for k in [k for k in order if k not in there][: max(0, wanted - len(there))]:
            place = self._places[k]
            if place.state == ENDS:
                place.state = TAKES
                continue
            place.state, place.since = STARTS, at
            place.turn += 1
            heapq.heappush(self._events, (at + scale.start, BEGINS, k, place.turn))
        # Those that take none yet first, then those with the fewest; of several the last.
        order = sorted(there, key=lambda k: (own.has + 1 if (own := self._places[k].own) else 0, -k))
        for k in order[: max(0, len(there) - most)]:
            own = self._places[k].own
            if own and own.has:
                self._places[k].state = ENDS
            else:
                self._stop(k, at)
        heapq.heappush(self._events, (at + scale.every, LOOKS, 0, 0))

    def _outcome(self) -> Outcome:
        found = joined_lives(self._requests, self.arrival, self.lives, self._engine)
        until = int(found.last.max())
        there = sum(
            place.paid + (max(0, until - place.since) if place.state != OFF else 0) for place in self._places
        )
        return replace(found, there=there, fleet=len(self._places), failures=self._failures)


def joined_lives(requests: Requests, arrival: Ints, lives: list[Life], engine: Engine) -> Outcome:
    """Return the outcome of a load whose requests may have been served by several lives, one after another.

    Args:
        requests: The load.
        arrival: (requests) ns.
        lives: In any order.
        engine: Of the replicas.
    """
    n = len(requests)
    replica, begun, first, last, sent = (np.full(n, -1, np.int64) for _ in range(5))
    early, late, preempted, hit, interfered, stalled = (np.zeros(n, np.int64) for _ in range(6))
    parts = [
        (int(ns), at, where)
        for at, life in enumerate(lives)
        for where, ns in enumerate(life.served.requests.arrival)
    ]
    for ns, at, where in sorted(parts):
        life = lives[at]
        r, own = int(life.sent[where]), life.served
        replica[r] = life.replica
        if sent[r] < 0:
            sent[r] = ns
        if life.given[where]:
            if first[r] < 0:
                begun[r], first[r] = own.begun[where], own.first[where]
                early[r] = ns - sent[r]
            else:
                late[r] += own.first[where] - last[r]
            last[r] = life.latest[where] + engine.emit_ns
        for total, value in (
            (preempted, own.preempted), (hit, own.hit), (interfered, own.interfered), (stalled, own.stalled),
        ):  # fmt: skip
            total[r] += value[where]
    by_replica = [
        [life.served for life in lives if life.replica == k] for k in sorted({life.replica for life in lives})
    ]
    return Outcome(
        replace(requests, arrival=arrival), replica, begun, first, last, preempted, hit, interfered, stalled,
        tuple(merged(each) for each in by_replica), failed=(early, late),
    )  # fmt: skip


def merged(lives: list[Served]) -> Served:
    """Return what a replica did in all its lives, one after another."""
    if len(lives) == 1:
        return lives[0]
    names = (
        "begun",
        "first",
        "last",
        "preempted",
        "hit",
        "again",
        "loaded",
        "interfered",
        "stalled",
        "steps",
    )
    all_of = {name: np.concatenate([getattr(each, name) for each in lives]) for name in names}
    loads = [each.requests for each in lives]
    shared = None if loads[0].shared is None else tuple(one for each in loads for one in each.shared or ())
    load = replace(
        loads[0], arrival=np.concatenate([each.arrival for each in loads]),
        prompt=np.concatenate([each.prompt for each in loads]), output=np.concatenate([each.output for each in loads]),
        shared=shared,
    )  # fmt: skip
    return Served(load, **all_of, most_blocks=max(each.most_blocks for each in lives), engine=lives[0].engine)


def _check_often(changes: Changes, replicas: int, last: int) -> None:
    """Refuse what must happen too often until the last request comes, before the time is spent on it.

    Raises:
        InputError: it does.
    """
    if scale := changes.scale:
        replicas = scale.least
        if last // scale.every > MOST_LOOKS:
            raise InputError(_TOO_OFTEN["looks"])
    # Twice as many are expected: by chance, so many fewer never are.
    if (fail := changes.fail) and replicas * last > 2 * MOST_FAILURES * (fail.mtbf + fail.repair):
        raise InputError(_TOO_OFTEN["failures"])


_TOO_OFTEN = {
    "looks": f"scale: more than {MOST_LOOKS:,} looks until all requests are served, expected a longer every",
    "failures": f"fail: more than {MOST_FAILURES:,} failures until all requests are served, expected a longer mtbf",
}
