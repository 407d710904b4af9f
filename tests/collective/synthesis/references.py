"""Slow, obvious references: the greedy search with sets and lists, and a schedule run on dictionaries of numbers."""

from __future__ import annotations

import heapq
from collections import defaultdict

from armillary.collective.synthesis import SynthesizedSchedule
from armillary.collective.synthesis.edges import Edges
from armillary.collective.synthesis.messages import messages_of
from armillary.collective.synthesis.spread import Options, levels_of, regions_of

Send = tuple[int, int, int]
"""Edge, chunk, ps at which it starts."""


class Greedy:
    """All-gather on a graph, an event at a time."""

    def __init__(self, edges: Edges, per_npu: int, options: Options) -> None:
        self.edges, self.options, self.chunks = edges, options, edges.n * per_npu
        rows, self.region = regions_of(edges, levels_of(edges.cost))
        owner = [chunk // per_npu for chunk in range(self.chunks)]
        self.have = [{c for c in range(self.chunks) if owner[c] == v} for v in range(edges.n)]
        self.rows_of = [rows[:, v].tolist() for v in range(edges.n)]
        self.lacks = {row: set(range(self.chunks)) for row in rows.ravel().tolist()}
        for chunk in range(self.chunks):
            for row in self.rows_of[owner[chunk]]:
                self.lacks[row].discard(chunk)
        self.ports: dict[int, list[int]] = {}
        for edge in sorted(
            range(len(edges.source)), key=lambda w: (edges.source[w], edges.port[w], edges.target[w])
        ):
            self.ports.setdefault(int(edges.port[edge]), []).append(edge)
        self.free: defaultdict[int, int] = defaultdict(int)
        self.again = dict.fromkeys(self.ports, -1)
        self.copies = [0] * self.chunks
        self.random = (options.seed * 7919 + 17) & 0x7FFFFFFF
        self.sends: list[Send] = []
        self.heap: list[tuple[int, int, tuple[str, int, int]]] = []
        self.count = 0
        self.end = 0

    def push(self, time: int, *what: object) -> None:
        heapq.heappush(self.heap, (time, self.count, what))  # type: ignore[arg-type]
        self.count += 1

    def draw(self, below: int) -> int:
        self.random = (self.random * 1103515245 + 12345) & 0x7FFFFFFF
        return (self.random >> 8) % below

    def links(self, edge: int) -> list[int]:
        return self.edges.paths[edge].tolist()

    def run(self) -> list[Send]:
        level = levels_of(self.edges.cost)
        for port, edges in sorted(self.ports.items(), key=lambda item: int(level[item[1][0]])):
            del edges
            self.push(0, "lane", port, -1)
        while self.heap and any(self.lacks[v] for v in range(self.edges.n)):
            now, _, (what, a, b) = heapq.heappop(self.heap)
            if what == "lane":
                if self.free[a] <= now:
                    self.match(a, now, None)
                continue
            self.have[a].add(b)
            for port, edges in self.ports.items():
                if self.edges.source[edges[0]] == a and self.free[port] <= now:
                    self.match(port, now, b)
        return self.sends

    def match(self, port: int, now: int, only: int | None) -> None:
        edges = self.ports[port]
        turn = self.draw(len(edges)) if len(edges) > 1 else 0
        asks = []
        for loose in (False, True)[: 1 + self.options.loose]:
            for edge in edges[turn:] + edges[:turn]:
                target, region = int(self.edges.target[edge]), int(self.region[edge])
                if loose and region == target:
                    continue
                ask = self.clear(edge, now)
                if len(edges) > 1 and ask > now:
                    asks.append(ask)
                    continue
                lacks = self.lacks[target if loose else region]
                chunk = self.choose(int(self.edges.source[edge]), lacks) if only is None else only
                if chunk is not None and chunk in lacks:
                    self.send(edge, chunk, now)
                    return
        if asks and (self.again[port] <= now or min(asks) < self.again[port]):
            self.again[port] = min(asks)
            self.push(min(asks), "lane", port, -1)

    def clear(self, edge: int, now: int) -> int:
        head, ask = now, now
        for i, link in enumerate(self.links(edge)):
            if i and self.free[link] > head:
                ask = max(ask, now + self.free[link] - head)
            head += int(self.edges.latency[link])
        return ask

    def choose(self, source: int, lacks: set[int]) -> int | None:
        possible = self.have[source] & lacks
        found: list[int] = []
        for number in range(self.options.draws):
            if number and not found:
                break
            start = self.draw(self.chunks)
            found += sorted(possible, key=lambda c: (c - start) % _whole(self.chunks))[:1]
        return min(found, key=lambda c: self.copies[c], default=None)

    def send(self, edge: int, chunk: int, now: int) -> None:
        head, tail = now, now
        for link in self.links(edge):
            start = max(head, self.free[link])
            tail = max(start + int(self.edges.duration[link]), tail)
            self.free[link] = tail
            head, tail = start + int(self.edges.latency[link]), tail + int(self.edges.latency[link])
        arrival = -(-tail // 1000) * 1000 + self.edges.after
        target = int(self.edges.target[edge])
        for row in self.rows_of[target]:
            self.lacks[row].discard(chunk)
        self.copies[chunk] += 1
        self.sends.append((edge, chunk, now))
        self.end = max(self.end, arrival)
        self.push(arrival, "come", target, chunk)
        port = int(self.edges.port[edge])
        self.push(self.free[port], "lane", port, -1)


def _whole(chunks: int) -> int:
    """Chunks are looked for in words of 32; none is there beyond the last."""
    return -(-chunks // 32) * 32


def results(schedule: SynthesizedSchedule) -> list[dict[int, frozenset[int]]]:
    """Return for every NPU whose parts each chunk that it holds has at the end, message by message."""
    n, per_npu = schedule.n, schedule.per_npu
    everything = range(n * per_npu)
    held: list[dict[int, frozenset[int]]] = [
        {c: frozenset([v]) for c in everything if schedule.scatter or c // per_npu == v} for v in range(n)
    ]
    messages = messages_of(schedule)
    for source, target, chunk, adds in zip(
        messages.source.tolist(),
        messages.target.tolist(),
        messages.chunk.tolist(),
        messages.adds.tolist(),
        strict=True,
    ):
        got = held[source][chunk]
        if adds:
            assert not got & held[target][chunk], "added twice"
            got |= held[target][chunk]
        held[target][chunk] = got
    return held
