"""One run of ns-3 over a network that was lowered to a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.base.errors import InputError
from armillary.engine.transport import layout as lk
from armillary.engine.transport.ns3.library import ns3_messages
from armillary.platform.topology.graph import UNBOUNDED

PROTOCOLS = {
    "udp": "udp",
    "udp-fair": "udp-fair",
    "reno": "TcpNewReno",
    "cubic": "TcpCubic",
    "dctcp": "TcpDctcp",
}
"""Our names of protocols, and ns-3's classes of congestion control."""
DATAGRAMS = 2
"""How many of them, the first, answer nothing."""
OPTIONS = 7
"""Options of the transport: place in `PROTOCOLS`, bytes of unbounded queues, then those that `messages.cc` takes."""
SET_UP = 10**12
"""ps of simulated time before our time 0, besides a µs per connection, in which ns-3 opens the connections."""
BITS = 8 * 10**12
"""A byte per ps in bit/s."""


class Simulation:
    """ns-3 with the links and routes of a table; connections are there when the time begins."""

    def __init__(self, table: Sequence[int]) -> None:
        self._table = table
        protocol, room, *options = table[table[lk.T_OPTIONS] : table[lk.T_OPTIONS] + OPTIONS]
        self._ns3: Any = ns3_messages().Simulation(list(PROTOCOLS.values())[protocol], *options)
        for _ in range(table[lk.T_NODES]):
            self._ns3.AddNode()
        for link in range(table[lk.T_LINKS]):
            row = self._row(link)
            # A link that is down has no routes over it, but ns-3 wants a rate.
            buffer = row[lk.L_BUFFER] if row[lk.L_BUFFER] < UNBOUNDED else room
            self._ns3.AddLink(row[lk.L_TAIL], row[lk.L_HEAD], _rate(row) or 1, row[lk.L_LATENCY], buffer)
        # Datagrams need no way back.
        opposite = self._opposites() if protocol >= DATAGRAMS else {}
        known: dict[tuple[int, ...], int] = {}
        self._way = []
        """Routes over the same links are one to ns-3, and one connection."""
        for route in range(table[lk.T_ROUTES]):
            there = self._links(route)
            # Routes to the own NPU are empty and never reach ns-3.
            if there and tuple(there) not in known:
                back = [opposite[link] for link in reversed(there)] if opposite else []
                self._ns3.AddRoute(len(known), there, back)
            self._way.append(known.setdefault(tuple(there), len(known)))
        # Connections open before our time 0, so that a handshake costs no message any time.
        self._begin = SET_UP + len(known) * 10**6 if protocol >= DATAGRAMS else 0
        self._ns3.Advance(self._begin)

    def close(self) -> None:
        """End the run: ns-3 has one simulator per process."""
        self._ns3.__destruct__()

    def inject(self, cookie: int, route: int, size: int, now: int) -> None:
        """Let a message leave at `now` (ps)."""
        self._ns3.Inject(cookie, self._way[route], size, self._begin + now)

    def advance(self, limit: int) -> int:
        """Run as `advance` of a transport says; returns the time (ps)."""
        # -1: no limit.
        stopped = self._ns3.Advance(self._begin + limit if limit < lk.FOREVER else -1)
        return int(self._ns3.Now()) - self._begin if stopped else limit

    def take(self) -> list[int]:
        """Return the cookies of messages that have arrived, and forget them."""
        cookies = []
        while (cookie := self._ns3.Take()) >= 0:
            cookies.append(int(cookie))
        return cookies

    def change(self, stage: int) -> None:
        """Give the links the bandwidths and latencies of a stage.

        Raises:
            InputError: A link goes down, which ns-3's point-to-point links cannot.
        """
        for link in range(self._table[lk.T_LINKS]):
            row = self._row(link, stage)
            # Down from the start is allowed, as no route uses the link.
            if not (rate := _rate(row)) and _rate(self._row(link)):
                raise InputError(
                    f"network 'ns3': link {link} goes down while it runs, expected links that stay up"
                )
            self._ns3.ChangeLink(link, rate or 1, row[lk.L_LATENCY])

    def use(self) -> list[int]:
        """Return (links, 4) bytes carried with headers, most bytes that waited, packets dropped and marked."""
        return list(map(int, self._ns3.Use()))

    @property
    def events(self) -> int:
        """Events that ns-3 ran."""
        return int(self._ns3.Events())

    def _row(self, link: int, stage: int = 0) -> Sequence[int]:
        at = self._table[lk.T_LINK] + (stage * self._table[lk.T_LINKS] + link) * lk.L_COLUMNS
        return self._table[at : at + lk.L_COLUMNS]

    def _links(self, route: int) -> list[int]:
        at = self._table[lk.T_ROUTE_FIRST] + route
        link = self._table[lk.T_ROUTE_LINK]
        return list(self._table[link + self._table[at] : link + self._table[at + 1]])

    def _opposites(self) -> dict[int, int]:
        """Return the link by which answers come back over each: the n-th of several between two nodes.

        Raises:
            InputError: There is none.
        """
        between: dict[tuple[int, int], list[int]] = {}
        for link in range(self._table[lk.T_LINKS]):
            row = self._row(link)
            between.setdefault((row[lk.L_TAIL], row[lk.L_HEAD]), []).append(link)
        for (tail, head), links in between.items():
            if len(links) > len(between.get((head, tail), [])):
                raise InputError(
                    f"network 'ns3': TCP needs as many links from node {head} to node {tail} as back, expected links "
                    "both ways"
                )
        return {
            link: back
            for (tail, head), links in between.items()
            for link, back in zip(links, between[head, tail], strict=True)
        }


def _rate(row: Sequence[int]) -> int:
    """Return bit/s, 0 of a link that is down."""
    return BITS * row[lk.L_FAST] // row[lk.L_SLOW] if row[lk.L_SLOW] else 0


_runs: list[Simulation | None] = []
"""Those of this process, by number: at most the last is not None."""


def new_run() -> int:
    """Return the number of a new run; those before it have ended."""
    # ns-3's simulator is a global: a second one would share the clock of the first.
    if _runs and (before := _runs[-1]):
        before.close()
        _runs[-1] = None
    _runs.append(None)
    return len(_runs) - 1


def run_of(number: int, table: Sequence[int]) -> Simulation:
    """Return the simulation of a run, which begins with the first call.

    Raises:
        InputError: Another run has begun since.
    """
    if number != len(_runs) - 1:
        raise InputError("network 'ns3': another run has begun in this process, expected one at a time")
    if (run := _runs[number]) is None:
        run = _runs[number] = Simulation(table)
    return run
