"""Programs whose ticks are known in advance."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary.engine.physical.lower import lower
from armillary.engine.physical.program import execute
from armillary.trace import GraphBuilder, Trace

MACHINE = {"network": [{"topology": "Switch", "size": 2, "bandwidth": "1 GB/s", "latency": "1 us"}]}
KERNELS = 50


@pytest.mark.parametrize("size", [1_000, 1_000_000])
def test_a_rank_ends_with_the_last_of_its_nodes_also_if_that_is_a_message_that_nothing_waits_for(size):
    sender, receiver = GraphBuilder(rank=0), GraphBuilder(rank=1)
    sender.send(1, size)
    last = sender.compute("k", duration_micros=2)
    for _ in range(KERNELS - 1):
        last = sender.compute("k", duration_micros=2, after=[last])
    receiver.recv(0, size)
    trace = Trace.from_ranks([sender.graph(), receiver.graph()])
    timeline = armillary.simulate(trace, MACHINE)
    arrival = size + 2000  # a byte takes 1 ns, and both links 1 us
    assert timeline.finish_ticks.tolist() == [max(arrival, 2000 * KERNELS), arrival]


def test_kernels_of_two_streams_take_turns_as_their_dependencies_say():
    # Each of a pair waits for both of the pair before: the slower of them decides.
    b = GraphBuilder()
    before: list[int] = []
    for _ in range(KERNELS):
        before = [b.compute("k", duration_micros=micros, after=before) for micros in (2, 3)]
        b.nodes[-1].attrs.append(("stream", "int32", 1))
    b.all_reduce("a", size=0, after=before)
    program = lower(Trace.replicate(b.graph(), ranks=2), armillary.load_platform(MACHINE))
    run = execute(program, "interpreted")
    start = run.table("NODE_START")
    np.testing.assert_array_equal(start[: 2 * KERNELS], np.repeat(np.arange(KERNELS), 2) * 3000)
    assert start[2 * KERNELS] == 3000 * KERNELS
