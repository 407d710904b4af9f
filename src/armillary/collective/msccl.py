"""MSCCL XML: read an algorithm, run it as rounds or as execution traces, and prove that it does what it says.

The format and the graph of actions that it becomes are in `msccl_algo`.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.errors import InputError
from armillary.collective.msccl_algo import STEPS, Algo, algo_of
from armillary.collective.msccl_xml import parse_xml, read_xml
from armillary.collective.rounds import Moves, Round, Rounds

if TYPE_CHECKING:
    from armillary.trace import Graph


def read_msccl(path: str | Path) -> Algo:
    """Read an MSCCL XML file.

    Raises:
        InputError: the file cannot be read or is no such algorithm; the message has the line.
    """
    return algo_of(read_xml(path), str(path))


def parse_msccl(text: str | bytes, source: str = "<text>") -> Algo:
    """Read MSCCL XML from `text`; `source` is what messages call it."""
    return algo_of(parse_xml(text, source), source)


def to_rounds(algo: Algo) -> Rounds:
    """Return the algorithm as synchronous rounds: a send goes one round after the last one whose data it may carry.

    A message counts as reduced if its own step adds it; additions by ``re`` steps do not show.
    """
    over, under = algo.parts
    actions = algo.actions
    done = [0] * len(actions)  # rounds that must be over before a dependent action sends
    begun = [0] * len(actions)  # rounds that must have begun before a dependent action receives
    rounds: defaultdict[int, list[int]] = defaultdict(list)
    for index in algo.order():
        action = actions[index]
        ends = max((done[need] for need in action.needs), default=0)
        begins = max((begun[need] for need in action.needs), default=0)
        if action.kind == "send":
            rounds[ends].append(index)
            begins = ends + 1
        elif action.kind == "recv":
            # A receive is done in the round of its send.
            begins = ends = max(begins, begun[action.partner])
        done[index], begun[index] = ends, begins
    parts = []
    for number in sorted(rounds):
        # Actions of a round are independent: file order keeps the result reproducible.
        sends = [actions[index] for index in sorted(rounds[number])]
        counts = np.array([send.count for send in sends]) * over
        reduces = ["reduce" in STEPS[actions[send.partner].type] for send in sends]
        moves = Moves.of([s.gpu for s in sends], [s.peer for s in sends], counts, under, reduces)
        parts.append(Round(algo.n, moves))
    return Rounds(algo.name, algo.operation, algo.n, 0, tuple(parts))


def to_graphs(algo: Algo, size: int, memory_bandwidth: float = 50.0, element_bytes: int = 4) -> list[Graph]:
    """Return the execution trace of every rank, as ``<collective>-implementation-custom`` wants them.

    Args:
        algo: The algorithm.
        size: D in bytes.
        memory_bandwidth: Bytes per ns; an addition or copy passes through memory three times.
        element_bytes: Bytes per element; an addition is one operation on each.

    Returns:
        One graph per rank: sends, receives and compute nodes with whole microseconds (exact: ``duration_ns``).

    Raises:
        InputError: a chunk would have no bytes, or the bandwidth is not positive.
    """
    from armillary.trace import GraphBuilder

    over, under = algo.parts
    chunk = size * over // under
    if chunk < 1:
        raise InputError(f"{algo.file}: {size} bytes in {under} chunks, expected at least one byte in each")
    if memory_bandwidth <= 0:
        raise InputError(f"{algo.file}: memory bandwidth {memory_bandwidth}, expected more than 0")
    builders = [GraphBuilder(rank=rank) for rank in range(algo.n)]
    made: list[tuple[GraphBuilder, int, list[int]]] = []
    after = _node_dependencies(algo)
    for index, action in enumerate(algo.actions):
        builder, amount = builders[action.gpu], chunk * action.count
        place = f"tb{action.block}_step{action.step}"
        if action.kind == "send":
            name = f"COMM_SEND_NODE_{place}"
            builder.send(action.peer, amount, action.channel, name=name)
        elif action.kind == "recv":
            name = f"COMM_RECV_NODE_{place}"
            builder.recv(action.peer, amount, action.channel, name=name)
        elif action.kind != "wait":
            # Each of the three passes through memory is truncated alone.
            ns = 3 * int(amount / memory_bandwidth)
            builder.compute(
                f"COMP_NODE_{place}",
                duration_micros=ns // 1000,
                flops=amount // element_bytes if action.kind == "reduce" else 0,
                bytes=3 * amount,
            )
            builder.nodes[-1].attrs.append(("duration_ns", "int64", ns))
        if action.kind != "wait":
            made.append((builder, builder.nodes[-1].id, after[index]))
    # Steps wait for steps of other thread blocks, which may come later in the file.
    for builder, node, before in made:
        builder.wait_for(node, after=before)
    return [builder.graph(f"{algo.file}: gpu {rank}") for rank, builder in enumerate(builders)]


def _node_dependencies(algo: Algo) -> list[list[int]]:
    """Return the node ids that each action waits for; a wait has no node, so it hands on its own."""
    count = [0] * algo.n
    standing: list[list[int]] = []
    for action in algo.actions:
        standing.append([count[action.gpu]] if action.kind != "wait" else [])
        count[action.gpu] += action.kind != "wait"
    after: list[list[int]] = [[] for _ in algo.actions]
    for index in algo.order():
        needs = algo.actions[index].needs
        after[index] = list(dict.fromkeys(node for need in needs for node in standing[need]))
        if algo.actions[index].kind == "wait":
            standing[index] = after[index]
    return after
