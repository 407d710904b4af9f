"""Slow, obvious twins: the greedy search with sets and lists, and a schedule run on dictionaries of numbers."""

from __future__ import annotations

import heapq
from collections import defaultdict

from armillary.collective.synthesis import SynthesizedSchedule
from armillary.collective.synthesis.messages import messages_of
from armillary.collective.synthesis.spread import Options, levels_of, regions_of
from armillary.collective.synthesis.wires import Wires

Send = tuple[int, int, int]
"""Wire, chunk, ps at which it starts."""


class Greedy:
    """All-gather on a graph, an event at a time."""

    def __init__(self, wires: Wires, per_npu: int, options: Options) -> None:
        self.wires, self.options, self.chunks = wires, options, wires.n * per_npu
        rows, self.region = regions_of(wires, levels_of(wires.cost))
        owner = [chunk // per_npu for chunk in range(self.chunks)]
        self.have = [{c for c in range(self.chunks) if owner[c] == v} for v in range(wires.n)]
        self.rows_of = [rows[:, v].tolist() for v in range(wires.n)]
        self.lacks = {row: set(range(self.chunks)) for row in rows.ravel().tolist()}
        for chunk in range(self.chunks):
            for row in self.rows_of[owner[chunk]]:
                self.lacks[row].discard(chunk)
        self.lanes: dict[int, list[int]] = {}
        for wire in sorted(
            range(len(wires.source)), key=lambda w: (wires.source[w], wires.lane[w], wires.target[w])
        ):
            self.lanes.setdefault(int(wires.lane[wire]), []).append(wire)
        self.free: defaultdict[int, int] = defaultdict(int)
        self.again = dict.fromkeys(self.lanes, -1)
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

    def links(self, wire: int) -> list[int]:
        return self.wires.paths[wire].tolist()

    def run(self) -> list[Send]:
        level = levels_of(self.wires.cost)
        for lane, wires in sorted(self.lanes.items(), key=lambda item: int(level[item[1][0]])):
            del wires
            self.push(0, "lane", lane, -1)
        while self.heap and any(self.lacks[v] for v in range(self.wires.n)):
            now, _, (what, a, b) = heapq.heappop(self.heap)
            if what == "lane":
                if self.free[a] <= now:
                    self.match(a, now, None)
                continue
            self.have[a].add(b)
            for lane, wires in self.lanes.items():
                if self.wires.source[wires[0]] == a and self.free[lane] <= now:
                    self.match(lane, now, b)
        return self.sends

    def match(self, lane: int, now: int, only: int | None) -> None:
        wires = self.lanes[lane]
        turn = self.draw(len(wires)) if len(wires) > 1 else 0
        asks = []
        for loose in (False, True)[: 1 + self.options.loose]:
            for wire in wires[turn:] + wires[:turn]:
                target, region = int(self.wires.target[wire]), int(self.region[wire])
                if loose and region == target:
                    continue
                ask = self.clear(wire, now)
                if len(wires) > 1 and ask > now:
                    asks.append(ask)
                    continue
                lacks = self.lacks[target if loose else region]
                chunk = self.choose(int(self.wires.source[wire]), lacks) if only is None else only
                if chunk is not None and chunk in lacks:
                    self.send(wire, chunk, now)
                    return
        if asks and (self.again[lane] <= now or min(asks) < self.again[lane]):
            self.again[lane] = min(asks)
            self.push(min(asks), "lane", lane, -1)

    def clear(self, wire: int, now: int) -> int:
        head, ask = now, now
        for i, link in enumerate(self.links(wire)):
            if i and self.free[link] > head:
                ask = max(ask, now + self.free[link] - head)
            head += int(self.wires.latency[link])
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

    def send(self, wire: int, chunk: int, now: int) -> None:
        head, tail = now, now
        for link in self.links(wire):
            start = max(head, self.free[link])
            tail = max(start + int(self.wires.duration[link]), tail)
            self.free[link] = tail
            head, tail = start + int(self.wires.latency[link]), tail + int(self.wires.latency[link])
        arrival = -(-tail // 1000) * 1000 + self.wires.after
        target = int(self.wires.target[wire])
        for row in self.rows_of[target]:
            self.lacks[row].discard(chunk)
        self.copies[chunk] += 1
        self.sends.append((wire, chunk, now))
        self.end = max(self.end, arrival)
        self.push(arrival, "come", target, chunk)
        lane = int(self.wires.lane[wire])
        self.push(self.free[lane], "lane", lane, -1)


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
