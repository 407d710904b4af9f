"""The rules of SGLang and TensorRT-LLM in plain Python, and ranks that go through each step together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from armillary.serving.replica import Engine
from armillary.serving.requests import Requests

from .reference import Reference
from .reference_parts import Request, Step, in_order


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
