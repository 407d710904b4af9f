"""Execute the graph of one rank on CPUs: one loop issues nodes and waits for their ends.

Collectives and messages run in the background; compute runs in a thread for each stream, or is a timer.
"""

from __future__ import annotations

import heapq
import queue
import time
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.evidence.replay.plan import COMMUNICATES, INSTANT, Key, RankPlan
from armillary.trace import Feeder, Graph

SPIN_NS = 300_000
"""How long before a timer ends the loop stops sleeping: the system wakes it late."""
# How long a stop or a timeout may go unnoticed.
LISTEN_SECONDS = 0.1
# Each waiting operation blocks a thread.
THREADS = 256
# Deadlock: a rank that only receives later would block a sender that has no buffer.
WINDOW = 64
"""Receives that are posted before their dependencies are met, so that a send need not wait for them."""

Doing = Callable[[int], Callable[[], None] | int]
"""What a compute node does: work to call, or nanoseconds that it takes."""


class Stuck(Exception):  # noqa: N818
    """Nothing has ended for too long; holds what was issued."""

    def __init__(self, running: list[int], held: list[int], issued: dict[Key, int]) -> None:
        super().__init__()
        self.running, self.held, self.issued = running, held, issued


class Loop:
    """Executes the graph of one rank, again and again."""

    def __init__(
        self,
        plan: RankPlan,
        graph: Graph,
        issue: Callable[[int], Any],
        doing: Doing,
        timeout: float,
        stopped: Callable[[], bool],
    ) -> None:
        """Say how nodes are executed.

        Args:
            plan: What the rank does.
            graph: Its graph.
            issue: Starts the operation of a node, returns its ``Work``.
            doing: See `Doing`.
            timeout: Seconds without the end of any node after which it is stuck.
            stopped: Says whether another rank is stuck.
        """
        self.plan, self.graph = plan, graph
        self.issue, self.doing = issue, doing
        self.timeout, self.stopped = timeout, stopped
        self._ends: queue.SimpleQueue[tuple[int, int, int, BaseException | None]] = queue.SimpleQueue()
        # Work.wait() blocks: each operation in flight has a thread that waits for it.
        self._waiters = ThreadPoolExecutor(THREADS)
        self._workers: dict[int, ThreadPoolExecutor] = {}

    def run(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Execute the graph once; return start and end of every node in ns of `time.perf_counter_ns`.

        Raises:
            Stuck: nothing ended for `timeout` seconds, or another rank is stuck.
        """
        # A new state per execution.
        return _Run(self).execute()

    def wait(self, work: Any) -> None:
        """Wait for an operation that is no node.

        Raises:
            Stuck: it takes longer than `timeout`, or another rank is stuck.
        """
        self.watch(-1, work)
        end = time.monotonic() + self.timeout
        while True:
            found = self.listen(LISTEN_SECONDS)
            if found:
                return
            if self.stopped() or time.monotonic() > end:
                raise Stuck([], [], {})

    def watch(self, node: int, work: Any) -> None:
        """Make `listen` return the end of an operation."""
        self._waiters.submit(self._hear, node, work.wait)

    def start(self, node: int, slot: int, work: Callable[[], None]) -> None:
        """Run work in the thread of its slot; `listen` returns its end."""
        if slot not in self._workers:
            # One thread per slot: its nodes run one after the other.
            self._workers[slot] = ThreadPoolExecutor(1)
        self._workers[slot].submit(self._hear, node, work)

    def _hear(self, node: int, work: Callable[[], Any]) -> None:
        start, error = time.perf_counter_ns(), None
        try:
            work()
        # Whatever it is: the loop raises it again in its own thread.
        except BaseException as failure:
            error = failure
        self._ends.put((node, start, time.perf_counter_ns(), error))

    def listen(self, seconds: float) -> tuple[int, int, int] | None:
        """Return the next end (node, start, end in ns), None if there is none within `seconds`."""
        try:
            node, start, end, error = (
                self._ends.get(timeout=seconds) if seconds > 0 else self._ends.get_nowait()
            )
        except queue.Empty:
            return None
        if error is not None:
            raise error
        return node, start, end


class _Run:
    """One execution."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.plan = loop, loop.plan
        self.feeder = Feeder(loop.graph)
        n = loop.graph.n_nodes
        self.kind, self.slot = self.plan.compute.kind.tolist(), self.plan.compute.slot.tolist()
        # ns, by position; `ready` is when all parents had ended.
        self.begin, self.end, self.ready = [0] * n, [0] * n, [0] * n
        ptr, parents = loop.graph.parents()
        self.parent_ptr, self.parents = ptr.tolist(), parents.tolist()
        self.ids = loop.graph.ids.tolist()
        # Operations that are ready before their turn: NCCL and gloo match by order within a group.
        self.held: dict[Key, dict[int, int]] = defaultdict(dict)
        self.issued: dict[Key, int] = defaultdict(int)
        self.running: set[int] = set()
        # Ready compute nodes per slot, a heap by id, as the trace's order is by id.
        self.waiting: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.busy: set[int] = set()
        self.free_at: dict[int, int] = defaultdict(int)
        self.timers: list[tuple[int, int]] = []
        # In the order of the trace, so that windows of both ends match.
        receives = [node for node in self.plan.turn if self.plan.operations[node].kind == "recv"]
        self.receives, self.unposted = frozenset(receives), deque(receives)
        # Messages that arrived before their receive node was ready -> ns.
        self.arrived: dict[int, int] = {}
        self.posted = 0

    def execute(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        began = self.last = time.perf_counter_ns()
        self.ready = [began] * len(self.ready)
        self.post()
        while not self.feeder.done:
            while (node := self.feeder.next_issuable()) is not None:
                self.take(node)
            # Timers that are over come first: they were due before anything that is heard now.
            if self.timers and self.timers[0][0] <= time.perf_counter_ns():
                at, node = heapq.heappop(self.timers)
                self.finish(node, self.begin[node], at)
            else:
                self.hear()
        return np.array(self.begin), np.array(self.end)

    def take(self, node: int) -> None:
        """Start a node whose dependencies are met, or put it where it waits for its turn."""
        kind = self.kind[node]
        if kind == INSTANT:
            self.finish(node, self.ready[node], self.ready[node])
        elif node in self.receives:
            self.begin[node] = time.perf_counter_ns()
            # Posted ahead and arrived already: the node takes no time.
            if node in self.arrived:
                self.finish(node, self.begin[node], max(self.begin[node], self.arrived[node]))
            else:
                self.running.add(node)
        elif kind == COMMUNICATES:
            key = self.plan.operations[node].key
            self.held[key][self.plan.turn[node]] = node
            # Issue all that are ready and next in turn.
            while (following := self.held[key].pop(self.issued[key], None)) is not None:
                self.begin[following] = time.perf_counter_ns()
                self.issue(following)
                self.running.add(following)
        else:
            heapq.heappush(self.waiting[self.slot[node]], (self.ids[node], node))
            self.compute(self.slot[node])

    def issue(self, node: int) -> None:
        """Start an operation."""
        self.loop.watch(node, self.loop.issue(node))
        self.issued[self.plan.operations[node].key] += 1

    def post(self) -> None:
        """Keep the window of receives full, in the order of their ids."""
        # A window, not all: each posted receive holds a thread.
        while self.unposted and self.posted < WINDOW:
            self.issue(self.unposted.popleft())
            self.posted += 1

    def compute(self, slot: int) -> None:
        """Start the next compute node of a slot that is free."""
        if slot in self.busy or not self.waiting[slot]:
            return
        _, node = heapq.heappop(self.waiting[slot])
        self.busy.add(slot)
        what = self.loop.doing(node)
        if isinstance(what, int):
            # From when it could start, not from now: what this loop takes itself is made good.
            self.begin[node] = max(self.ready[node], self.free_at[slot])
            heapq.heappush(self.timers, (self.begin[node] + what, node))
        else:
            self.running.add(node)
            self.loop.start(node, slot, what)

    def hear(self) -> None:
        """Wait for the next end or timer."""
        # Without a timer there is nothing to wait for but the network.
        left = self.timers[0][0] - time.perf_counter_ns() if self.timers else 1 << 62
        if left <= SPIN_NS:
            time.sleep(0)  # yields the interpreter to the threads that wait for the network
            found = self.loop.listen(0)
        else:
            found = self.loop.listen(min((left - SPIN_NS) / 1e9, LISTEN_SECONDS))
            # Nothing was heard for a whole period: check whether that is for good.
            if not found and (self.loop.stopped() or self.idle()):
                held = [node for nodes in self.held.values() for node in nodes.values()]
                raise Stuck(sorted(self.running), sorted(held), dict(self.issued))
        if found:
            self.ended(*found)

    def ended(self, node: int, start: int, end: int) -> None:
        """Record the end of an operation or of work."""
        if node in self.receives:
            self.posted -= 1
            self.post()
            # Arrived before its node: keep the time until the node is ready.
            if node not in self.running:
                self.arrived[node] = self.last = end
                return
        self.running.remove(node)
        # Operations begin when they are issued, work when its thread starts.
        self.finish(node, self.begin[node] if self.kind[node] == COMMUNICATES else start, end)

    def idle(self) -> bool:
        """Return whether only the network is left to wait for, and for too long."""
        computing = any(self.kind[node] != COMMUNICATES for node in self.running)
        late = time.perf_counter_ns() - self.last > self.loop.timeout * 1e9
        # While something computes or a timer runs, progress will come.
        return late and not self.timers and not computing

    def finish(self, node: int, begin: int, end: int) -> None:
        self.begin[node], self.end[node] = begin, end
        self.last = time.perf_counter_ns()
        for child in self.feeder.finish(node):
            # A timer can be heard of after what ended later than it.
            parents = self.parents[self.parent_ptr[child] : self.parent_ptr[child + 1]]
            # Not when this loop noticed, but when the last parent ended.
            self.ready[child] = max(self.end[parent] for parent in parents)
        slot = self.slot[node]
        if self.kind[node] not in (INSTANT, COMMUNICATES):
            self.busy.remove(slot)
            self.free_at[slot] = end
            # The slot may have waiting nodes.
            self.compute(slot)
