"""What a run decided: which node follows which, who meets, and how long transfers take once they begin."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from armillary.engine.common import network
from armillary.engine.common.layout import N_CHILD, N_CHILDREN
from armillary.engine.common.lowered import Run
from armillary.engine.physical import layout as lk
from armillary.engine.physical.grid import GridWorkload
from armillary.engine.physical.nodes import COMPUTE, CPU, PhysicalNodes
from armillary.engine.physical.program import PhysicalProgram
from armillary.engine.physical.retiming.times import Kernel

KNOWN = (lk.FIXED, lk.SKIP, lk.COLLECTIVE, lk.SEND, lk.RECV)
"""Kinds of nodes whose times can be computed anew."""
FAR = 64
"""Nodes that are looked at to find that one of two predecessors follows the other."""


@dataclass(frozen=True, eq=False)
class Step:
    """A node after others of its class. `kernel` None: it takes no time, or `Meet` or `Move` says when it ends."""

    node: int
    cls: int
    after: tuple[int, ...]
    kernel: Kernel | None


@dataclass(frozen=True, eq=False)
class Meet:
    """A collective: it begins when all members of a group have come, and takes what it took.

    Attributes:
        nodes: A node of each class.
        classes: These classes.
        axis_set: Whose groups meet.
        ticks: From the last arrival to the end, by class.
        shares: Of its time that each dimension of the network is what it waits for.
    """

    nodes: tuple[int, ...]
    classes: tuple[int, ...]
    axis_set: int
    ticks: tuple[int, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Move:
    """A message: it begins when it is sent and the one before it has left, and takes what it took.

    Attributes:
        node: That sends it.
        sender: Class of that.
        before: The node that sent the message before it on the channel; -1: none.
        latency: Ticks of its last byte on its way.
        ticks: Until it is there.
        dimensions: That it crosses.
        receiver: Class that receives it.
        route: Of its view, which names the sender.
    """

    node: int
    sender: int
    before: int
    latency: int
    ticks: int
    dimensions: tuple[int, ...]
    receiver: int
    route: int


@dataclass(frozen=True, eq=False)
class Receive:
    """A receive: it ends when it has begun and its message is there; `route` of the view names the sender."""

    node: int
    cls: int
    after: tuple[int, ...]
    sent: int
    sender: int
    route: int


Operation = Step | Meet | Move | Receive


@dataclass(eq=False)
class Decisions:
    """The operations of a run in an order in which each follows what it waits for.

    Attributes:
        operations: One for each node, or for each that several share.
        spent: By operation, the nodes whose times nothing later needs.
        last: Nodes that nothing follows, and their classes.
    """

    operations: list[Operation]
    spent: list[list[int]]
    last: list[tuple[int, int]]


class UnknownTimesError(Exception):
    """The run has something whose times cannot be computed anew."""


@dataclass(eq=False)
class Reader:
    """Reads the decisions of a run; nodes are numbered over all classes, as in its state."""

    workload: GridWorkload
    program: PhysicalProgram
    run: Run
    after: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Lay the tables of the program side by side, a row for each node."""
        tables = self.program.tables
        self.ranks = tables["RANKS"].reshape(-1, lk.R_COLUMNS)
        nodes = tables["NODES"].reshape(-1, lk.N_COLUMNS)
        own = [nodes[row[lk.R_NODES] : row[lk.R_NODES] + row[lk.R_COUNT]] for row in self.ranks]
        self.nodes = np.concatenate(own) if own else nodes[:0]
        self.first = self.ranks[:, lk.R_STATE]
        self.cls = np.repeat(np.arange(len(self.ranks)), self.ranks[:, lk.R_COUNT])
        self.start, self.end = self.run.table("NODE_START"), self.run.table("NODE_END")
        self.items = tables["ITEMS"].reshape(-1, lk.I_COLUMNS)
        if not np.isin(self.nodes[:, lk.N_KIND], KNOWN).all():
            raise UnknownTimesError

    def view_of(self, cls: int) -> int:
        """Return the number of the view of a class."""
        return self.workload.kind(int(self.program.representatives[cls]))

    def read(self) -> Decisions:
        """Return the decisions.

        Raises:
            UnknownTimesError: the run has something whose times cannot be computed anew.
        """
        children = self._children()
        self._order(children)
        operations = list(self._operations(children))
        used = np.full(len(self.nodes), -1, np.int64)
        for at, operation in enumerate(operations):
            used[list(_touches(operation))] = at
        spent: list[list[int]] = [[] for _ in operations]
        last = []
        for node in range(len(self.nodes)):
            if not children[node]:
                last.append((node, int(self.cls[node])))
            elif used[node] >= 0:
                spent[used[node]].append(node)
        return Decisions(operations, spent, last)

    def _children(self) -> list[list[int]]:
        table, found = self.program.tables["CHILDREN"], []
        for node, row in enumerate(self.nodes):
            at, base = int(row[N_CHILD]), int(self.first[self.cls[node]])
            found.append((table[at : at + int(row[N_CHILDREN])] + base).tolist())
        return found

    def _order(self, children: list[list[int]]) -> None:
        """Fill `after`: what each node waits for, its parents and the node before it on its stream."""
        after: list[list[int]] = [[] for _ in children]
        for node, mine in enumerate(children):
            for child in mine:
                after[child].append(node)
        slot = self.nodes[:, lk.N_SLOT]
        order = np.lexsort((np.arange(len(slot)), self.end, self.start, slot, self.cls))
        for one, other in zip(order[:-1].tolist(), order[1:].tolist(), strict=True):
            # Slot 0 is nothing that a node occupies.
            if self.cls[one] == self.cls[other] and slot[one] == slot[other] != 0:
                after[other].append(one)
                children[one].append(other)
        self.after = {node: self._needed(node, after) for node in range(len(after))}

    def _needed(self, node: int, after: list[list[int]]) -> list[int]:
        """Return what a node waits for, without what another of these waits for anyway."""
        mine = list(dict.fromkeys(after[node]))
        if len(mine) < 2:
            return mine
        earliest, followed, looked = min(int(self.start[each]) for each in mine), set[int](), 0
        stack = list(mine)
        while stack and looked < FAR * len(mine):
            for parent in after[stack.pop()]:
                looked += 1
                if parent not in followed and self.start[parent] >= earliest:
                    followed.add(parent)
                    stack.append(parent)
        return [each for each in mine if each not in followed]

    def _operations(self, children: list[list[int]]) -> Iterator[Operation]:
        kind, meets, moves = self.nodes[:, lk.N_KIND], self._meets(), self._moves()
        of_node = {node: meet for meet in meets for node in meet.nodes}
        missing = {id(meet): len(meet.nodes) for meet in meets}
        sends = {move.node: move for move, _ in moves}
        next_on = {move.before: move for move, _ in moves if move.before >= 0}
        sender = {received: move for move, received in moves}
        left = np.array([len(self.after[node]) for node in range(len(kind))], np.int64)
        kept = [[child for child in mine if node in self.after[child]] for node, mine in enumerate(children)]
        moved, ready = set[int](), set[int]()
        free = deque(np.flatnonzero(left == 0).tolist())
        done = 0

        def ended(node: int) -> None:
            for child in dict.fromkeys(kept[node]):
                left[child] -= 1
                if left[child] == 0:
                    free.append(child)

        def move(message: Move) -> Iterator[Operation]:
            at: Move | None = message
            while at is not None and at.node in ready and (at.before < 0 or at.before in moved):
                moved.add(at.node)
                yield at
                ended(at.node)
                at = next_on.get(at.node)

        waiting: dict[int, int] = {}
        while free:
            node = free.popleft()
            cls, after = int(self.cls[node]), tuple(self.after[node])
            if kind[node] == lk.RECV:
                message = sender[node]
                if message.node not in moved:
                    waiting[message.node] = node
                    continue
                done += 1
                yield Receive(node, cls, after, message.node, message.sender, message.route)
                ended(node)
                continue
            done += 1
            yield Step(node, cls, after, self._kernel(node))
            if kind[node] == lk.COLLECTIVE:
                meet = of_node[node]
                missing[id(meet)] -= 1
                if not missing[id(meet)]:
                    yield meet
                    for each in meet.nodes:
                        ended(each)
            elif kind[node] == lk.SEND:
                ready.add(node)
                for operation in move(sends[node]):
                    yield operation
                    assert isinstance(operation, Move)
                    if operation.node in waiting:
                        free.append(waiting.pop(operation.node))
            else:
                ended(node)
        if done != len(kind):
            raise UnknownTimesError

    def _kernel(self, node: int) -> Kernel | None:
        if self.nodes[node, lk.N_KIND] != lk.FIXED:
            return None
        cls = int(self.cls[node])
        nodes = self.workload.views[self.view_of(cls)].nodes
        assert isinstance(nodes, PhysicalNodes)
        at = node - int(self.first[cls])
        # Here `slot` is still a class, not a number: as `Paces` has it.
        occupies = int(nodes.slot[at])
        least = ceil(self.workload.platform.terms.launch) if occupies == COMPUTE else 0
        return Kernel(int(nodes.ticks[at]), occupies in (COMPUTE, CPU), least)

    def _meets(self) -> list[Meet]:
        members: dict[tuple[int, int], list[int]] = defaultdict(list)
        instance = self.run.table("ITEM_INSTANCE")
        for item in np.flatnonzero(self.program.is_collective).tolist():
            members[int(self.items[item, lk.I_COMM]), int(instance[item])].append(item)
        found = []
        for items in members.values():
            rows = self.items[items]
            classes = rows[:, lk.I_RANK]
            nodes = rows[:, lk.I_NODE] + self.first[classes]
            axis_sets = {self._axis_set(item) for item in items}
            if len(axis_sets) > 1:
                raise UnknownTimesError
            begin = int(self.start[nodes].max())
            ticks = self.end[nodes] - begin
            found.append(
                Meet(
                    tuple(nodes.tolist()), tuple(classes.tolist()), axis_sets.pop(), tuple(ticks.tolist()),
                    self._shares(int(rows[0, lk.I_PLAN]), int(ticks.max())),
                )
            )  # fmt: skip
        return found

    def _axis_set(self, item: int) -> int:
        cls = int(self.items[item, lk.I_RANK])
        view = self.workload.views[self.view_of(cls)]
        return view.calls[int(view.call[item - int(self.ranks[cls, lk.R_ITEMS])])].comm

    def _shares(self, plan: int, ticks: int) -> tuple[float, ...]:
        """Return the share of its time that each dimension is busy with a collective, together 1 at most."""
        tables = self.program.tables
        phases = tables["PHASES"].reshape(-1, lk.PH_COLUMNS)
        row = tables["PLANS"].reshape(-1, lk.PL_COLUMNS)[plan]
        own = self.program.plans[plan]
        busy = np.zeros(len(self.workload.platform.dimensions))
        chunks = tables["CHUNKS"][row[lk.PL_CHUNKS] : row[lk.PL_CHUNKS] + own.chunks]
        for first, count in zip(*np.unique(chunks, return_counts=True), strict=True):
            for at, phase in enumerate(own.phases):
                for dim, _ in phase.ports:
                    if dim >= 0:
                        busy[dim] += int(phases[first + at, lk.PH_TICKS]) * count
        busy = np.minimum(busy / max(ticks, 1), 1)
        return tuple((busy / max(float(busy.sum()), 1.0)).tolist())

    def _moves(self) -> list[tuple[Move, int]]:
        """Return the messages of each channel in their order, with the node that receives each."""
        channels = self.program.tables["CHANNELS"].reshape(-1, lk.CN_COLUMNS)
        sends, receives = self.run.table("SEND_NODE"), self.run.table("RECV_NODE")
        sent = self.run.table("SENT")
        found: list[tuple[Move, int]] = []
        for number, row in enumerate(channels):
            a, b = int(row[lk.CN_SENDER]), int(row[lk.CN_RECEIVER])
            before = -1
            for at in range(int(row[lk.CN_FIRST]), int(row[lk.CN_FIRST] + sent[number])):
                node, received = int(sends[at] + self.first[a]), int(receives[at] + self.first[b])
                item = self.items[int(self.ranks[a, lk.R_ITEMS] + self.nodes[node, lk.N_ITEM])]
                latency = int(item[lk.I_LATENCY])
                begin = int(self.start[node])
                if before >= 0:
                    begin = max(begin, int(self.end[before]) - latency)
                view, rank = self.workload.views[self.view_of(b)], int(self.program.representatives[b])
                route = int(view.peer[int(self.nodes[received, lk.N_ITEM])])
                peer = int(self.workload.messages.peers[self.view_of(b)].of(rank)[route])
                hops = network.path(self.workload.platform.dimensions, np.array(peer), np.array(rank))
                crossed = tuple(d for d, hop in enumerate(hops) if int(hop))
                move = Move(node, a, before, latency, int(self.end[node]) - begin, crossed, b, route)
                found.append((move, received))
                before = node
        return found


def _touches(operation: Operation) -> Iterator[int]:
    """Yield the nodes whose times an operation reads or writes."""
    if isinstance(operation, Meet):
        yield from operation.nodes
    elif isinstance(operation, Move):
        yield operation.node
        if operation.before >= 0:
            yield operation.before
    else:
        yield operation.node
        yield from operation.after
        if isinstance(operation, Receive):
            yield operation.sent
