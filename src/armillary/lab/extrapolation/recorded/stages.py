"""Divides a recorded pipeline stage into pieces: before the microbatches, their tasks and messages, after them.

The host runs one call after the other: its own work (scopes, such as a profiler's step, and what they do between
calls), operators with all that they call, and functions of the backward pass likewise. Calls that send to or receive
from another stage divide this sequence into tasks. Their order must be that of a known schedule, each task after what
it receives and before what it sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.lab.extrapolation.kernels import Nodes
from armillary.lab.extrapolation.recorded.tensors import callers
from armillary.trace import Graph, NodeType
from armillary.workload.pipeline.tasks import Task, tasks

Kind = Literal["", "F", "B", "RF", "RB", "SF", "SB"]
"""Kind of a piece: forward (F) or backward (B) of a microbatch, receive (RF, RB) or send (SF, SB); "": of the step."""
BACKWARD = "autograd::engine::evaluate_function: "
LISTED = "aten::_foreach_"
"""Operators on lists, which call one for each of their tensors."""
SCHEDULES = ("1f1b", "gpipe")
"""Those whose messages PyTorch sends and receives one by one, in this order."""
EXPECTED = (
    "expected one step of torch.distributed.pipelining's Schedule1F1B or ScheduleGPipe, recorded on CPU ranks"
)


@dataclass(frozen=True)
class Unit:
    """A call and all inside of it, or what the host does by itself.

    Attributes:
        nodes: Positions.
        call: Whether it is a call.
        kind: Of the message that it is of.
    """

    nodes: tuple[int, ...]
    call: bool
    kind: Kind = ""


@dataclass(frozen=True)
class Piece:
    """An uninterrupted sequence of units: of the whole step where `kind` is "", else of one microbatch."""

    kind: Kind
    microbatch: int
    units: tuple[Unit, ...]


@dataclass(frozen=True)
class RecordedStage:
    """A rank's step in pieces.

    Attributes:
        nodes: Of its graph.
        pieces: In order; the first and the last are of the whole step.
        stage: Number of the stage.
        microbatches: How many.
        schedule: Its name.
    """

    nodes: Nodes
    pieces: tuple[Piece, ...]
    stage: int
    microbatches: int
    schedule: str

    def of(self, kind: Kind, microbatch: int) -> Piece:
        """Return a piece.

        Raises:
            KeyError: the stage has no such piece.
        """
        for piece in self.pieces:
            if (piece.kind, piece.microbatch) == (kind, microbatch):
                return piece
        raise KeyError(kind, microbatch)


def order_of(schedule: str, stages: int, stage: int, microbatches: int) -> list[tuple[Kind, int]]:
    """Return the tasks of a stage in order, each after what it receives and before what it sends."""
    return [
        each
        for task in tasks(schedule, stages, 1, microbatches)[stage]
        for each in _around(task, stage, stages)
    ]


def _around(task: Task, stage: int, stages: int) -> Iterator[tuple[Kind, int]]:
    ahead = task.kind == "F"
    # The first stage receives no activations, the last one no gradients.
    if stage > 0 if ahead else stage < stages - 1:
        yield "RF" if ahead else "RB", task.microbatch
    yield "F" if ahead else "B", task.microbatch
    if stage < stages - 1 if ahead else stage > 0:
        yield "SF" if ahead else "SB", task.microbatch


def recorded_stage(nodes: Nodes, stage: int, stages: int) -> RecordedStage:
    """Return the pieces of a stage.

    Raises:
        InputError: its messages are not those of one step of a known schedule, or microbatches differ; names the graph.
    """
    graph = nodes.graph
    if ((graph.types == NodeType.COMP_NODE) & (graph.ints("is_cpu_op", 0) == 0)).any():
        raise InputError(
            f"{graph.source} has kernels on a device, which are not placed in microbatches; {EXPECTED}"
        )
    units = _units(nodes)
    messages = [unit.kind for unit in units if unit.kind]
    if not messages:
        raise InputError(f"{graph.source} has no messages between stages; {EXPECTED}")
    # One per microbatch: what the first stage sends, or any other receives, going forward.
    microbatches = messages.count("SF" if stage == 0 else "RF")
    for schedule in SCHEDULES:
        order = order_of(schedule, stages, stage, microbatches) if microbatches else []
        if [kind for kind, _ in order if len(kind) > 1] == messages:
            pieces = _pieces(graph, units, order)
            found = RecordedStage(nodes, tuple(pieces), stage, microbatches, schedule)
            _check_alike(found)
            return found
    raise InputError(
        f"{graph.source} sends and receives {len(messages)} times between stages ({_counts(messages)}), in an order "
        f"that is not the one of stage {stage} of {stages}; {EXPECTED}"
    )


def _counts(messages: Sequence[str]) -> str:
    names = {
        "RF": "from the stage before",
        "SF": "to the next",
        "RB": "from the next",
        "SB": "to the one before",
    }
    return ", ".join(f"{messages.count(kind)} {name}" for kind, name in names.items() if kind in messages)


def host_thread(graph: Graph) -> NDArray[np.bool_]:
    """Return a mask of the nodes of the busiest thread, whose calls run one after the other."""
    local: NDArray[np.bool_] = graph.types == NodeType.COMP_NODE
    threads, counts = np.unique(graph.ints("tid", -1)[local], return_counts=True)
    # Threads of communication libraries record a few calls of their own.
    return local & (graph.ints("tid", -1) == threads[np.argmax(counts)]) if len(threads) else local


def _units(nodes: Nodes) -> list[Unit]:
    """Return calls, and the host's own work, in order; what a call issues is part of it."""
    graph = nodes.graph
    above, names = callers(graph).tolist(), graph.names()
    host, parts = host_thread(graph).tolist(), graph.ints("part", 0).tolist()
    # A scope has calls inside but no schema: profiler steps, `record_function`, hooks.
    leaf = np.ones(graph.n_nodes, np.bool_)
    leaf[[each for each in above if each >= 0]] = False
    listed = np.array([name.startswith(LISTED) for name in names], np.bool_)
    scope = (~leaf & ((graph.strings("op_schema")[0] < 0) | listed)).tolist()
    ptr, parents = graph.parents()
    members: list[list[int]] = []
    called: list[bool] = []
    unit_of: list[int] = []
    scopes: set[str] = set()
    for node in range(graph.n_nodes):
        top = above[node] < 0 or scope[above[node]]
        scope[node] = scope[node] and top and not names[node].startswith(BACKWARD)
        if scope[node]:
            scopes.add(names[node])
        at = len(members) - 1
        if not host[node]:
            # Communication belongs to the call that issued it, not to the one that happens to be before it.
            issued = [each for each in parents[ptr[node] : ptr[node + 1]].tolist() if host[each]]
            at = unit_of[max(issued)] if issued and max(issued) < node else at
        elif at < 0 or (names[node] in scopes if parts[node] else top):
            members.append([])
            called.append(not parts[node] and not scope[node])
            at += 1
        unit_of.append(max(at, 0))
        if not members:
            members.append([])
            called.append(False)
        members[unit_of[-1]].append(node)
    return [Unit(tuple(own), call, _kind(nodes, own)) for own, call in zip(members, called, strict=True)]


def _kind(nodes: Nodes, members: Sequence[int]) -> Kind:
    """Return the kind of the first message between stages among some nodes; "" where there is none."""
    graph = nodes.graph
    between = nodes.along("pp")
    for node in members:
        if between[node]:
            sends = graph.types[node] == NodeType.COMM_SEND_NODE
            away = int(graph.ints("comm_dst")[node] if sends else graph.ints("comm_src")[node])
            if sends:
                return "SF" if away > 0 else "SB"
            return "RF" if away < 0 else "RB"
    return ""


def _pieces(graph: Graph, units: Sequence[Unit], order: Sequence[tuple[Kind, int]]) -> list[Piece]:
    """Return the pieces of a step, in order.

    Raises:
        InputError: where microbatches begin and end is not seen.
    """
    # `due[i]`: the tasks between message i - 1 and message i, one or two, or none where messages follow each
    # other.
    gaps, messages = _divided(units)
    due: list[list[tuple[Kind, int]]] = [[]]
    sent: list[tuple[Kind, int]] = []
    for each in order:
        if len(each[0]) > 1:
            sent.append(each)
            due.append([])
        else:
            due[-1].append(each)
    first = 0
    if due[0]:
        first = _begin(graph, gaps[0], gaps[1])
    elif gaps[0]:
        first = len(gaps[0])
    last = _after_backward(graph, gaps[-1]) if due[-1] else 0
    found = [Piece("", 0, tuple(gaps[0][:first]))]
    after = Piece("", 1, tuple(gaps[-1][last:]))
    gaps[-1] = gaps[-1][:last]
    gaps[0] = gaps[0][first:]
    for number, (gap, own) in enumerate(zip(gaps, due, strict=True)):
        ahead: list[Unit] = []
        # Forward then backward, or the reverse: the cut is at the first, or behind the last, function of
        # autograd.
        if len(own) == 2:
            cut = _backward(graph, gap) if own[0][0] == "F" else _after_backward(graph, gap)
            found.append(Piece(*own[0], tuple(gap[:cut])))
            found.append(Piece(*own[1], tuple(gap[cut:])))
        elif own:
            found.append(Piece(*own[0], tuple(gap)))
        else:
            ahead = gap
        if number < len(messages):
            found.append(Piece(*sent[number], (*ahead, messages[number])))
    return [*found, after]


def _divided(units: Sequence[Unit]) -> tuple[list[list[Unit]], list[Unit]]:
    """Return the units between messages, one list more than there are messages, and the messages."""
    gaps: list[list[Unit]] = [[]]
    messages: list[Unit] = []
    for unit in units:
        if unit.kind:
            messages.append(unit)
            gaps.append([])
        else:
            gaps[-1].append(unit)
    return gaps, messages


def _begin(graph: Graph, gap: Sequence[Unit], second: Sequence[Unit]) -> int:
    """Return where the first microbatch begins: at the calls that match those of the second one.

    Raises:
        InputError: it is something else.
    """
    # `second` is the gap after the first message: on stage 0, one forward pass alone. The calls of the first
    # pass are the same, counted from the end of its gap.
    like = [signature(graph, unit) for unit in second if unit.call]
    calls = [at for at, unit in enumerate(gap) if unit.call]
    own = [signature(graph, gap[at]) for at in calls[-len(like) :]] if like else []
    if not like or own != like:
        raise InputError(f"{graph.source}: where the first microbatch begins is not seen, for the second one does "
                         f"something else; {EXPECTED}, of 2 or more microbatches")  # fmt: skip
    return _opened(graph, gap, calls[-len(like)])


def _opened(graph: Graph, gap: Sequence[Unit], at: int) -> int:
    """Return the place of a call, or of the scopes that begin with it and end before the gap does."""
    above = callers(graph)
    while at > 0 and not gap[at - 1].call:
        scope = gap[at - 1].nodes[0]
        inside = np.flatnonzero(above == scope)
        if not len(inside) or inside[0] != gap[at].nodes[0] or inside[-1] > gap[-1].nodes[-1]:
            break
        at -= 1
    return at


def _backward(graph: Graph, gap: Sequence[Unit]) -> int:
    """Return where the backward pass begins."""
    found = next((at for at, unit in enumerate(gap) if _goes_back(graph, unit)), len(gap))
    return _opened(graph, gap, found) if found < len(gap) else found


def _after_backward(graph: Graph, gap: Sequence[Unit]) -> int:
    """Return where the backward pass has ended."""
    return max((at + 1 for at, unit in enumerate(gap) if _goes_back(graph, unit)), default=0)


def _goes_back(graph: Graph, unit: Unit) -> bool:
    return graph.name(unit.nodes[0]).startswith(BACKWARD)


def signature(graph: Graph, unit: Unit) -> tuple[str, int]:
    """Return the key by which calls are compared: name and operations. Bytes of copies depend on the host's memory."""
    return graph.name(unit.nodes[0]), int(graph.ints("num_ops")[list(unit.nodes)].sum())


def work_of(graph: Graph, piece: Piece) -> list[tuple[str, int]]:
    """Return the calls of a piece that have operations."""
    found = [signature(graph, unit) for unit in piece.units if unit.call]
    return [each for each in found if each[1]]


KINDS: tuple[tuple[Kind, str], ...] = (("F", "forward"), ("B", "backward"))


def _check_alike(stage: RecordedStage) -> None:
    """Check that microbatches do the same, but for the first, which makes gradients to which others add.

    Raises:
        InputError: they do not.
    """
    graph = stage.nodes.graph
    last = stage.microbatches - 1
    for kind, what in KINDS:
        # Backward of the first microbatch makes gradients instead of adding; that of the last may reduce
        # them.
        first, end = (0, last) if kind == "F" else (1, last - 1)
        works = [work_of(graph, stage.of(kind, each)) for each in range(first, end + 1)]
        for number, own in enumerate(works):
            if own != works[0]:
                raise InputError(
                    f"{graph.source}: microbatch {first + number} does something else {what} than the ones before; "
                    "expected all microbatches to be alike"
                )
