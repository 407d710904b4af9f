"""Patterns of messages between the ranks of every group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache

from armillary.base.errors import InputError
from armillary.trace import Graph, GraphBuilder, Trace
from armillary.workload.micro.collectives import blocks

Message = tuple[int, int]
"""(sender, receiver), as members of a group."""
MOST = 1 << 20
"""Most messages of one trace."""


def _ping(n: int) -> Iterator[Message]:
    yield 0, n - 1


def _both_ways(pattern: Callable[[int], Iterator[Message]]) -> Callable[[int], Iterator[Message]]:
    def both(n: int) -> Iterator[Message]:
        yield from pattern(n)
        yield from ((target, source) for source, target in pattern(n))

    return both


def _ring(n: int) -> Iterator[Message]:
    return ((member, (member + 1) % n) for member in range(n))


def _bisection(n: int) -> Iterator[Message]:
    # With an odd number the last member has no partner.
    return ((member, member + n // 2) for member in range(n // 2))


def _all_pairs(n: int) -> Iterator[Message]:
    # By shift first: each round is a permutation, so no port gets two messages of one round.
    return ((member, (member + shift) % n) for shift in range(1, n) for member in range(n))


PATTERNS: dict[str, Callable[[int], Iterator[Message]]] = {
    "ping-pong": _both_ways(_ping),
    "unidirectional": _ping,
    "bidirectional": _both_ways(_ping),
    "ring": _ring,
    "ring-bidirectional": _both_ways(_ring),
    "bisection": _bisection,
    "bisection-bidirectional": _both_ways(_bisection),
    "all-pairs": _all_pairs,
    "incast": lambda n: ((member, 0) for member in range(1, n)),
    "outcast": lambda n: ((0, member) for member in range(1, n)),
}
"""The messages of a pattern among n members. All are sent at once, except the pong, which waits for the ping.

The first and the last member: ping-pong, unidirectional, bidirectional. To the next one: ring. From the first
half to the second: bisection. From everyone to everyone: all-pairs; to the first: incast; from it: outcast.
"""


def trips(name: str) -> int:
    """Return how many messages are sequential: 2 for a round trip, else 1."""
    return 2 if name == "ping-pong" else 1


@cache
def busiest(name: str, members: int) -> int:
    """Return how many messages go through the busiest direction of a rank's port."""
    ends: Counter[tuple[str, int]] = Counter()
    for source, target in PATTERNS[name](members):
        ends["out", source] += 1
        ends["in", target] += 1
    return max(ends.values())


def pattern_trace(name: str, npus: int, members: int, size: int) -> Trace:
    """Return the trace of a pattern in every group of `members` ranks, with messages of `size` bytes.

    Ranks that send to and receive from the same ones share a graph.

    Raises:
        InputError: more than `MOST` messages.
    """
    # An upper bound that needs no list: no other pattern has more than two messages per member.
    per_group = members * (members - 1) if name == "all-pairs" else 2 * members
    if per_group * (npus // members) > MOST:
        raise InputError(
            f"{name} in groups of {members} on {npus} NPUs takes more than {MOST:,} messages: "
            "expected smaller groups, or fewer NPUs"
        )
    pairs = list(PATTERNS[name](members))
    shared: dict[tuple[Message, ...], Graph] = {}
    graphs: list[Graph] = []
    for ranks in blocks(npus, members):
        # (0, from whom), then (1, to whom): ranks in like places do the same in the same order, and fold.
        todo: list[list[Message]] = [[] for _ in ranks]
        for source, target in pairs:
            todo[source].append((1, ranks[target]))
            todo[target].append((0, ranks[source]))
        for member, mine in enumerate(todo):
            mine.sort(key=lambda each: each[0])
            waits = name == "ping-pong" and member > 0
            # A rank that waits has another graph than one with the same peers that does not.
            key = (*mine, (int(waits), -1))
            if key not in shared:
                shared[key] = _graph(name, mine, size, waits)
            graphs.append(shared[key])
    return Trace.from_ranks(graphs)


def _graph(name: str, todo: list[Message], size: int, waits: bool) -> Graph:
    """Return the graph of a rank; `waits`: it sends after it received, else all at once."""
    builder = GraphBuilder()
    if not todo:
        builder.metadata("idle")
    received: list[int] = []
    for sends, peer in todo:
        if sends:
            builder.send(peer, size, after=received if waits else [])
        else:
            received.append(builder.recv(peer, size))
    return builder.graph(name)
