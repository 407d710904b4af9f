"""A rehearsal of a trace: nothing takes time, and every rank has one collective in flight at a time."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque

import numpy as np

from armillary.trace.check_collectives import Use
from armillary.trace.communication import Communication, group_name, name_of
from armillary.trace.structure import csr, owners

MOST_NODES = 3_000_000
"""Above this the rehearsal is left out: it takes about 2 s per million nodes."""
_SHOWN = 4

Meeting = tuple[int, int]
"""Group, and number of the collective in it."""


def rehearse(communication: list[Communication], uses: dict[int, dict[int, Use]], agreed: list[int]) -> str:
    """Return who waits for whom where the run stalls, "" where it completes.

    Each distinct graph runs once, for all its ranks. Nodes that are ready together run in the order of their ids.
    """
    if sum(found.graph.n_nodes for found in communication) > MOST_NODES:
        return ""
    return _Rehearsal(communication, uses, agreed).run()


class _Rehearsal:
    def __init__(
        self, communication: list[Communication], uses: dict[int, dict[int, Use]], agreed: list[int]
    ) -> None:
        self.communication = communication
        self.of_group = {number: set(uses[number]) for number in agreed}
        self.actors = [_Actor(found) for found in communication]
        self.arrived: dict[Meeting, set[int]] = defaultdict(set)
        self.sent: dict[tuple[int, ...], int] = defaultdict(int)
        self.awaited: dict[tuple[int, ...], deque[tuple[int, int]]] = defaultdict(deque)

    def run(self) -> str:
        todo = list(range(len(self.actors)))
        while todo:
            at = todo.pop()
            actor = self.actors[at]
            while actor.free:
                node = actor.free.pop()
                # Nodes without a channel, such as compute, take no time and block nothing.
                channel = actor.channel.get(node)
                if channel is None:
                    actor.finish(node)
                elif actor.sends[node]:
                    # A send is eager: it finishes at once, and its message waits for a receive.
                    actor.finish(node)
                    if self.awaited[channel]:
                        other, receive = self.awaited[channel].popleft()
                        self.actors[other].finish(receive)
                        todo.append(other)
                    else:
                        self.sent[channel] += 1
                elif self.sent[channel]:
                    self.sent[channel] -= 1
                    actor.finish(node)
                else:
                    # Messages of equal ends, tag and size meet in order, so one queue each suffices.
                    self.awaited[channel].append((at, node))
            # A rank enters its next collective only when it has left the one before.
            if actor.running is None and actor.ready:
                todo += self._enter(at)
        return self._stuck()

    def _enter(self, at: int) -> list[int]:
        """Start the next collective of one actor; return those that can go on."""
        actor = self.actors[at]
        node = actor.start()
        number = actor.group[node]
        meeting = (number, actor.entered[number])
        actor.entered[number] += 1
        if number not in self.of_group:  # the ranks disagree about it, which is a finding of its own
            actor.leave()
            return [at]
        here = self.arrived[meeting]
        # The last member to arrive releases all of them.
        here.add(at)
        if here != self.of_group[number]:
            return []
        for other in here:
            self.actors[other].leave()
        return list(self.arrived.pop(meeting))

    def _stuck(self) -> str:
        texts = []
        for (number, _), here in sorted(self.arrived.items()):
            at = min(here)
            # Every meeting that is left lacks a member; the lowest stands for them.
            away = min(self.of_group[number] - here)
            actor, other = self.actors[at], self.actors[away]
            # The absent member waits for a message or is done: there is no second collective to name.
            if actor.running is None or other.running is None:
                continue
            texts.append(
                f"rank {actor.rank} waits in {name_of(actor.graph, actor.running)} of {group_name(number)} for rank "
                f"{other.rank}, which is in {name_of(other.graph, other.running)} of "
                f"{group_name(other.group[other.running])}"
            )
        return "; ".join(texts[:_SHOWN]) + ("; …" if len(texts) > _SHOWN else "")


class _Actor:
    """The state of one graph."""

    def __init__(self, found: Communication) -> None:
        graph, m = found.graph, found.messages
        self.graph, self.rank = graph, int(found.ranks[0])
        ptr, parent = graph.parents()
        child_ptr, child = csr(parent, owners(ptr), graph.n_nodes)
        self.child_ptr, self.child = child_ptr.tolist(), child.tolist()
        self.waiting = np.diff(ptr).tolist()
        self.ids = graph.ids.tolist()
        c = found.collectives
        self.group = dict(zip(c.position.tolist(), c.group.tolist(), strict=True))
        self.channel: dict[int, tuple[int, ...]] = {}
        self.sends: dict[int, bool] = {}
        # A graph of several ranks stands for all of them, which have different peers: its
        # messages finish at once, as if their partners were always there.
        if len(found.ranks) == 1:
            ends = np.where(m.send, self.rank, m.peer), np.where(m.send, m.peer, self.rank)
            rows = zip(*(column.tolist() for column in (*ends, m.tag, m.size)), strict=True)
            self.channel = dict(zip(m.position.tolist(), rows, strict=True))
            self.sends = dict(zip(m.position.tolist(), m.send.tolist(), strict=True))
        self.entered: dict[int, int] = defaultdict(int)
        self.running: int | None = None
        self.free: list[int] = []
        self.ready: list[tuple[int, int]] = []
        for node in np.flatnonzero(np.diff(ptr) == 0).tolist():
            self._release(node)

    def _release(self, node: int) -> None:
        if node in self.group:
            # By id, the order in which the `astra-sim` semantics issues what is ready.
            heapq.heappush(self.ready, (self.ids[node], node))
        else:
            self.free.append(node)

    def finish(self, node: int) -> None:
        for at in range(self.child_ptr[node], self.child_ptr[node + 1]):
            child = self.child[at]
            self.waiting[child] -= 1
            if not self.waiting[child]:
                self._release(child)

    def start(self) -> int:
        self.running = heapq.heappop(self.ready)[1]
        return self.running

    def leave(self) -> None:
        assert self.running is not None
        node, self.running = self.running, None
        self.finish(node)
