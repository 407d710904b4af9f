"""Requests, blocks and steps of the slow loop (`reference`): objects, numbers in lists, and whole texts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

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
