"""CUDA graphs: what is called while one is captured is recorded whenever it is replayed, as one call of the host."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from armillary.capture.flows import Flow
from armillary.capture.log import HOST, JOIN, Row
from armillary.capture.recorder import Recorder


@dataclass
class Graph:
    """A CUDA graph.

    Attributes:
        rows: Of its kernels and communications, and what each is of.
        flows: Of these, counted from its first row.
        stream: On which it was captured.
        begin: Rows, communications, flows and changes of memory before it.
        steps: Whether an optimizer steps in it.
    """

    rows: list[tuple[Row, Any]]
    flows: list[Flow]
    stream: int
    begin: tuple[int, int, int, int]
    steps: bool = False


class Graphs:
    """Captures and runs them."""

    def __init__(self, recorder: Recorder, stepped: Callable[[], None]) -> None:
        """Begin; `stepped` is called when a step has ended in a graph."""
        self._recorder, self._stepped = recorder, stepped
        self._graph: Graph | None = None

    @property
    def captures(self) -> bool:
        """Whether one is being captured."""
        return self._graph is not None

    def steps(self) -> bool:
        """Note that an optimizer has stepped; return whether that was only captured."""
        if self._graph is not None:
            self._graph.steps = True
        return self._graph is not None

    def begin(self) -> None:
        """Capture what is called from now on: it does not run yet."""
        recorder, log = self._recorder, self._recorder.log
        begin = len(log.rows), len(log.communications), len(recorder.flows), recorder.memory.mark()
        self._graph = Graph([], [], recorder.library.stream(), begin)

    def end(self) -> Graph | None:
        """Return what was captured since `begin`."""
        graph, recorder, self._graph = self._graph, self._recorder, None
        if graph is None:
            return None
        first, calls, flows, mark = graph.begin
        graph.rows = [
            (row._replace(calls=0), what)
            for row, what in recorder.issued(first, calls)
            if row.kind != HOST and (row.kind != JOIN or what >= 0)
        ]
        graph.flows = [each._replace(row=each.row - first, mark=-1) for each in recorder.flows[flows:]]
        del recorder.flows[flows:]
        recorder.forget(first, calls)
        # Its memory stays its own until nobody has it.
        memory = recorder.memory
        weakref.finalize(graph, memory.release, memory.hold(mark, recorder.where.line()))
        return graph

    def run(self, graph: Graph | None) -> None:
        """Record a graph on the current stream: one call, which issues all of it.

        Raises:
            RuntimeError: nothing was captured.
        """
        if graph is None:
            raise RuntimeError("a CUDA graph is replayed that was not captured")
        recorder = self._recorder
        here, first = recorder.library.stream(), len(recorder.log.rows)
        recorder.calls += 1
        recorder.issue(
            (row._replace(stream=here if row.stream == graph.stream else row.stream), what)
            for row, what in graph.rows
        )
        recorder.flows += [each._replace(row=each.row + first) for each in graph.flows]
        if graph.steps:
            self._stepped()
