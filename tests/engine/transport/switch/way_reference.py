"""Packets that choose their ways, again: candidates asked of the routing at every node, queues looked at afresh."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from armillary.engine.transport.packet import Packet
from armillary.platform.topology.detours import Ugal, Valiant
from armillary.platform.topology.routing import Adaptive, Shortest

from ..packet.packet_reference import PacketReference, Piece, hashed

SLOTS, TRIES = 256, 16


class WayReference(PacketReference):
    """As `PacketReference`, with `Packet.ways`."""

    def __init__(
        self, options: Packet, routing: Shortest, messages: list[tuple[int, int, int, int, int]]
    ) -> None:
        self.ways, self.routing, self.topology = options.ways, routing, routing.topology
        self.spread = options.ways.spread_on(routing)
        self.flowlets: dict[tuple[int, int], tuple[int, int]] = {}
        self.turns: dict[tuple[int, int], Iterator[int]] = {}
        super().__init__(options, routing, messages)

    def place(self, node: int) -> int:
        """Return where a detour ends: a group, or the switch of an NPU."""
        if self.topology.name == "dragonfly":
            return int(self.topology.block[node])
        own = node < self.topology.npus and not self.topology.forwards[node]
        return int(self.topology.head[self.topology.first_link[node]]) if own else node

    def set_out(self, piece: Piece) -> None:
        way = piece.of.way
        source, piece.goal = int(self.topology.tail[way[0]]), int(self.topology.head[way[-1]])
        seed = hashed(getattr(self.routing, "seed", 0), source, piece.goal)
        if self.spread == "permuted":
            numbers = self.turns.setdefault((source, piece.goal), self.in_turn(way[0], piece.goal, seed))
            piece.tag, piece.way = next(numbers), [way[0]]
            return
        turn = piece.of.to_send // self.options.mtu % self.ways.qps
        piece.tag = hashed(getattr(self.routing, "seed", 0), source, piece.goal, turn)
        if self.spread == "packet":
            piece.tag = hashed(piece.tag, self.lines[way[0]].use["size"])
        if isinstance(self.routing, Valiant):
            piece.via = self.drawn(source, piece)
        piece.undecided = isinstance(self.routing, Ugal)
        piece.way = [way[0]]

    def in_turn(self, link: int, goal: int, seed: int) -> Iterator[int]:
        """Count all ways, each once per round."""
        ways, node = 1, int(self.topology.head[link])
        while node != goal:
            links = self.routing.candidates(node, goal).tolist()
            ways, node = ways * len(links), int(self.topology.head[links[0]])
        most = 1 << (ways - 1).bit_length()
        for round in count():
            mask = hashed(seed, round) % most
            yield from (number ^ mask for number in range(most) if number ^ mask < ways)

    def drawn(self, source: int, piece: Piece) -> int | None:
        nodes = [
            node
            for node in range(self.topology.nodes)
            if self.topology.forwards[node]
            and (
                node < self.topology.npus
                or any(self.topology.tail[self.topology.head == node] < self.topology.npus)
            )
        ]
        ends = {self.place(source), self.place(piece.goal)}
        state = piece.tag
        for _ in range(TRIES if len(ends) > 1 else 0):
            state = hashed(state, len(nodes))
            if self.place(nodes[state % len(nodes)]) not in ends:
                return nodes[state % len(nodes)]
        return None

    def waits(self, link: int, now: int) -> int:
        return 2 * self.lines[link].depth() + (self.lines[link].free > now)

    def least(self, links: list[int], begin: int, now: int) -> int:
        turned = links[begin % len(links) :] + links[: begin % len(links)]
        return min(turned, key=lambda link: self.waits(link, now))

    def queue(self, node: int, target: int, tag: int, now: int) -> int:
        most = 0
        for _ in range(2):
            if self.place(node) != self.place(target):
                link = self.least(self.routing.candidates(node, target).tolist(), hashed(tag, node), now)
                most, node = max(most, self.waits(link, now)), int(self.topology.head[link])
        return most

    def decide(self, piece: Piece, link: int, now: int) -> None:
        piece.undecided = False
        node = int(self.topology.head[link])
        via = self.drawn(int(self.topology.tail[link]), piece)
        if via is None:
            return
        goal = piece.goal
        if not self.topology.forwards[goal]:
            goal = int(self.topology.head[self.topology.first_link[goal]])
        far = int(self.routing.far(goal)[node])
        there = int(self.routing.far(via)[node] + self.routing.far(goal)[via])
        straight = self.queue(node, goal, piece.tag, now) * far
        if straight > self.queue(node, via, piece.tag, now) * there + 2 * self.ways.ugal_bias:
            piece.via = via

    def go_on(self, piece: Piece, link: int, now: int) -> None:
        node = int(self.topology.head[link])
        if node == piece.goal:
            return
        if piece.undecided:
            self.decide(piece, link, now)
        if piece.via is not None and self.place(piece.via) == self.place(node):
            piece.via = None
        links = self.routing.candidates(node, piece.goal if piece.via is None else piece.via).tolist()
        if self.spread == "permuted":
            piece.tag, digit = divmod(piece.tag, len(links))
            piece.way = [links[digit]]
            return
        piece.way = [self.choice(links, hashed(piece.tag, node), node, now)]

    def choice(self, links: list[int], own: int, node: int, now: int) -> int:
        def by(own: int) -> int:
            return (
                self.least(links, own, now) if isinstance(self.routing, Adaptive) else links[own % len(links)]
            )

        if len(links) == 1 or self.spread != "flowlet":
            return by(own)
        slot = node, own % SLOTS
        time, link = self.flowlets.get(slot, (0, -1))
        if link not in links or now - time > round(self.ways.flowlet_gap * 1000):
            link = by(hashed(own, now))
        self.flowlets[slot] = now, link
        return link

    def check(self, got: Any) -> None:
        """Compare what happened."""
        assert got.arrived.tolist() == self.arrived
        for column in ("size", "busy", "depth", "marks", "paused"):
            assert getattr(got.use, column).tolist() == [line.use[column] for line in self.lines], column
