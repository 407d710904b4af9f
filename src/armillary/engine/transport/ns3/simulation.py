"""One run of ns-3 over a network that was lowered to a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.engine.transport import layout_kernel as lk
from armillary.engine.transport.ns3.library import ns3_messages
from armillary.errors import InputError

PROTOCOLS = {
    "udp": "udp",
    "udp-fair": "udp-fair",
    "reno": "TcpNewReno",
    "cubic": "TcpCubic",
    "dctcp": "TcpDctcp",
}
"""Names of what moves messages, and of ns-3's classes of congestion control."""
DATAGRAMS = 2
"""How many of them, the first, answer nothing."""
# What the transport is told, at table[T_OPTIONS]
O_PROTOCOL, O_SEGMENT, O_WINDOW, O_MIN_RTO, O_MARK = range(5)
OPTIONS = 5
BITS = 8 * 10**12
"""A byte per ps in bit/s."""


class Simulation:
    """ns-3 with the links of a table; routes are installed when a message first takes them."""

    def __init__(self, table: Sequence[int]) -> None:
        self._table = table
        protocol, *options = table[table[lk.T_OPTIONS] : table[lk.T_OPTIONS] + OPTIONS]
        self._answers = protocol >= DATAGRAMS
        self._ns3: Any = ns3_messages().Simulation(list(PROTOCOLS.values())[protocol], *options)
        for _ in range(table[lk.T_NODES]):
            self._ns3.AddNode()
        for link in range(table[lk.T_LINKS]):
            row = self._row(link)
            # A link that is down has no routes over it, but ns-3 wants a rate.
            self._ns3.AddLink(
                row[lk.L_TAIL], row[lk.L_HEAD], _rate(row) or 1, row[lk.L_LATENCY], row[lk.L_BUFFER]
            )

    def close(self) -> None:
        """End the run: ns-3 has one simulator per process."""
        self._ns3.__destruct__()

    def inject(self, cookie: int, route: int, size: int, now: int) -> None:
        """Let a message leave at `now` (ps)."""
        if not self._ns3.HasRoute(route):
            there = self._links(route)
            self._ns3.AddRoute(route, there, self._back(there) if self._answers else [])
        self._ns3.Inject(cookie, route, size, now)

    def advance(self, limit: int) -> int:
        """Run as `advance` of a transport says; returns the time (ps)."""
        stopped = self._ns3.Advance(limit if limit < lk.FOREVER else -1)
        return int(self._ns3.Now()) if stopped else limit

    def take(self) -> list[int]:
        """Return the cookies of messages that have arrived, and forget them."""
        cookies = []
        while (cookie := self._ns3.Take()) >= 0:
            cookies.append(int(cookie))
        return cookies

    def change(self, stage: int) -> None:
        """Give the links the bandwidths and latencies of a stage.

        Raises:
            InputError: A link goes down, which ns-3's point-to-point links do not.
        """
        for link in range(self._table[lk.T_LINKS]):
            row = self._row(link, stage)
            if not (rate := _rate(row)) and _rate(self._row(link)):
                raise InputError(
                    f"network 'ns3': link {link} goes down while it runs, expected links that stay up"
                )
            self._ns3.ChangeLink(link, rate or 1, row[lk.L_LATENCY])

    def use(self, link: int) -> list[int]:
        """Return bytes carried with headers, most bytes that waited, packets dropped and marked."""
        return [int(value) for value in self._ns3.Use(link)]

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

    def _back(self, there: list[int]) -> list[int]:
        """Return the links by which answers go: the opposite of each, the n-th of several between two nodes."""
        opposite = self._opposites()
        try:
            return [opposite[link] for link in reversed(there)]
        except KeyError as error:
            tail, head = self._row(error.args[0])[lk.L_TAIL : lk.L_HEAD + 1]
            raise InputError(
                f"network 'ns3': TCP needs a link back from node {head} to node {tail}, expected links both ways"
            ) from None

    def _opposites(self) -> dict[int, int]:
        between: dict[tuple[int, int], list[int]] = {}
        for link in range(self._table[lk.T_LINKS]):
            row = self._row(link)
            between.setdefault((row[lk.L_TAIL], row[lk.L_HEAD]), []).append(link)
        return {
            link: back
            for (tail, head), links in between.items()
            for link, back in zip(links, between.get((head, tail), []), strict=False)
        }


def _rate(row: Sequence[int]) -> int:
    """Return bit/s, 0 of a link that is down."""
    return BITS * row[lk.L_FAST] // row[lk.L_SLOW] if row[lk.L_SLOW] else 0


_runs: list[Simulation | None] = []
"""Those of this process, by number: at most the last is not None."""


def new_run() -> int:
    """Return the number of a new run; those before it have ended."""
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
