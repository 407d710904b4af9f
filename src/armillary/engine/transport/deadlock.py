"""Why nothing moves although messages are in flight: links that are down, buffers that wait for each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from armillary.engine.transport import layout as lk
from armillary.engine.transport.switch import layout as pk
from armillary.platform.topology.graph import Topology


def down_links(net: Any, table: Any, links: Iterable[int]) -> list[int]:
    """Return those of some links that are down in the stage that the network is in, in ascending order."""
    first = table[lk.T_LINK] + net[lk.N_STAGE] * table[lk.T_LINKS] * lk.L_COLUMNS
    return sorted(link for link in links if table[first + link * lk.L_COLUMNS + lk.L_SLOW] == 0)


def blocked_cycle(net: Any, pool: Any, topology: Topology) -> list[int]:
    """Return links of model `packet` each of which is paused until the next can send, the last until the first can.

    The buffer at the end of a paused link holds packets that wait for other links; where some of these are paused,
    too, and so on round a cycle, nothing on it will ever move (PFC deadlock). Empty: there is no such cycle.
    """
    waits_for: dict[int, set[int]] = {}
    for link in range(topology.links):
        # Links that are not paused wait for nobody.
        port = net[pk.PORTS] + link * pk.PO_COLUMNS
        row = net[port + pk.PO_FIRST] if net[port + pk.PO_SHUT] else 0
        while row:
            # The packet came by link `from` and stands in its buffer; it waits for the paused `link`.
            waits_for.setdefault(int(pool[row + pk.K_FROM]), set()).add(link)
            row = pool[row + lk.P_NEXT]
    while waits_for:
        # Follow the lowest successor: deterministic, and on any cycle every node has one.
        link, way = min(waits_for), list[int]()
        while link in waits_for and link not in way:
            way.append(link)
            link = min(waits_for[link])
        if link in way:
            return way[way.index(link) :]
        # This one waits for nothing that is paused: it is on no cycle.
        left = {before: after - {link} for before, after in waits_for.items()}
        waits_for = {before: after for before, after in left.items() if after}
    return []
