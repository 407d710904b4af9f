"""Network model `credit`, ps by ps and flit by flit: slow and obvious.

Every flit has its own time on every link, in a list; the fast kernel has closed forms for whole packets.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from armillary.engine.transport.credit.transport import Credit, datelines
from armillary.platform.topology import Topology


@dataclass
class Packet:
    """`head` is when it may leave where it is, `flits` when each of its flits is there with its last byte."""

    message: int
    route: list[int]
    size: int
    head: int
    flits: list[int]
    hop: int = 0
    sent: list[int] = field(default_factory=list)


class Reference:
    """One network. Flits of all links take whole ps."""

    def __init__(self, credit: Credit, topology: Topology, depth: int) -> None:
        self.credit, self.topology = credit, topology
        self.delay = round(credit.router_delay * 1000)
        self.ring, self.dateline = (column.tolist() for column in datelines(topology))
        first, incoming = topology.incoming
        self.incoming = {
            node: incoming[first[node] : first[node + 1]].tolist() for node in range(topology.nodes)
        }
        self.pace = [round(credit.flit * 1000 / rate) for rate in topology.bandwidth]
        self.latency = [round(latency * 1000) for latency in topology.latency]
        self.space = {(link, vc): depth for link in range(topology.links) for vc in range(credit.vcs)}
        self.slots: dict[tuple[int, int], list[Packet]] = defaultdict(list)
        self.nic: dict[int, list[dict[str, int]]] = defaultdict(list)
        self.on_link: dict[int, tuple[Packet, tuple[int, int] | None, Packet]] = {}
        self.returns: dict[int, list[tuple[tuple[int, int], int]]] = defaultdict(list)
        self.turn = dict.fromkeys(range(topology.links), -1)
        self.next_vc = dict.fromkeys(range(topology.links), 0)
        self.arrived: dict[int, int] = {}
        self.open: dict[int, int] = {}

    def run(self, messages: list[dict[str, Any]], limit: int) -> dict[int, int]:
        """Move messages {begin, route, size, key}; returns when each that arrived by `limit` did."""
        now = 0
        while now <= limit and len(self.arrived) < len(messages):
            self.step(now)
            # What begins now comes after what was there before.
            for number, message in enumerate(messages):
                if message["begin"] == now:
                    self.begin(number, message)
            self.step(now)
            now += 1
        return self.arrived

    def begin(self, number: int, message: dict[str, Any]) -> None:
        """Put a message into the NIC of its first link."""
        if not message["route"]:
            self.arrived[number] = message["begin"]
            return
        size, packet = message["size"], self.credit.packet
        self.open[number] = max(1, -(-size // packet))
        sizes = [min(packet, size - at) for at in range(0, max(size, 1), packet)]
        entry = {"number": number, "key": message["key"], "sizes": sizes, "route": message["route"]}
        self.nic[message["route"][0]].append(entry)

    def step(self, now: int) -> None:
        """One ps."""
        for slot, flits in self.returns.pop(now, []):
            self.space[slot] += flits
        # Without latency a flit may pass several links in a ps, each one after the other.
        for _ in range(self.topology.nodes):
            for link in list(self.on_link):
                self.pass_flits(link, now)
        self.take_in(now)
        for link in range(self.topology.links):
            if link not in self.on_link:
                self.arbitrate(link, now)
        self.take_in(now)

    def pass_flits(self, link: int, now: int) -> None:
        """A flit has gone when it had its time after the one before, and has come with its last byte."""
        here, slot, there = self.on_link[link]
        while len(here.sent) - 1 < len(here.flits):
            when = max(here.sent[-1] + self.pace[link], here.flits[len(here.sent) - 1])
            if when > now:
                return
            here.sent.append(when)
            there.flits[len(here.sent) - 2] = when + self.latency[link] + self.delay
        if self.credit.switching == "store-and-forward" and there.hop < len(there.route):
            there.head = here.sent[-1] + self.latency[link] + self.delay
        del self.on_link[link]
        if slot is not None:
            self.slots[slot].pop(0)
            self.give_back(slot, len(here.flits), now)

    def give_back(self, slot: tuple[int, int], flits: int, now: int) -> None:
        """Send credits upstream."""
        if self.latency[slot[0]]:
            self.returns[now + self.latency[slot[0]]].append((slot, flits))
        else:
            self.space[slot] += flits

    def take_in(self, now: int) -> None:
        """NPUs read the first packet of every slot at the pace of its link."""
        for slot, packets in self.slots.items():
            while packets and packets[0].hop == len(packets[0].route) and self.took(packets[0], slot[0], now):
                first = packets.pop(0)
                self.give_back(slot, len(first.flits), now)
                self.open[first.message] -= 1
                if not self.open[first.message]:
                    self.arrived[first.message] = now

    def took(self, packet: Packet, link: int, now: int) -> bool:
        """Return whether all of a packet has been read."""
        if packet.head > now:
            return False
        packet.sent = packet.sent or [now]
        while len(packet.sent) - 1 < len(packet.flits):
            when = max(packet.sent[-1] + self.pace[link], packet.flits[len(packet.sent) - 1])
            if when > now:
                return False
            packet.sent.append(when)
        return True

    def vcs(self, link: int, packet: Packet) -> list[int]:
        """Return the VCs that a packet may take, the next in turn first."""
        every = list(range(self.credit.vcs))
        if self.credit.vcs > 1 and self.ring[link]:
            ring = self.ring[link]
            before = packet.route[: packet.hop]
            crossed = False
            for earlier in reversed(before):
                if self.ring[earlier] != ring:
                    break
                crossed |= bool(self.dateline[earlier])
            middle = (self.credit.vcs + 1) // 2
            every = every[middle:] if crossed else every[:middle]
        at = every.index(self.next_vc[link]) if self.next_vc[link] in every else 0
        return every[at:] + every[:at]

    def arbitrate(self, link: int, now: int) -> None:
        """Give a free link to the next in turn that is ready and fits."""
        node = int(self.topology.tail[link])
        inputs: list[tuple[int, int] | None] = [
            (incoming, vc) for incoming in self.incoming[node] for vc in range(self.credit.vcs)
        ]
        inputs.append(None)
        order = inputs[self.turn[link] + 1 :] + inputs[: self.turn[link] + 1]
        for slot in order:
            entry = None
            if slot is None:
                waiting = self.nic[link]
                if not waiting:
                    continue
                least = min(entry["key"] for entry in waiting)
                entry = next(entry for entry in waiting if entry["key"] == least)
                size = entry["sizes"][0]
                count = max(1, -(-size // self.credit.flit))
                packet = Packet(entry["number"], entry["route"], size, now, [-(10**9)] * count)
            else:
                packets = self.slots[slot]
                if not packets or packets[0].sent or packets[0].head > now:
                    continue
                packet = packets[0]
                if packet.hop == len(packet.route) or packet.route[packet.hop] != link:
                    continue
                count = len(packet.flits)
            for vc in self.vcs(link, packet):
                if self.space[link, vc] >= count:
                    break
            else:
                continue
            if entry is not None:
                entry["sizes"].pop(0)
                self.nic[link].remove(entry)
                if entry["sizes"]:
                    self.nic[link].append(entry)
            self.space[link, vc] -= count
            self.turn[link] = inputs.index(slot)
            self.next_vc[link] = vc + 1
            packet.sent = [now]
            # Whatever is not there yet is a long way off.
            there = Packet(packet.message, packet.route, packet.size, 0, [10**9] * count, packet.hop + 1)
            through = self.latency[link] + self.delay
            there.head = now + through
            if there.hop < len(there.route):
                there.head = 10**9 if self.credit.switching == "store-and-forward" else now + max(1, through)
            self.slots[link, vc].append(there)
            self.on_link[link] = packet, slot, there
            return
