"""Rings of context parallelism with more or fewer rounds (Ring Attention, arXiv 2310.01889, section 3).

Keys and values circulate around the ranks, each of which attends to one part per round; in the backward pass, partial
sums of their gradients follow. A ring is resized only if its rounds, rebuilt at the old number, give the trace back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.edit import taken_nodes, with_dependencies, with_ints, with_names
from armillary.lab.extrapolation.kernels import Nodes
from armillary.lab.extrapolation.scaling import OPERATIONS
from armillary.trace import Graph, NodeType
from armillary.trace.attention import ATTENTION

PEERS = ("comm_dst", "comm_src")
_NUMBER = re.compile(r"\d+(?=\D*$)")


class _Part(NamedTuple):
    """A kernel, or a message that is sent and received, of one round.

    Attributes:
        kind: P passes keys and values on, A attends, S passes sums of their gradients on, E adds the last of these.
        round: Counted from 0; what is passed is for this one.
    """

    kind: str
    round: int


@dataclass(frozen=True)
class _Ring:
    """A ring: the nodes of every part, in the order in which they are issued."""

    parts: dict[_Part, tuple[int, ...]]
    backward: bool

    @property
    def nodes(self) -> list[int]:
        return [node for each in self.parts.values() for node in each]


def with_rounds(nodes: Nodes, rounds: int) -> Graph:
    """Return the graph with `rounds` rounds in every ring along cp, which share the operations that it had.

    Raises:
        InputError: messages along cp are those of no known ring; names the node.
    """
    graph, old = nodes.graph, nodes.grid.size("cp")
    rings = _rings(nodes, old)
    if not rings:
        return graph
    # The proof: rebuilt at the old number of rounds, every node must wait for what it did.
    made = _made(graph, rings, old)
    ours, theirs = graph.parents(), made.parents()
    for node in range(graph.n_nodes):
        waits = [set(parents[ptr[node] : ptr[node + 1]].tolist()) for ptr, parents in (ours, theirs)]
        if waits[0] != waits[1]:
            raise _unknown(graph, node)
    return _made(graph, rings, rounds, turned=old == 2)


def _order(rounds: int, *, backward: bool) -> list[_Part]:
    found = []
    for number in range(rounds):
        # The last round passes nothing on.
        more = number < rounds - 1
        found += [_Part("P", number + 1)] * more + [_Part("A", number)]
        found += [_Part("S", number + 1)] * (more and backward)
    return found + [_Part("E", rounds)] * backward


def _awaited(part: _Part, before: _Part | None, rounds: int) -> list[_Part]:
    """Return the parts that a part waits for in its ring; every message waits for the previous one, `before`."""
    number = part.round
    if part.kind == "A":
        return [_Part("A", number - 1), _Part("P", number)]
    if part.kind == "E":
        return [_Part("A", rounds - 1), _Part("S", rounds - 1)]
    # A message waits for the one of the round before, and for the attention that has read its buffer.
    own = [_Part(part.kind, number - 1)] if number > 1 else []
    # Two buffers: the one that arrives must not be in use.
    return [*own, _Part("A", number - (2 if part.kind == "P" else 1)), *([before] if before else [])]


def _rings(nodes: Nodes, rounds: int) -> list[_Ring]:
    graph = nodes.graph
    along = nodes.along("cp")
    kinds = np.where(along & (graph.types == NodeType.COMM_SEND_NODE), "s", "?")
    kinds[along & (graph.types == NodeType.COMM_RECV_NODE)] = "r"
    kinds[nodes.kernel] = "k"
    # One letter per node, so that a ring is a substring: s send, r receive, k kernel, ? other.
    text = "".join(kinds.tolist())
    letters = {"P": "sr", "S": "sr", "A": "k", "E": "k"}
    found: list[_Ring] = []
    at = text.find("s")
    while at >= 0:
        for backward in (True, False):
            order = _order(rounds, backward=backward)
            pattern = "".join(letters[part.kind] for part in order)
            if text.startswith(pattern, at):
                break
        else:
            raise _unknown(graph, at)
        parts = {}
        for part in order:
            parts[part] = tuple(range(at, at + len(letters[part.kind])))
            at += len(letters[part.kind])
        found.append(_Ring(parts, backward))
        at = text.find("s", at)
    return found


def _unknown(graph: Graph, node: int) -> InputError:
    return InputError(
        f"scale cp: {graph.node(node)} is of no known ring, so what more ranks would do is not known; expected "
        "rounds in which keys and values are passed on, attended to, and followed by sums of their gradients; or "
        "context parallelism by all-gathers"
    )


def _made(graph: Graph, rings: Sequence[_Ring], rounds: int, *, turned: bool = False) -> Graph:
    """Put rings together; `turned`: of two ranks it is not seen which way they go, so backward is the other way."""
    inside = {node: ring for ring in rings for node in ring.nodes}
    starts = {ring.nodes[0]: ring for ring in rings}
    source: list[int] = []
    place: dict[int, int] = {}
    parts: list[tuple[_Ring, dict[_Part, list[int]]]] = []
    for node in range(graph.n_nodes):
        if node in starts:
            parts.append((starts[node], _placed(starts[node], rounds, source, place)))
        elif node not in inside:
            place[node] = len(source)
            source.append(node)
    made = taken_nodes(graph, np.array(source, np.int64))
    ptr, parents = graph.parents()
    data = [[place[each] for each in parents[ptr[old] : ptr[old + 1]].tolist()] for old in source]
    names, values = made.names().copy(), {name: made.ints(name).copy() for name in (OPERATIONS, *PEERS)}
    for ring, own in parts:
        before = None
        for part, positions in own.items():
            if part not in (_Part("P", 1), _Part("A", 0)):
                waits = [each for other in _awaited(part, before, rounds) for each in own[other]]
                for position in positions:
                    # The first message and attention keep their own dependencies, which lead into the ring
                    # from outside.
                    data[position] = list(dict.fromkeys(waits))
            if part.kind in "PS":
                before = part
                if turned:
                    step = -1 if ring.backward else 1
                    values["comm_dst"][positions[0]], values["comm_src"][positions[1]] = step, -step
            if part.kind != "E":
                for position in positions:
                    names[position] = _NUMBER.sub(str(part.round), names[position])
        shares = _operations(graph, ring, rounds)
        for number, share in enumerate(shares):
            values[OPERATIONS][own[_Part("A", number)][0]] = share
    return with_names(with_ints(with_dependencies(made, data), values), names)


def _placed(ring: _Ring, rounds: int, source: list[int], place: dict[int, int]) -> dict[_Part, list[int]]:
    """Add the nodes of a ring with other rounds, and the places of the old ones, those of last rounds at the end."""
    old = 1 + max(part.round for part in ring.parts if part.kind == "A")
    own: dict[_Part, list[int]] = {}
    for part in _order(rounds, backward=ring.backward):
        like = part if part.kind != "E" else _Part("E", old)
        nodes = ring.parts.get(like) or ring.parts[_Part(part.kind, old - 1)]
        own[part] = list(range(len(source), len(source) + len(nodes)))
        source.extend(nodes)
    for part, nodes in ring.parts.items():
        # First rounds map to first rounds; later ones are counted from the end, so that what follows the ring
        # waits for its last round.
        first = part.round == (1 if part.kind in "PS" else 0)
        now = part.round if first else max(rounds - (old - part.round), 1)
        place.update(zip(nodes, own[_Part(part.kind, now)], strict=True))
    return own


def _operations(graph: Graph, ring: _Ring, rounds: int) -> list[int]:
    """Divide the operations of a ring over its rounds: all alike, but the first where a causal mask cuts it most.

    A rank has as many queries after the first part of a sequence as before its last (zig-zag), so that of its own keys
    its queries, 2 n of them, see n (2 n + 1), of all others half.
    """
    old = [int(graph.ints(OPERATIONS)[ring.parts[part][0]]) for part in ring.parts if part.kind == "A"]
    total, share = sum(old), Fraction(len(old), rounds)
    # Even shares; the remainder goes to the first round.
    first = total - total // rounds * (rounds - 1)
    # The first round differs from the average of the others by more than rounding: a causal mask.
    if abs(old[0] * (len(old) - 1) - sum(old[1:])) > len(old) ** 2:
        codes, lists = graph.int_lists(ATTENTION)
        code = int(codes[ring.parts[_Part("A", 0)][0]])
        queries = Fraction(lists[code][3]) if code >= 0 else None
        # As many operations as before are divided here; that a rank has a share of them comes later.
        first = round(old[0] * ((queries * share + 1) / (queries + 1) if queries else share))
    rest, parts = total - first, rounds - 1
    return [first, *(rest // parts + (number < rest % parts) for number in range(parts))]
