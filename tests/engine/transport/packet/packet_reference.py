"""Network model `packet` again: every packet an object, every arrival an event, buffers counted afresh each time."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from armillary.engine.transport import layout as lk
from armillary.engine.transport.network import link_rows
from armillary.engine.transport.packet import Packet
from armillary.platform.topology import Routing

BILLION = 10**9
ALL = 1 << 20


def hashed(state: int, *parts: int) -> int:
    """Return 31 bits."""
    for part in parts:
        state = (state ^ part % 2**31) * 0x45D9F3B % 2**31
        state = (state ^ state // 2**15) * 0x2C1B3C6D % 2**31
        state ^= state // 2**13
    return state


@dataclass
class Rate:
    """Rate control of one message; times in ps, rates in bytes/s, alpha in 1 / ALL."""

    line: int
    rate: int
    target: int
    alpha: int = ALL
    decayed: int = 1 << 61
    risen: int = 1 << 61
    times: int = 0
    rounds: int = 0
    sent: int = 0
    quiet: int = 0
    wait: int = 0


@dataclass
class Message:
    number: int
    way: list[int]
    key: int
    to_send: int
    to_come: int
    rate: Rate | None = None


@dataclass
class Piece:
    """A packet: payload and all bytes, the way left, the link it came by."""

    of: Message
    payload: int
    size: int
    way: list[int]
    came_by: int = -1
    marked: bool = False
    goal: int = 0
    tag: int = 0
    via: int | None = None
    undecided: bool = False


@dataclass
class Line:
    """A link with its port."""

    slow: int
    fast: int
    latency: int
    free: int = 0
    expected: bool = False
    shut: bool = False
    told: bool = False
    turn: bool = False
    count: int = 0
    queue: list[Piece] = field(default_factory=list)
    own: dict[int, list[Message]] = field(default_factory=lambda: defaultdict(list))
    blocked_since: int | None = None
    use: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def duration(self, size: int) -> int:
        return -(-size * self.slow // self.fast)

    def depth(self) -> int:
        return sum(piece.size for piece in self.queue)

    def keys(self) -> list[int]:
        return sorted(key for key, messages in self.own.items() if messages)

    def works(self) -> bool:
        return bool(self.queue or self.keys())


class PacketReference:
    """Messages are (begin, source, target, size, key)."""

    def __init__(
        self, options: Packet, routing: Routing, messages: list[tuple[int, int, int, int, int]]
    ) -> None:
        self.options = options
        rows = link_rows(routing.topology).tolist()
        self.lines = [Line(row[lk.L_SLOW], row[lk.L_FAST], row[lk.L_LATENCY]) for row in rows]
        _, self.xoff, self.xon = (table.tolist() for table in options.tables(routing.topology))
        self.arrived = [-1] * len(messages)
        self.most_held: dict[int, int] = defaultdict(int)
        self.made = self.linked = 0
        self.events: list[tuple[int, int, int, int, int, str, Any]]
        begins: dict[int, list[Message]] = defaultdict(list)
        for number, (begin, source, target, size, key) in enumerate(messages):
            way = routing.paths([source], [target])[0].tolist()
            message = Message(number, way, key, size, size)
            if options.dcqcn is not None and way:
                line = self.lines[way[0]]
                rate = line.fast * 10**12 // line.slow
                message.rate = Rate(rate, rate, rate)
            begins[begin].append(message)
        self.events = [(begin, 2, 0, 0, 0, "begin", together) for begin, together in begins.items()]
        heapq.heapify(self.events)
        while self.events:
            now, *_, what, about = heapq.heappop(self.events)
            getattr(self, f"on_{what}")(about, now)

    def of_link(self, time: int, link: int, code: int, what: str, about: Any) -> None:
        """Events of links come first, by link; then others as made; then what begins."""
        self.linked += 1
        heapq.heappush(self.events, (time, 0, link, code, self.linked, what, about))

    def other(self, time: int, what: str, about: Any) -> None:
        self.made += 1
        heapq.heappush(self.events, (time, 1, self.made, 0, 0, what, about))

    def on_begin(self, messages: list[Message], now: int) -> None:
        for message in messages:
            if message.way:
                self.on_ready(message, now)
            else:
                self.other(now, "here", message)

    def on_here(self, message: Message, now: int) -> None:
        self.arrived[message.number] = now

    def on_ready(self, message: Message, now: int) -> None:
        self.lines[message.way[0]].own[message.key].append(message)
        self.expect(message.way[0], now)

    def expect(self, link: int, now: int) -> None:
        line = self.lines[link]
        if line.shut:
            line.blocked_since = now if line.blocked_since is None else line.blocked_since
        elif not line.expected:
            line.expected = True
            self.of_link(max(now, line.free), link, 0, "start", link)

    def on_start(self, link: int, now: int) -> None:
        line = self.lines[link]
        line.expected = False
        if line.shut:
            return
        own = bool(line.keys()) and (line.turn or not line.queue)
        line.turn = not own
        if own:
            piece = self.cut(link, now)
        else:
            piece = line.queue.pop(0)
            self.check_buffer(piece.came_by, now)
        self.send(link, piece, now)
        if line.works():
            self.expect(link, now)

    def cut(self, link: int, now: int) -> Piece:
        line = self.lines[link]
        message = line.own[line.keys()[0]].pop(0)
        payload = min(self.options.mtu, message.to_send)
        size = payload + self.options.header
        message.to_send -= payload
        if message.to_send:
            again = now if message.rate is None else self.pace(message.rate, size, now)
            if again > now + line.duration(size):
                self.other(again, "woken", message)
            else:
                line.own[message.key].append(message)
        piece = Piece(message, payload, size, list(message.way))
        self.set_out(piece)
        return piece

    def set_out(self, piece: Piece) -> None:
        """A packet begins; it has the way of its message, unless `go_on` says where it goes."""

    def go_on(self, piece: Piece, link: int, now: int) -> None:
        """A packet has come by a link."""

    def send(self, link: int, piece: Piece, now: int) -> None:
        line = self.lines[link]
        line.free = now + line.duration(piece.size)
        line.use["size"] += piece.size
        line.use["busy"] += line.free - now
        self.of_link(line.free + line.latency, link, 1, "arrive", (link, piece))

    def on_arrive(self, about: tuple[int, Piece], now: int) -> None:
        link, piece = about
        piece.way.pop(0)
        self.go_on(piece, link, now)
        if not piece.way:
            self.receive(piece, now)
            return
        piece.came_by = link
        line = self.lines[piece.way[0]]
        line.count += 1
        if not line.expected and not line.shut and line.free <= now:
            self.send(piece.way[0], piece, now)
            return
        if self.options.kmin is not None and self.marks(piece.way[0], line.depth(), line.count - 1):
            piece.marked = True
            line.use["marks"] += 1
        line.queue.append(piece)
        line.use["depth"] = max(line.use["depth"], line.depth())
        self.expect(piece.way[0], now)
        self.check_buffer(link, now)

    def marks(self, link: int, depth: int, count: int) -> bool:
        assert self.options.kmin is not None
        kmax = self.options.kmin if self.options.kmax is None else self.options.kmax
        if depth <= self.options.kmin:
            return False
        if depth >= kmax:
            return True
        state = hashed(0x5BD1E995, self.options.seed, link, count)
        return state < round(self.options.pmax * 2**31) * (depth - self.options.kmin) // (
            kmax - self.options.kmin
        )

    def held(self, link: int) -> int:
        return sum(piece.size for line in self.lines for piece in line.queue if piece.came_by == link)

    def check_buffer(self, link: int, now: int) -> None:
        line, held = self.lines[link], self.held(link)
        self.most_held[link] = max(self.most_held[link], held)
        if held > self.xoff[link] and not line.told:
            line.told = True
            self.other(now + line.latency, "pause", link)
        elif held <= self.xon[link] and line.told:
            line.told = False
            self.other(now + line.latency, "resume", link)

    def on_pause(self, link: int, now: int) -> None:
        line = self.lines[link]
        line.shut = True
        line.blocked_since = now if line.works() else None

    def on_resume(self, link: int, now: int) -> None:
        line = self.lines[link]
        line.shut = False
        if line.blocked_since is not None:
            line.use["paused"] += now - line.blocked_since
        if line.works():
            self.expect(link, now)

    def receive(self, piece: Piece, now: int) -> None:
        message = piece.of
        message.to_come -= piece.payload
        rate = message.rate
        if rate is not None and piece.marked and message.to_send and now >= rate.quiet:
            assert self.options.dcqcn is not None
            rate.quiet = now + round(self.options.dcqcn.notify * 1000)
            self.other(now + sum(self.lines[link].latency for link in message.way), "notice", message)
        if message.to_come == 0:
            self.arrived[message.number] = now

    # Rate control, as in Zhu et al., section 3.1

    def on_notice(self, message: Message, now: int) -> None:
        assert self.options.dcqcn is not None and message.rate is not None
        if message.to_come == 0:
            return
        state, gain = message.rate, max(1, round(self.options.dcqcn.g * ALL))
        self.catch_up(state, now)
        least = min(state.line, round(self.options.dcqcn.least * BILLION))
        state.target = state.rate
        state.rate = max(least, state.rate - state.rate * state.alpha // (2 * ALL))
        state.alpha = state.alpha - state.alpha * gain // ALL + gain
        state.decayed = state.risen = now
        state.times = state.rounds = state.sent = 0

    def catch_up(self, state: Rate, now: int) -> None:
        assert self.options.dcqcn is not None
        gain = max(1, round(self.options.dcqcn.g * ALL))
        while state.decayed + round(self.options.dcqcn.alpha_timer * 1000) <= now:
            state.decayed += round(self.options.dcqcn.alpha_timer * 1000)
            state.alpha -= state.alpha * gain // ALL
        while state.risen + round(self.options.dcqcn.timer * 1000) <= now:
            state.risen += round(self.options.dcqcn.timer * 1000)
            state.times += 1
            self.rise(state)

    def rise(self, state: Rate) -> None:
        assert self.options.dcqcn is not None
        past = min(state.times, state.rounds) - self.options.dcqcn.fast_recovery
        if past > 0:
            state.target += past * round(self.options.dcqcn.hyper * BILLION)
        elif max(state.times, state.rounds) >= self.options.dcqcn.fast_recovery:
            state.target += round(self.options.dcqcn.additive * BILLION)
        state.target = min(state.target, state.line)
        state.rate = min(state.line, -(-(state.rate + state.target) // 2))

    def pace(self, state: Rate, size: int, now: int) -> int:
        assert self.options.dcqcn is not None
        self.catch_up(state, now)
        if state.rate >= state.line:
            return now
        state.sent += size
        if state.sent >= self.options.dcqcn.byte_counter:
            state.sent -= self.options.dcqcn.byte_counter
            state.rounds += 1
            self.rise(state)
        state.wait = size
        return self.until(state, now)

    def until(self, state: Rate, now: int) -> int:
        """Return when the rate has made up for what was sent, or rises."""
        assert self.options.dcqcn is not None
        time = now - (-state.wait * 10**12 // state.rate)
        rise = state.risen + round(self.options.dcqcn.timer * 1000)
        state.wait = 0 if time <= rise else max(1, state.wait - state.rate * (rise - now) // 10**12)
        return min(time, rise)

    def on_woken(self, message: Message, now: int) -> None:
        assert message.rate is not None
        if message.rate.wait:
            self.catch_up(message.rate, now)
            time = self.until(message.rate, now)
            if time > now:
                self.other(time, "woken", message)
                return
        self.on_ready(message, now)
