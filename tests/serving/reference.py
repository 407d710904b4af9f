"""The loop of `armillary.serving` in plain Python: slow, obvious, and checking itself after every step.

Requests are objects, blocks are numbers in lists, and what a block holds is the whole text before its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from armillary.serving.replica import Engine
from armillary.serving.requests import Requests


@dataclass
class Request:
    """One request, and where it is."""

    number: int
    arrival: int
    prompt: int
    output: int
    text: list[int]
    """What its tokens are: equal where requests share them."""
    computed: int = 0
    made: int = 0
    done: int = 0
    blocks: list[int] = field(default_factory=list)
    begun: int = -1
    first: int = -1
    last: int = -1
    preempted: int = 0
    hit: int = 0
    again: int = 0
    loaded: int = 0
    ends: list[int] = field(default_factory=list)
    """ns of each token."""
    cut: bool = False
    """Whether only a part of its prompt went into a step."""
    lost: bool = False
    """Whether it was preempted since its last token was scheduled."""
    stalled: int = 0


class Cache:
    """Blocks: who holds each, what it holds, and the free ones, the longest free first."""

    def __init__(self, count: int, size: int, keeps: bool, slots: tuple[int, int] = (0, 0)) -> None:
        self.size, self.keeps = size, keeps
        self.free = list(range(count))
        self.holders = [0] * count
        self.content: dict[int, tuple[int, ...]] = {}
        self.where: dict[tuple[int, ...], list[int]] = {}
        self.slots = slots
        self.tiers: list[list[tuple[int, ...]]] = [[], []]
        """What the host's memory and its disk have, the longest unused first."""

    def block_of(self, content: tuple[int, ...]) -> int | None:
        return next(iter(self.where.get(content, ())), None)

    def found(self, request: Request, tokens: int) -> list[int]:
        found: list[int] = []
        # One token at least is left to compute.
        while self.keeps and (len(found) + 1) * self.size <= tokens - 1:
            block = self.block_of(tuple(request.text[: (len(found) + 1) * self.size]))
            if block is None:
                break
            found.append(block)
        return found

    def keep_there(self, content: tuple[int, ...], tier: int = 0) -> None:
        if tier == len(self.tiers):
            return
        has = self.tiers[tier]
        if content in has:
            has.remove(content)
        has.append(content)
        if len(has) > self.slots[tier]:
            self.keep_there(has.pop(0), tier + 1)

    def there(self, request: Request, found: int, tokens: int) -> int:
        """Return how many blocks behind those that were found the host has."""
        many = 0
        while (found + many + 1) * self.size <= tokens - 1:
            content = tuple(request.text[: (found + many + 1) * self.size])
            if not any(content in has for has in self.tiers):
                break
            many += 1
        return many

    def fetch(self, request: Request, found: int, many: int, step: Step) -> None:
        for at in range(found, found + many):
            content = tuple(request.text[: (at + 1) * self.size])
            tier = 0 if content in self.tiers[0] else 1
            self.tiers[tier].remove(content)
            self.tiers[tier].append(content)
            step.loads[tier] += 1
        request.loaded += many * self.size

    def share(self, request: Request, blocks: list[int]) -> None:
        for block in blocks:
            if self.holders[block] == 0:
                self.free.remove(block)
            self.holders[block] += 1
            request.blocks.append(block)

    def take(self, request: Request, count: int) -> None:
        for _ in range(count):
            block = self.free.pop(0)
            if block in self.content:
                content = self.content.pop(block)
                self.where[content].remove(block)
                if not self.where[content]:
                    self.keep_there(content)
            self.holders[block] = 1
            request.blocks.append(block)

    def keep(self, request: Request) -> None:
        for at in range(request.computed // self.size):
            content, block = tuple(request.text[: (at + 1) * self.size]), request.blocks[at]
            if self.keeps and block not in self.content:
                self.content[block] = content
                self.where.setdefault(content, []).append(block)

    def release(self, request: Request) -> None:
        for block in reversed(request.blocks):
            self.holders[block] -= 1
            if self.holders[block] == 0:
                self.free.append(block)
        request.blocks = []


@dataclass
class Step:
    """What a step does, and when."""

    parts: list[tuple[int, int, int]] = field(default_factory=list)
    """(request, tokens before, new tokens)."""
    makes: list[int] = field(default_factory=list)
    gives: list[int] = field(default_factory=list)
    """Of those that it makes tokens for: how many."""
    drafts: int = 0
    """Tokens that it checks besides."""
    loads: list[int] = field(default_factory=lambda: [0, 0])
    """Blocks that come from each tier."""
    late: list[bool] = field(default_factory=list)
    """Of those that it makes a token for: whether there was a preemption since the one before."""
    start: int = 0
    end: int = 0
    running: int = 0
    waiting: int = 0
    used: int = 0


def text_of(requests: Requests, r: int) -> list[int]:
    """Return what each token of prompt and answer is."""
    names = requests.shared[r] if requests.shared else ()
    tokens = int(requests.prompt[r] + requests.output[r])
    shared = min(len(names) * requests.shared_block, int(requests.prompt[r]))
    unit = max(1, requests.shared_block)
    # Numbers, which hash faster than pairs.
    own = [
        names[at // unit] * 100 + at % unit if at < shared else -(r * 1000 + at + 1) for at in range(tokens)
    ]
    if requests.follows and (reused := int(requests.follows.reused[r])):
        own[:reused] = text_of(requests, int(requests.follows.of(r)[0]))[:reused]
    return own


class Sessions:
    """Which requests still wait for others."""

    def __init__(self, requests: Requests) -> None:
        own = requests.follows
        many = len(requests)
        self.waits = {r: {*own.of(r).tolist()} for r in range(many) if len(own.of(r))} if own else {}
        self.delay = own.delay.tolist() if own else []

    def come(self, finished: Request, of: list[Request]) -> list[Request]:
        """Return the requests that come because one is done."""
        found = []
        for r, waits in list(self.waits.items()):
            waits.discard(finished.number)
            if not waits:
                del self.waits[r]
                of[r].arrival = finished.last + self.delay[r]
                found.append(of[r])
        return found


def in_order(requests: Iterable[Request]) -> deque[Request]:
    """Return requests in the order in which they come."""
    return deque(sorted(requests, key=lambda each: (each.arrival, each.number)))


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


class Sglang(Reference):
    """Prompts first, in steps of their own."""

    less = 0
    """Steps of tokens since there was nothing to do, or since one had to go."""

    def idle(self) -> None:
        self.less = 0

    def share(self, request: Request) -> int:
        """What is kept free for the answer of a request, in millionths of tokens as whole numbers."""
        millionths = max(98_000, 700_000 - 1003 * self.less)
        return min(4096, request.output - request.made) * millionths // 1_000_000

    def schedule(self) -> Step:
        step = self.prompts()
        if not step.parts:
            self.tokens(step)
            self.less += 1
        return step

    def prompts(self) -> Step:
        step, budget = Step(), self.engine.budget
        reserved = sum(map(self.share, self.running))
        for request in [each for each in self.running if each.cut]:
            left = request.prompt + request.made - request.computed
            new = min(left, budget)
            if self.lacks(request, request.computed + new) > len(self.cache.free):
                return step
            self.compute(step, request, new)
            budget -= new
            request.cut = new < left
            if request.cut:
                return step
        while self.waiting and budget and len(self.running) < self.engine.sequences:
            request = self.waiting[0]
            tokens = request.prompt + request.made
            found = self.cache.found(request, tokens)
            free = len(self.cache.free) - sum(self.cache.holders[block] == 0 for block in found)
            blocks, answer = -(-tokens // self.engine.block) - len(found), request.output - request.made
            if blocks > free:
                break
            if self.running and blocks * self.engine.block + reserved + answer > free * self.engine.block:
                break
            reserved += self.share(request)
            there = len(found) + self.cache.there(request, len(found), tokens)
            left = 0 if self.brings(request) else tokens - there * self.engine.block
            new = min(left, budget)
            request.cut = new < left
            self.begin(step, request, found, new)
            budget -= new
            if request.cut:
                break
        return step

    def tokens(self, step: Step) -> None:
        def writers() -> list[Request]:
            return [each for each in self.running if not each.cut and each.made < each.output]

        while sum(self.lacks(each, each.computed + 1 + self.more) for each in writers()) > len(
            self.cache.free
        ):
            # The one with the fewest tokens goes; of several that with the longest prompt, the first of these.
            victim = min(self.running, key=lambda each: (each.made, -each.prompt))
            self.running.remove(victim)
            self.cache.release(victim)
            victim.again += victim.computed
            victim.computed, victim.cut, victim.lost = 0, False, True
            victim.preempted += 1
            self.less = 0
            self.waiting.appendleft(victim)
        for request in writers():
            self.compute(step, request, 1, self.more)


class TensorRt(Reference):
    """No request begins whose answer the cache cannot hold; prompts are whole."""

    def promised(self, request: Request) -> int:
        return self.lacks(request, request.prompt + request.output + self.more)

    def schedule(self) -> Step:
        step, budget = Step(), self.engine.budget
        for request in self.running:
            left = request.prompt + request.made - request.computed
            if budget and request.computed < request.prompt + request.output - 1:
                new = min(left, budget)
                drafts = self.drafts(request, new)
                if new + drafts <= budget:
                    self.compute(step, request, new, drafts)
                    budget -= new + drafts
        while self.waiting and budget and len(self.running) < self.engine.sequences:
            request = self.waiting[0]
            found = self.cache.found(request, request.prompt + request.made)
            free = len(self.cache.free) - sum(self.cache.holders[block] == 0 for block in found)
            if sum(map(self.promised, [*self.running, request])) - len(found) > free:
                break
            there = len(found) + self.cache.there(request, len(found), request.prompt + request.made)
            new = request.prompt + request.made - there * self.engine.block - self.brings(request)
            too_long = request.prompt > self.engine.budget and budget == self.engine.budget
            if new > budget and not too_long:
                break
            new = min(new, budget)
            computed = there * self.engine.block + self.brings(request)
            drafts = self.more if new == 1 and computed >= request.prompt else 0
            if drafts and new + drafts > budget:
                break
            self.begin(step, request, found, new, drafts)
            budget -= new + drafts
        return step


RULES = {"vllm": Reference, "sglang": Sglang, "trtllm": TensorRt}


class Together:
    """Ranks with requests and blocks of their own that go through each step together."""

    def __init__(
        self,
        requests: Requests,
        engine: Engine,
        price: Callable[[Step, Callable[[int], Request], int], int],
    ) -> None:
        self.engine, self.price, self.clients = engine, price, requests.clients
        self.ranks = [Reference(requests, engine, lambda step, of: 0) for _ in range(engine.ranks)]
        self.requests = self.ranks[0].requests
        for rank in self.ranks:
            rank.requests, rank.own, rank.clients = self.requests, [], 0
            rank.sessions = self.ranks[0].sessions
        self.ahead = self.ranks[0].ahead
        for rank in self.ranks:
            rank.ahead = deque()
        self.steps: list[tuple[int, int, int, int, int, int]] = []

    def run(self) -> None:
        ahead, flights = self.ahead, deque[list[Step]]()
        now = device = 0
        while any(request.last < 0 for request in self.requests):
            while ahead and 0 <= ahead[0].arrival <= now:
                rank = min(self.ranks, key=lambda each: len(each.running) + len(each.waiting))
                rank.waiting.append(ahead.popleft())
                rank.own.append(rank.waiting[-1])
            for rank in self.ranks:
                rank.now = now
            work = any(rank.running or rank.waiting for rank in self.ranks)
            if len(flights) < (2 if self.engine.ahead else 1) and work:
                parts = [rank.schedule() for rank in self.ranks]
                for rank in self.ranks:
                    rank.check()
                tokens = sum(new for step in parts for _, _, new in step.parts)
                if tokens:
                    each = -(-tokens // len(parts))
                    start = max(now, device)
                    device = start + max(self.price(step, self.requests.__getitem__, each) for step in parts)
                    for step in parts:
                        step.end = device
                    flights.append(parts)
                    counts = [
                        sum(len(rank.running) for rank in self.ranks),
                        sum(len(rank.waiting) for rank in self.ranks),
                        sum(self.engine.blocks - len(rank.cache.free) for rank in self.ranks),
                    ]
                    self.steps.append((start, device, tokens, *counts))  # type: ignore[arg-type]
                    continue
            if flights:
                done = sum(request.last >= 0 for request in self.requests)
                parts = flights.popleft()
                for rank, step in zip(self.ranks, parts, strict=True):
                    rank.results(step)
                for rank in self.ranks:
                    ahead, rank.ahead = in_order([*ahead, *rank.ahead]) if rank.ahead else ahead, deque()
                now = max(now, parts[0].end)
                for finished in range(done + 1, 1 + sum(each.last >= 0 for each in self.requests)):
                    if self.clients and self.clients + finished - 1 < len(self.requests):
                        self.requests[self.clients + finished - 1].arrival = parts[0].end
            else:
                now = ahead[0].arrival
