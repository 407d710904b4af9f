"""Collectives in the switches: they add up what members send, and multicast what comes of it.

Members and switches form trees. A switch adds up what its children send it and passes the sum on; the root sends it
down, each switch once to each child. D goes in equal segments, one after the other, so that while one is on its way
up the one before is on its way down. Members send and receive

==============  ====================  =====================
all-reduce      D                     D
reduce-scatter  D · (n-1) / n         D / n
all-gather      D                     D · (n-1)
==============  ====================  =====================

with D as in `rounds`: an all-reduce moves half of what a ring moves, 2 (n-1) / n · D. In a reduce-scatter
a member keeps its own part and adds to it what comes, so nothing of a block goes up where its owner is below.

The rounds number the switches of a tree after the members. Trees are found per line of NPUs, so every line
may have a tree of its own shape. A chunk takes all switches of its tree at once or waits for them, so a limit
on concurrent operations cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import lcm
from typing import NamedTuple

from armillary.collective.rounds import (
    ABSENT,
    Blocks,
    CollectiveAlgorithm,
    Messages,
    Moves,
    Round,
    Rounds,
    SwitchTree,
)
from armillary.platform.network import InNetwork


class Edge(NamedTuple):
    """A message from one node of a tree to another for every segment, `lag` rounds after the segment began."""

    lag: int
    source: int
    target: int
    owners: frozenset[int]
    """Members whose blocks go (of an all-reduce: all)."""
    reduce: bool


def star(n: int) -> SwitchTree:
    """Return the tree of `n` members at one switch."""
    return SwitchTree((*(n,) * n, -1))


@lru_cache(maxsize=512)
def rounds(operation: str, n: int, trees: tuple[SwitchTree, ...], segments: int) -> Rounds:
    """Return `operation` among `n` members in switches.

    Args:
        operation: "all-reduce", "reduce-scatter" or "all-gather".
        n: Number of members.
        trees: At least one; their shares add up to 1.
        segments: Parts that D is cut into.
    """
    # A segment goes over an edge `lag` rounds after it began; all segments follow each other, one per round.
    found = [(edges(operation, n, tree), tree.share) for tree in trees]
    lags = sorted({edge.lag for tree, _ in found for edge in tree})
    steps = sorted({*lags, *(lag + segments for lag in lags)})
    parts = []
    # Between two of these steps the same edges are active: such rounds are equal and are stored once.
    for begin, end in pairwise(steps):
        now = [(e, share) for tree, share in found for e in tree if e.lag <= begin < e.lag + segments]
        sizes = [_amount(operation, n, edge) * share / segments for edge, share in now]
        moves = Moves.of(
            [edge.source for edge, _ in now],
            [edge.target for edge, _ in now],
            [size.numerator for size in sizes],
            [size.denominator for size in sizes],
            [edge.reduce for edge, _ in now],
        )
        # Switches are numbered behind the members.
        parts.append(Round(len(trees[0].parent), moves, repeat=end - begin))
    return Rounds("in-switch", operation, n, 0, tuple(parts), segments, trees)


def depth(trees: tuple[SwitchTree, ...], n: int) -> int:
    """Return after how many rounds a segment is done."""
    return max(edge.lag for tree in trees for edge in edges("all-reduce", n, tree))


@lru_cache(maxsize=512)
def edges(operation: str, n: int, tree: SwitchTree) -> tuple[Edge, ...]:
    """Return the messages over each edge of a tree, up and then down."""
    parent = tree.parent
    nodes = [node for node, above in enumerate(parent) if above != ABSENT]
    below: dict[int, set[int]] = {node: {node} if node < n else set() for node in nodes}
    height, level = dict.fromkeys(nodes, 0), dict.fromkeys(nodes, 0)
    # Height: rounds until the farthest leaf below has arrived; a switch adds up only then.
    for member in range(n):
        at, steps = member, 0
        while parent[at] >= 0:
            at, steps = parent[at], steps + 1
            below[at].add(member)
            height[at] = max(height[at], steps)
    for node in nodes:
        at = node
        while parent[at] >= 0:
            at = parent[at]
            level[node] += 1
    everyone = frozenset(range(n))
    top = max(height.values())
    result = []
    children = [node for node in nodes if parent[node] >= 0]
    for node in children:
        mine = frozenset(below[node])
        owners = {"all-reduce": everyone, "reduce-scatter": everyone - mine, "all-gather": mine}[operation]
        # An all-gather multicasts: nothing is added on the way up.
        result.append(Edge(height[node], node, parent[node], owners, operation != "all-gather"))
    # The way down starts when the root has everything, a level per round.
    for node in children:
        mine = frozenset(below[node])
        owners = {"all-reduce": everyone, "reduce-scatter": mine, "all-gather": everyone - mine}[operation]
        lag = top + level[parent[node]]
        result.append(Edge(lag, parent[node], node, owners, operation == "reduce-scatter"))
    return tuple(result)


def _amount(operation: str, n: int, edge: Edge) -> Fraction:
    """Return the bytes over an edge for all segments, per D."""
    if operation == "all-reduce":
        return Fraction(1)
    return Fraction(len(edge.owners), n if operation == "reduce-scatter" else 1)


def ports(operation: str, n: int) -> tuple[Fraction, Fraction]:
    """Return what a member sends and what it receives, per D."""
    one, others = Fraction(1), Fraction(n - 1)
    return {
        "all-reduce": (one, one),
        "reduce-scatter": (others / n, one / n),
        "all-gather": (one, others),
    }[operation]


def reduced(operation: str, n: int, in_network: InNetwork, bandwidth: float) -> float:
    """Return the volume at `bandwidth` that takes as long as the switch needs to add up, per D."""
    if operation == "all-gather" or not in_network.rate:
        return 0.0
    return float(ports(operation, n)[0]) * bandwidth / in_network.rate


def parts(found: Rounds) -> int:
    """Return the number of blocks that D is cut into: one per segment and unit of the trees' shares."""
    whole = lcm(*(tree.share.denominator for tree in found.trees))
    return found.chunks * whole * (found.n if found.operation == "reduce-scatter" else 1)


def blocks(found: Rounds) -> Iterator[list[Blocks]]:
    """Yield the blocks of every message, round by round, in the order of `rounds`."""
    n, segments = found.n, found.chunks
    # A common denominator of the shares, so that each tree takes whole blocks.
    whole = lcm(*(tree.share.denominator for tree in found.trees))
    each = segments * whole
    begins, begin = [], 0
    for tree in found.trees:
        begins.append(begin)
        begin += int(tree.share * whole)
    for step in range(found.count):
        messages = []
        for tree, first in zip(found.trees, begins, strict=True):
            for edge in edges(found.operation, n, tree):
                segment = step - edge.lag
                if 0 <= segment < segments:
                    at = segment * whole + first
                    owners = [0] if found.operation == "all-reduce" else sorted(edge.owners)
                    mine = range(at, at + int(tree.share * whole))
                    messages.append(tuple(owner * each + unit for owner in owners for unit in mine))
        yield messages


class InSwitch(CollectiveAlgorithm):
    """Switches add up and multicast; here of members at one switch, where the engine knows the trees of a network."""

    operations = ("all-reduce", "all-gather", "reduce-scatter")
    topologies = ("Switch",)

    def usual_chunks(self, n: int) -> int:
        """See `CollectiveAlgorithm`."""
        return 4

    def trees(self, n: int) -> tuple[SwitchTree, ...]:
        """See `CollectiveAlgorithm`."""
        return (star(n),)

    def rounds(self, operation: str, n: int, root: int, chunks: int) -> tuple[Round, ...]:
        """See `CollectiveAlgorithm`."""
        return rounds(operation, n, self.trees(n), chunks).rounds

    def parts(self, rounds: Rounds) -> int:
        """See `CollectiveAlgorithm`."""
        return parts(rounds)

    def blocks(self, rounds: Rounds) -> Iterator[Messages]:
        """See `CollectiveAlgorithm`."""
        return blocks(rounds)
