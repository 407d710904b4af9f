"""The GPU executor on a GPU that is not there: streams that only add up times."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from armillary.evidence.replay.cuda import Streams
from armillary.evidence.replay.loop import Stuck
from armillary.evidence.replay.plan import plan_of
from armillary.trace import GraphBuilder, Trace

COLLECTIVE_NS = 700


class Stream:
    def __init__(self) -> None:
        self.now = 0.0

    def wait_event(self, event: Event) -> None:
        self.now = max(self.now, event.at)


class Event:
    """Knows at which nanosecond of its stream it was recorded."""

    gpu: Gpu

    def __init__(self, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = self.gpu.current.now

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return not self.gpu.hangs

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) / 1e6


class Gpu:
    """``torch.cuda`` as far as it is used."""

    def __init__(self) -> None:
        self.current = Stream()
        self.hangs = False
        self.Stream = Stream
        self.Event = type("BoundEvent", (Event,), {"gpu": self})

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def _sleep(self, cycles: int) -> None:
        self.current.now += cycles

    def issue(self, node: int) -> Any:
        return SimpleNamespace(wait=lambda: self._sleep(COLLECTIVE_NS))


def streams_of(builder: GraphBuilder, gpu: Gpu, timeout: float = 600.0) -> Streams:
    graph = builder.graph()
    plan = plan_of(Trace.replicate(graph, 1)).ranks[0]
    torch = SimpleNamespace(cuda=gpu)
    return Streams(plan, graph, torch, gpu.issue, "durations", timeout, lambda: False)


def test_streams_wait_for_each_other_and_overlap_else() -> None:
    builder = GraphBuilder()
    forward = builder.compute("forward", duration_micros=2)
    shared = builder.all_reduce("gradients", 8, after=[forward])
    builder.compute("backward", duration_micros=3, after=[forward])
    builder.compute("optimizer", duration_micros=1, after=[shared])
    start, end = streams_of(builder, Gpu()).run()
    first = start[0]
    # The optimizer is on the stream of backward, behind it, as it was queued later.
    assert (start - first).tolist() == [0, 2000, 2000, 5000]
    assert (end - first).tolist() == [2000, 2000 + COLLECTIVE_NS, 5000, 6000]


def test_the_host_computes_after_what_it_waits_for() -> None:
    builder = GraphBuilder()
    shared = builder.all_reduce("sum", 8)
    builder.compute("log", duration_micros=50, cpu=True, after=[shared])
    builder.metadata("note")
    start, end = streams_of(builder, Gpu()).run()
    assert end[1] - start[1] >= 50_000
    assert start[2] >= end[1]


def test_a_gpu_that_hangs_is_given_up() -> None:
    builder = GraphBuilder()
    builder.all_reduce("sum", 8)
    gpu = Gpu()
    streams = streams_of(builder, gpu, timeout=0.1)
    gpu.hangs = True
    with pytest.raises(Stuck) as stuck:
        streams.run()
    assert stuck.value.issued == {("group", 0, 0, 0): 1}
