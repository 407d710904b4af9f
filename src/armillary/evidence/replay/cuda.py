"""Execute the graph of one rank on a GPU: everything is queued on streams, which wait for each other.

The host runs ahead as a real program does. It waits only where a CPU node depends on the GPU; CPU nodes
run one after the other.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.evidence.replay.loop import Stuck
from armillary.evidence.replay.plan import COMMUNICATES, INSTANT, Key, RankPlan
from armillary.evidence.replay.work import Work
from armillary.trace import Feeder, Graph

POLL_SECONDS = 20e-6
# About 5 ms on a GPU of 2 GHz: long enough to measure the clock.
_SPIN_CYCLES = 10_000_000


class Streams:
    """Executes the graph of one rank, again and again; see `armillary.evidence.replay.loop.Loop`."""

    def __init__(
        self,
        plan: RankPlan,
        graph: Graph,
        torch: Any,
        issue: Callable[[int], Any],
        compute: str,
        timeout: float,
        stopped: Callable[[], bool],
    ) -> None:
        """Say how nodes are executed; `compute` is that of `armillary.evidence.replay.replay`."""
        self.plan, self.graph, self.torch, self.issue = plan, graph, torch, issue
        self.timeout, self.stopped = timeout, stopped
        # Only shapes need something to compute with.
        self.work = Work(torch, "cuda", torch.cuda.synchronize) if compute == "shapes" else None
        self.cycles_per_ns = _clock(torch)
        # A stream per group, per pair of a message, and per slot of compute nodes.
        self._streams: dict[Any, Any] = defaultdict(torch.cuda.Stream)
        ptr, parents = graph.parents()
        self._ptr, self._parents = ptr.tolist(), parents.tolist()

    def wait(self, work: Any) -> None:
        """Wait for an operation that is no node."""
        # wait() of NCCL only lets the current stream wait; the event tells when the GPU is there.
        work.wait()
        event = self._event()
        event.record()
        self._reach(event, lambda: Stuck([], [], {}))

    def run(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Execute the graph once; return start and end of every node in ns of `time.perf_counter_ns`.

        Raises:
            Stuck: nothing ended for `timeout` seconds, or another rank is stuck.
        """
        feeder, n = Feeder(self.graph), self.graph.n_nodes
        # Times of events are relative: this one ties them to the host's clock.
        first = self._event()
        first.record()
        first.synchronize()
        began = time.perf_counter_ns()
        on_host: dict[int, tuple[int, int]] = {}
        events: dict[int, tuple[Any, Any]] = {}
        issued: dict[Key, int] = defaultdict(int)
        # Nodes are issued as soon as their parents are, not when those end: the streams keep the order.
        while (node := feeder.next_issuable()) is not None:
            parents = self._parents[self._ptr[node] : self._ptr[node + 1]]
            after = [events[parent][1] for parent in parents if parent in events]
            # A host node needs results of the GPU: here the host must really wait.
            if self._host(node):
                for event in after:
                    self._reach(event, lambda: self._stuck(events, issued))
                start = time.perf_counter_ns()
                _spin(
                    start + (0 if self._kind(node) == INSTANT else int(self.plan.compute.duration_ns[node]))
                )
                on_host[node] = start, time.perf_counter_ns()
            else:
                events[node] = self._queue(node, after)
                if node in self.plan.operations:
                    issued[self.plan.operations[node].key] += 1
            # Issued counts as finished: dependencies are events.
            feeder.finish(node)
        for _, event in events.values():
            self._reach(event, lambda: self._stuck(events, issued))
        times = np.zeros((2, n), np.int64)
        for node, span in on_host.items():
            times[:, node] = span
        for node, pair in events.items():
            # elapsed_time is in ms.
            times[:, node] = [began + int(first.elapsed_time(event) * 1e6) for event in pair]
        return times[0], times[1]

    def _kind(self, node: int) -> int:
        return int(self.plan.compute.kind[node])

    def _host(self, node: int) -> bool:
        """Tell whether a node runs on the host: it takes no time, or computes there."""
        # Computes on the host: recorded as a CPU operation.
        return self._kind(node) == INSTANT or (
            self._kind(node) != COMMUNICATES and bool(self.plan.compute.cpu[node])
        )

    def _queue(self, node: int, after: list[Any]) -> tuple[Any, Any]:
        """Queue a node behind those it depends on; return the events of its start and end."""
        columns = self.plan.compute
        communicates = self._kind(node) == COMMUNICATES
        stream = self._streams[self.plan.operations[node].key if communicates else int(columns.slot[node])]
        start, end = self._event(), self._event()
        with self.torch.cuda.stream(stream):
            for event in after:
                # Dependencies across streams; within one the order suffices.
                stream.wait_event(event)
            start.record()
            if communicates:
                # Queued on NCCL's stream; wait() makes this stream wait for it, so that the end is recorded
                # behind it.
                self.issue(node).wait()
            elif self.work and (columns.flops[node] or columns.bytes[node]):
                self.work.do(int(columns.flops[node]), int(columns.bytes[node]))
            else:
                # Spins on the GPU for the recorded duration.
                self.torch.cuda._sleep(int(columns.duration_ns[node] * self.cycles_per_ns))
            end.record()
        return start, end

    def _event(self) -> Any:
        return self.torch.cuda.Event(enable_timing=True)

    def _reach(self, event: Any, stuck: Callable[[], Stuck]) -> None:
        """Wait for an event."""
        end = time.monotonic() + self.timeout
        while not event.query():
            # Polled: synchronize() would ignore the timeout and other ranks.
            time.sleep(POLL_SECONDS)
            if time.monotonic() > end or self.stopped():
                raise stuck()

    def _stuck(self, events: dict[int, tuple[Any, Any]], issued: dict[Key, int]) -> Stuck:
        # Begun and not ended.
        running = [node for node, (start, end) in events.items() if start.query() and not end.query()]
        return Stuck(running, [], dict(issued))


def _clock(torch: Any) -> float:
    """Return how many cycles of ``torch.cuda._sleep`` make a nanosecond."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    # The first call warms up.
    torch.cuda._sleep(_SPIN_CYCLES)
    start.record()
    torch.cuda._sleep(_SPIN_CYCLES)
    end.record()
    end.synchronize()
    return float(_SPIN_CYCLES / (start.elapsed_time(end) * 1e6))


def _spin(until: int) -> None:
    # Sleeping would be off by more than short nodes take.
    while time.perf_counter_ns() < until:
        pass
