"""The loop of `armillary.serving` in plain Python: slow, obvious, and checking itself after every step.

Requests are objects, blocks are numbers in lists, and what a block holds is the whole text before its end. This one has
the rule of vLLM; `reference_rules` has the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from armillary.serving.replica import Engine
from armillary.serving.requests import Requests

from .reference_parts import Cache, Request, Sessions, Step, in_order, text_of


class Reference:
    """One replica."""

    def __init__(
        self, requests: Requests, engine: Engine, price: Callable[[Step, Callable[[int], Request]], int]
    ) -> None:
        self.engine, self.price = engine, price
        self.more = len(engine.accepted)
        self.requests = [
            Request(
                r,
                int(requests.arrival[r]),
                int(requests.prompt[r]),
                int(requests.output[r]),
                text_of(requests, r),
                made=int(engine.brought),
                done=int(engine.brought),
            )
            for r in range(len(requests))
        ]
        self.own = self.requests
        """Those that may have blocks here."""
        self.clients = requests.clients
        self.cache = Cache(
            engine.blocks, engine.block, engine.cached, engine.slots if engine.cached else (0, 0)
        )
        self.sessions = Sessions(requests)
        self.ahead = deque(each for each in self.requests if each.number not in self.sessions.waits)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.flights: deque[Step] = deque()
        self.steps: list[Step] = []
        self.now = self.device = 0
        self.finished = 0

    def run(self, until: int | None = None) -> None:
        """Serve all, or what is done by some ns, before anything is scheduled then."""

        def late(ns: int) -> bool:
            return until is not None and ns > until

        while self.finished < len(self.requests):
            if late(self.now + 1):
                return
            while self.ahead and 0 <= self.ahead[0].arrival <= self.now:
                self.waiting.append(self.ahead.popleft())
            if len(self.flights) < (2 if self.engine.ahead else 1) and (self.running or self.waiting):
                step = self.schedule()
                self.check()
                if step.parts:
                    step.start = max(self.now, self.device)
                    step.end = self.device = step.start + self.price(step, self.requests.__getitem__)
                    step.running, step.waiting = len(self.running), len(self.waiting)
                    step.used = self.engine.blocks - len(self.cache.free)
                    self.flights.append(step)
                    self.steps.append(step)
                    continue
            if late(self.flights[0].end if self.flights else self.ahead[0].arrival + 1):
                return
            if self.flights:
                self.results(self.flights.popleft())
                self.check()
            else:
                self.now = self.ahead[0].arrival
                self.idle()

    def idle(self) -> None:
        """Nothing was there to do."""

    def come(self, finished: Request) -> deque[Request]:
        """Return what is ahead since a request is done."""
        new = self.sessions.come(finished, self.requests)
        return in_order([*self.ahead, *new]) if new else self.ahead

    def schedule(self) -> Step:
        engine, step, budget = self.engine, Step(), self.engine.budget
        preempted, at = False, 0
        while at < len(self.running) and budget:
            request = self.running[at]
            if request.computed == request.prompt + request.output - 1:  # its last token is on its way
                at += 1
                continue
            new = min(request.prompt + request.made - request.computed, budget)
            drafts = self.drafts(request, new)
            if new + drafts > budget:
                break
            blocks = self.lacks(request, request.computed + new + drafts)
            while blocks > len(self.cache.free):
                preempted = True
                victim = self.running.pop()
                self.cache.release(victim)
                victim.again += victim.computed
                victim.computed = 0
                victim.preempted += 1
                victim.lost = True
                self.waiting.appendleft(victim)
                if victim is request:
                    break
            if not self.running or at >= len(self.running):
                break
            self.cache.take(request, blocks)
            budget -= new + drafts
            self.add(step, request, new, drafts)
            at += 1
        while not preempted and self.waiting and budget and len(self.running) < engine.sequences:
            request = self.waiting[0]
            tokens = request.prompt + request.made
            found = self.cache.found(request, tokens)
            idle = sum(self.cache.holders[block] == 0 for block in found)
            if -(-(tokens + self.more) // engine.block) - len(found) > len(self.cache.free) - idle:
                break
            loads = self.cache.there(request, len(found), tokens)
            computed = (len(found) + loads) * engine.block + self.brings(request)
            new = min(tokens - computed, budget)
            drafts = self.more if new == 1 and computed >= request.prompt else 0
            if new + drafts > budget:
                break
            self.waiting.popleft()
            self.running.append(request)
            self.cache.share(request, found)
            request.computed = computed
            request.hit += (len(found) + loads) * engine.block
            self.cache.fetch(request, len(found), loads, step)
            self.cache.take(request, self.lacks(request, computed + new + drafts))
            if request.begun < 0:
                request.begun = self.now
            budget -= new + drafts
            self.add(step, request, new, drafts)
        return step

    def drafts(self, request: Request, new: int) -> int:
        """Return how many drafts go with a token that a request decodes."""
        return self.more if new == 1 and request.computed >= request.prompt else 0

    def accepted(self, request: Request) -> int:
        """Return how many of the drafts behind its last token are accepted: a hash of the request and of that token."""
        draw = (7919 * request.number + 104729 * request.made + 1) % (2**31 - 1)
        for _ in range(3):
            draw = 73244475 * (draw ^ draw // 2**16) % (2**31 - 1)
        draw ^= draw // 2**16
        return sum(draw < each for each in self.engine.accepted)

    def brings(self, request: Request) -> int:
        """Return how many tokens it has keys and values of when it begins."""
        return request.prompt if self.engine.brought and not request.preempted else 0

    def add(self, step: Step, request: Request, new: int, drafts: int = 0) -> None:
        step.parts.append((request.number, request.computed, new))
        step.drafts += drafts
        request.computed += new
        if request.computed == request.prompt + request.made and request.made < request.output:
            given = min(1 + (self.accepted(request) if drafts else 0), request.output - request.made)
            request.made += given
            # The last of them is not computed yet.
            request.computed += given - 1
            step.makes.append(request.number)
            step.gives.append(given)
            step.late.append(request.lost)
            request.lost = False
        self.cache.keep(request)

    def results(self, step: Step) -> None:
        self.now = max(self.now, step.end)
        for number, late, given in zip(step.makes, step.late, step.gives, strict=True):
            request = self.requests[number]
            # No token comes before the step that computed the prompt, nor twice.
            assert request.begun >= 0 and step.end > request.begun
            request.done += given
            request.stalled += step.end - request.ends[-1] if late and request.ends else 0
            request.ends.append(step.end)
            if request.done == given + self.engine.brought:
                request.first = step.end
            if request.done == request.output:
                request.last = step.end
                (self.running if request in self.running else self.waiting).remove(request)
                self.cache.release(request)
                self.finished += 1
                self.ahead = self.come(request)
                if (
                    self.clients
                    and self.ahead
                    and (later := self.clients + self.finished - 1) < len(self.requests)
                ):
                    self.requests[later].arrival = step.end

    def check(self) -> None:
        held = [block for request in self.own for block in request.blocks]
        cache = self.cache
        # Each block is free or held, and as often as it says.
        assert sorted({*held, *cache.free}) == list(range(self.engine.blocks))
        assert not {*held} & {*cache.free} and len(cache.free) == len({*cache.free})
        assert all(cache.holders[block] == held.count(block) for block in range(self.engine.blocks))
        for request in self.running:
            assert len(request.blocks) * self.engine.block >= request.computed
            for at, block in enumerate(request.blocks):
                own = tuple(request.text[: (at + 1) * self.engine.block])
                assert cache.content.get(block, own) == own, "a block of another's tokens"
        places = [request.number for request in (*self.running, *self.waiting)]
        assert len(places) == len({*places}), "served twice"

    def begin(self, step: Step, request: Request, found: list[int], new: int, drafts: int = 0) -> None:
        """Let the first that waits run, with `new` tokens behind those of the blocks that it found."""
        self.waiting.popleft()
        self.running.append(request)
        self.cache.share(request, found)
        loads = self.cache.there(request, len(found), request.prompt + request.made)
        request.computed = (len(found) + loads) * self.engine.block + self.brings(request)
        request.hit += (len(found) + loads) * self.engine.block
        self.cache.fetch(request, len(found), loads, step)
        if request.begun < 0:
            request.begun = self.now
        if new:
            self.compute(step, request, new, drafts)
        else:
            self.cache.take(request, self.lacks(request, request.computed))

    def compute(self, step: Step, request: Request, new: int, drafts: int = 0) -> None:
        self.cache.take(request, self.lacks(request, request.computed + new + drafts))
        self.add(step, request, new, drafts)

    def lacks(self, request: Request, tokens: int) -> int:
        # Drafts that were not accepted have left it some.
        return max(0, -(-tokens // self.engine.block) - len(request.blocks))
