"""The slow reference of network model `flow`: all levels are found anew at every time at which anything happens."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from armillary.engine.transport.network import link_rows
from armillary.platform.topology.graph import Topology

UNIT = 1 << 40


@dataclass
class Message:
    begin: int
    route: list[int]
    size: int
    key: int = 0
    weight: int = 1


def levels(rooms: list[int], flows: list[Message]) -> list[int]:
    """Fill links in whole units of 1 / UNIT bytes per ps, one key after the other."""
    found = [0] * len(flows)
    rooms = list(rooms)
    for key in sorted({flow.key for flow in flows}):
        rising = [i for i, flow in enumerate(flows) if flow.key == key]
        level = 0
        while rising:
            full = {}
            for link in {link for i in rising for link in flows[i].route}:
                weight = sum(flows[i].weight for i in rising if link in flows[i].route)
                full[link] = max(level, -(-max(rooms[link], 0) // weight))
            level = min(full.values())
            link = min(link for link in full if full[link] == level)
            for i in [i for i in rising if link in flows[i].route]:
                found[i] = level
                for other in flows[i].route:
                    rooms[other] -= flows[i].weight * level
                rising.remove(i)
    return found


def arrivals(messages: list[Message], stages: list[tuple[int, Topology]]) -> list[int]:
    """Return when messages arrive, in ps, -1: never."""
    arrived = [-1] * len(messages)
    left = {i: Fraction(message.size) for i, message in enumerate(messages)}
    in_flight: list[int] = []
    times = {message.begin for message in messages} | {time for time, _ in stages}
    bounds = [0] * len(messages)
    now, rows = 0, link_rows(stages[0][1]).tolist()
    while True:
        before, rows = rows, link_rows([topology for time, topology in stages if time <= now][-1]).tolist()
        for i in in_flight:
            if any(rows[link][:2] != before[link][:2] for link in messages[i].route):
                bounds[i] = 0
        for i, message in enumerate(messages):
            if message.begin != now:
                continue
            if message.route and (message.size or any(rows[link][0] == 0 for link in message.route)):
                in_flight.append(i)
                paces = [Fraction(rows[link][0], rows[link][1]) for link in message.route]
                bounds[i] = now + -(-message.size * max(paces) // 1)
            else:
                arrived[i] = now + sum(rows[link][2] for link in message.route)
        rooms = [-(-fast * UNIT // slow) if slow else 0 for slow, fast, *_ in rows]
        while True:
            flows = [messages[i] for i in in_flight]
            rates = [
                Fraction(f.weight * level, UNIT) for f, level in zip(flows, levels(rooms, flows), strict=True)
            ]
            ends = [
                max(now, now + -(-left[i] // rate), bounds[i]) if rate else None
                for i, rate in zip(in_flight, rates, strict=True)
            ]
            done = [i for i, end in zip(in_flight, ends, strict=True) if end == now]
            for i in done:
                in_flight.remove(i)
                arrived[i] = now + sum(rows[link][2] for link in messages[i].route)
            if not done:
                break
        later = [time for time in times if time > now] + [end for end in ends if end is not None]
        if not later:
            return arrived
        then = min(later)
        for i, rate in zip(in_flight, rates, strict=True):
            left[i] -= rate * (then - now)
        now = then
