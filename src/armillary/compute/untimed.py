"""Compute nodes that name work and have no time: what a trace that nobody ran, or that was recorded in part, has.

In profile ``physical`` they take the time of the roofline model, whether or not the machine asks for it, and the
result says so (`Timeline.info`, key ``assumptions``). Where the machine states no peak, operations are refused; where
it states no memory bandwidth, bytes cost no time, which the result says. What a CPU does has no model: such nodes take
no time, which the result says as well. A time of 0 is none, but on a CPU, where a recording may say that an operator
waited all the time, it is one if ``duration_ns`` says so.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from armillary.trace.graph import Graph
from armillary.trace.node import NodeType

Mask = NDArray[np.bool_]


def names_work(graph: Graph) -> Mask:
    """Return which nodes name operations or bytes, (nodes)."""
    found: Mask = (graph.ints("num_ops", 0) > 0) | (graph.ints("tensor_size", 0) > 0)
    return found


def has_time(graph: Graph) -> Mask:
    """Return which nodes have a recorded time of more than 0, (nodes)."""
    exact = graph.ints("duration_ns", 0) > 0
    # An exact duration of 0 beats a rounded one.
    found: Mask = np.where(graph.has("duration_ns"), exact, graph.duration_micros > 0)
    return found


def untimed(graph: Graph) -> Mask:
    """Return which compute nodes off the CPU name work and have no time, (nodes)."""
    off = graph.ints("is_cpu_op", 0) == 0
    found: Mask = _compute(graph) & off & names_work(graph) & ~has_time(graph)
    return found


def untimed_on_cpu(graph: Graph) -> Mask:
    """Return the same of a CPU, (nodes)."""
    on_cpu = _compute(graph) & (graph.ints("is_cpu_op", 0) != 0)
    # On a CPU a recorded 0 is a time: the operator only waited.
    found: Mask = on_cpu & names_work(graph) & ~has_time(graph) & ~graph.has("duration_ns")
    return found


def _compute(graph: Graph) -> Mask:
    return np.asarray(graph.types == NodeType.COMP_NODE)
