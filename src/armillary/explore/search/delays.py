"""Least delays of a piece of a task: from its input and the kernels before it to its result and its last kernel.

Times are combined by max and plus, so the delays of pieces that follow each other are a product of matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from armillary.explore.search.pipeline_kernel import NEVER
from armillary.workload.emit.template import CHAIN, IN, Piece
from armillary.workload.layers.layer import Step


class Delay(NamedTuple):
    """ns from the input and from the chain of kernels to the result, the last kernel and the gradients.

    `NEVER` where the one does not wait for the other.
    """

    now_in: int
    now_chain: int
    end_in: int
    end_chain: int
    made_in: int
    made_chain: int


NOTHING = Delay(0, NEVER, NEVER, 0, NEVER, NEVER)


def then(first: Delay, second: Delay) -> Delay:
    """Return the delay of two pieces in sequence, a product over max and plus; gradients are those of the second."""

    def both(of_in: int, of_chain: int, a: int, b: int) -> int:
        # Clamped: sums of several NEVERs must not drift towards the end of int64.
        return max(of_in + a, of_chain + b, NEVER)

    return Delay(
        both(second.now_in, second.now_chain, first.now_in, first.end_in),
        both(second.now_in, second.now_chain, first.now_chain, first.end_chain),
        both(second.end_in, second.end_chain, first.now_in, first.end_in),
        both(second.end_in, second.end_chain, first.now_chain, first.end_chain),
        both(second.made_in, second.made_chain, first.now_in, first.end_in),
        both(second.made_in, second.made_chain, first.now_chain, first.end_chain),
    )


def repeated(one: Delay, times: int) -> Delay:
    """Return the delay of a piece that repeats `times` times; `times` is at least 1."""
    # The product is associative, so squaring needs log2(times) steps.
    half = one if times == 1 else repeated(one, times // 2)
    if times == 1:
        return half
    twice = then(half, half)
    return then(twice, one) if times % 2 else twice


def delay_of(made: Piece, steps: Sequence[Step], least: Callable[[Step], int]) -> Delay:
    """Return the delay of a piece.

    Besides dependencies two facts about a stream of kernels count. It runs the free node of the lowest number first,
    and each to its end: so of two kernels the later one in the list starts after the earlier one has ended, if all
    that the earlier one waits for must be over before the later one may start. And all kernels that must have ended
    before one starts have run one after the other.

    Args:
        made: Of `emit.template.piece`.
        steps: Of all its lists, in order.
        least: Returns the fewest ns of a step.
    """
    # A shift is a send and a receive, two nodes of one step; every other step is one node.
    of_node = [step for step in steps for _ in range(2 if step.shift and step.collective is None else 1)]
    # Its time counts once, at the send: the receive ends when the message is there.
    receives = {
        at for at in range(len(of_node)) if of_node[at].shift and at and of_node[at - 1] is of_node[at]
    }
    ports = [
        [port for port in (IN, CHAIN) if node in made.template.ports.get(port, ())]
        for node in range(len(of_node))
    ]
    before: list[int] = []
    """Bit sets of nodes that have ended when a node starts; those of ports are the highest bits."""
    start: dict[str, list[int]] = {IN: [], CHAIN: []}
    end: dict[str, list[int]] = {IN: [], CHAIN: []}
    # Python integers are bit sets of any size; the two ports are bits above all nodes.
    bit = {IN: 1 << len(of_node), CHAIN: 2 << len(of_node)}
    kernels: list[int] = []
    waits: list[int] = []
    for node, step in enumerate(of_node):
        parents = list(made.template.nodes[node].data_deps)
        own = sum(bit[port] for port in ports[node])
        for parent in parents:
            own |= before[parent] | 1 << parent
        waits.append(sum(bit[port] for port in ports[node]) | sum(1 << parent for parent in set(parents)))
        runs = not step.axes
        if runs:
            for other in reversed(kernels):
                # Everything `other` waits for is over before this node may start, and `other` comes first
                # in the list, so the stream has run it. Backwards, so that its own predecessors join in.
                if not own >> other & 1 and waits[other] & ~own == 0:
                    own |= before[other] | 1 << other
        for port in (IN, CHAIN):
            first = 0 if port in ports[node] else NEVER
            ended = [other for other in kernels if own >> other & 1]
            first = max([first, *(end[port][other] for other in parents), *(end[port][k] for k in ended)])
            if runs and first > NEVER:
                # Kernels that started at s or later and have ended ran one after the other: the node starts
                # no earlier than s plus all their work, for every such s.
                work = 0
                for other in sorted(ended, key=lambda k: -start[port][k]):
                    if start[port][other] < 0:
                        break
                    work += least(of_node[other])
                    first = max(first, start[port][other] + work)
            start[port].append(first)
            took = 0 if node in receives else least(step)
            # NEVER stays NEVER: what does not depend on a port has no delay from it.
            end[port].append(first + took if first > NEVER else NEVER)
        before.append(own)
        if runs:
            kernels.append(node)

    def latest(nodes: Sequence[int], port: str, none: int) -> int:
        return max((end[port][node] for node in nodes), default=none)

    last = [] if made.kernel is None else [made.kernel]
    ends = made.ends
    return Delay(
        latest(made.last, IN, 0), latest(made.last, CHAIN, NEVER), latest(last, IN, NEVER),
        latest(last, CHAIN, 0), latest(ends, IN, 0), latest(ends, CHAIN, NEVER),
    )  # fmt: skip
